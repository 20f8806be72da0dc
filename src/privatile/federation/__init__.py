"""A federation: several organizations answer one study over a NATS broker, each with a ledger of its own.

Every part needs the extra `federation`. Each imports only from those below it (checked by import-linter):

    audit                a check of a client from outside
    operations           commands on a run: start it, join it, look at it, release its record, back it up
    coordinator | site   the one that asks, and the ones that answer: a core without connection, clock or task, and the
                         service that drives it
    setup                the organizer's folder, invitations and enrolments, the embedded broker
    study                the study file: what is asked, of whom, at what privacy budget
    connection           the two ends of a connection over NATS
    transport | wire     what must carry messages; the messages and their subjects
    monitoring           log lines, metrics and the health page of a service
"""

__all__ = [
    "audit",
    "connection",
    "coordinator",
    "monitoring",
    "operations",
    "setup",
    "site",
    "study",
    "transport",
    "wire",
]
