"""The coordinator of a federation: asks the rounds of one study and keeps what comes back.

intake    which answers count: the round's only owner, without input, output or clock
core      a run without connection, clock or task: questions out, payloads in, rounds closed by the rule in `run.rounds`
service   drives the core: connections, the clock, requests of other commands
journal   what the run's file keeps beside the counts
"""

__all__ = ["core", "intake", "journal", "service"]
