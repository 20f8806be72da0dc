"""How the rounds of a run are asked, closed and ended: by agreed numbers, or by whoever comes (an open study).

A round of an open study closes when enough have answered, when every client has, or when its time is up; the pure rule
is `server.open_rounds`. It sees numbers of records and times, never an answer.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

from privatile.core.messages import Question
from privatile.federation.coordinator.answer_intake import AnswerIntake
from privatile.federation.coordinator.round_rules import Closing, may_close, quarantine_pause
from privatile.federation.study.arrivals import Arrivals, shared_out
from privatile.federation.study.study import FederationStudy
from privatile.server.coordinator import Coordinator
from privatile.server.open_rounds import Ending, OpenRound, Phase, RoundRule, advance
from privatile.server.run_file import Statement

LONGEST_GRACE = 10.0
"""Seconds, at most, that a round waits for answers under way once it closes: a late one is spent and not counted."""


class Rounds:
    """Every client was asked beforehand for a number of records."""

    def __init__(self, study: FederationStudy, coordinator: Coordinator) -> None:
        self.study, self.coordinator = study, coordinator

    def questions(self) -> dict[str, tuple[Question, ...]]:
        """What every client is asked next; empty when the run is over."""
        return self.coordinator.questions()

    def closing(self, intake: AnswerIntake, *, late: bool) -> Closing:
        """Whether the round may be closed; `late`: its deadline is over."""
        return may_close(intake, self.study, self.coordinator.tracks, late=late)

    def accept(self, intake: AnswerIntake, evidence: Sequence[Statement]) -> None:
        """Give the counts of the round to the run, in one transaction with the evidence."""
        self.coordinator.accept(intake.counts(), evidence, intake.unspent)

    def finish(self) -> str:
        """Mark the run as complete; what happened, in words."""
        self.coordinator.finish()
        return f"all {self.coordinator.done} rounds are done"

    def end(self) -> None:
        """Let the run end after the open round, by command; nothing here, where it has a number of rounds."""


class OpenRounds(Rounds):
    """Records arrive over weeks: a round is as long as it becomes."""

    def __init__(self, study: FederationStudy, coordinator: Coordinator, arrivals: Arrivals) -> None:
        super().__init__(study, coordinator)
        grace = min(LONGEST_GRACE, study.deadline / 10.0)
        self._rule = RoundRule(arrivals.round_answers, study.deadline, grace, arrivals.ends_at, arrivals.end_answers)
        self._since = self._opened_at()
        self._draining: OpenRound | None = None
        """The open round, once it only waits for answers that are under way."""
        self._ending: Ending = ""

    def _opened_at(self) -> float:
        """When the open round began, by the run's file: with the end of the last one. A restart changes nothing."""
        ((last,),) = self.coordinator.store.query("SELECT max(at) FROM rounds")
        return float(last or self.coordinator.store.created)

    def _round(self, came: int) -> OpenRound:
        before = sum(self.coordinator.asked.values())
        return OpenRound(self.coordinator.done + 1, Phase.OPEN, self._since, came, before, self._ending)

    @property
    def _used_up(self) -> list[str]:
        """Clients that have given all records they agreed to: no question counts without them."""
        asked = self.coordinator.asked
        return [name for name, agreement in self.study.clients.items() if asked[name] >= agreement.records]

    def questions(self) -> dict[str, tuple[Question, ...]]:
        """The question that stands, with the number of records that may take part at every client."""
        if self._ending or self._used_up:
            return {}
        asked, clients = self.coordinator.asked, self.study.clients
        lengths = shared_out(
            self._rule.planned(self._round(0)),
            {name: agreement.weight for name, agreement in clients.items()},
            {name: agreement.records - asked[name] for name, agreement in clients.items()},
        )
        return {
            name: tuple(one.of(lengths[name]) for one in questions)
            for name, questions in self.coordinator.questions().items()
        }

    def closing(self, intake: AnswerIntake, *, late: bool) -> Closing:
        """Whether the round may be closed, by the number that came and the clock; the deadline is the rule's own."""
        if pause := quarantine_pause(intake):
            return Closing(False, pause)
        came = sum(map(sum, intake.lengths()))
        state = self._round(came)
        if self._draining is not None:  # the command to end may have come since
            state = replace(self._draining, came=came, ending=self._ending)
        found = advance(self._rule, state, time.time(), awaited=len(intake.missing))
        self._draining = found if found.phase is Phase.DRAINING else None
        self._ending = found.ending
        return Closing(found.phase is Phase.CLOSING or not intake.missing)

    def accept(self, intake: AnswerIntake, evidence: Sequence[Statement]) -> None:
        """Give counts and lengths of the round to the run; with nobody's answer there is nothing to give."""
        self._draining = None
        if intake.answers:
            self.coordinator.accept(intake.counts(), evidence, lengths=intake.lengths())
            self._since = time.time()

    def finish(self) -> str:
        """End the run; what ended it, in words."""
        used_up, over = self._used_up, self.coordinator.rounds() is None
        self.coordinator.finish(None if over else "date" if self._ending == "date" else "command")
        why = self.coordinator.store.why_ended
        if why == "command" and used_up:
            return f"{', '.join(used_up)} has given all records that it agreed to, and nothing counts without it"
        return f"the run ended by {why} after {self.coordinator.done} rounds"

    def end(self) -> None:
        """Let the run end after the open round, by command."""
        self._ending = self._ending or "command"


def rounds_of(study: FederationStudy, coordinator: Coordinator) -> Rounds:
    """The way in which this study's rounds are asked."""
    return Rounds(study, coordinator) if study.arrivals is None else OpenRounds(study, coordinator, study.arrivals)
