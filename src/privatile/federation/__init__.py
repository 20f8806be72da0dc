"""A federation: several organizations answer one study over a NATS broker, each with a ledger of its own.

The public names are the modules, imported one by one: every part needs the extra `federation`, and the services also
import the broker's client library. Each imports only from those below it (checked by import-linter):

    audit | record       a check of a client from outside; the signed record of a finished run
    run                  commands on a run: start it, join it, look at it, derive a new one from it
    coordinator | site   the two services: the one that asks, and the ones that answer
    setup                the organizer's folder, invitations and enrolments, certificates, the embedded broker
    study                the study file: what is asked, of whom, at what privacy budget
    wire                 messages, keys, subjects, TLS, the connection with the broker
    monitoring           log lines, metrics and the health page of a service
"""

__all__ = ["audit", "coordinator", "monitoring", "record", "run", "setup", "site", "study", "wire"]
