"""The coordinator of a federation: asks the rounds of one study over a broker and keeps what comes back.

answer_intake   which answers count: the round's only owner, without input, output or clock
round_rules     when a round may be closed, and whose counts are impossible
port            the coordinator's end of a broker connection
journal         what the run's file keeps beside the counts
control         requests of other commands
service         puts these together: connection, clock, journal and run file
"""

__all__ = ["answer_intake", "control", "journal", "port", "round_rules", "service"]
