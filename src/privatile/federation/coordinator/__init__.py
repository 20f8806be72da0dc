"""The coordinator of a federation: asks the rounds of one study over a broker and keeps what comes back.

    answer_intake   which answers count: the round's only owner, without input, output or clock
    round_rules     when a round may be closed, and whose counts are impossible
    port            the coordinator's end of a broker connection
    journal         what the run's file keeps beside the counts
    control         requests of other commands
    service         puts these together: connection, clock, journal and run file

`service` and `port` are not exported: they import the broker's client library, which a reader of a
journal does not need.
"""

from privatile.federation.coordinator.answer_intake import AnswerIntake, Verdict
from privatile.federation.coordinator.control import Control
from privatile.federation.coordinator.journal import Event, Journal

__all__ = ["AnswerIntake", "Control", "Event", "Journal", "Verdict"]
