"""The responder of an open study: whoever has arrived and not answered takes part, each person once for life.

The source is read anew for every round: a file that grows, a query that gives more rows. Who has answered is in the
ledger, by person. A site answers a round once: with as many as the question asks for, as soon as so many have come;
else, when half of the round's time is over, with those who are there. When it answers depends on how many have come and
on the clock, never on a value.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from privatile.client.coins import Coins, OperatingSystemCoins
from privatile.client.ledger.keys import PersonKey
from privatile.client.ledger.ledger import Ledger
from privatile.client.ledger.spending_rules import SpendingRules
from privatile.client.ledger.stored_answers import Stored, stored_answer
from privatile.client.order.shuffle import read_arrived
from privatile.client.responder import Responder
from privatile.client.sources.source import ONLY_CLIENT, Source
from privatile.core.messages import Answer, Question
from privatile.core.scale import make_scale
from privatile.errors import Equivocation, InputError, LedgerError, SiteRefusal
from privatile.federation.site.responder import SiteResponder, link_of, tell_of_heaps
from privatile.federation.study.study import FederationStudy
from privatile.federation.wire.messages import AnswerMessage, question_digest

READS = 50
"""How often, at most, the source is read while a round is open and too few have come."""


class OpenSiteResponder(SiteResponder):
    """Questions in, counts, lengths and the ledger's link out; everything durable first."""

    def __init__(
        self,
        study: FederationStudy,
        client: str,
        read: Callable[[], Source],
        ledger: Ledger,
        rules: SpendingRules,
        person_key: PersonKey | None,
        *,
        fewest: int = 1,
        coins: Coins | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`read` opens the source anew. `fewest` is the site's own limit: it never answers with fewer records."""
        self._study, self._read, self._person_key = study, read, person_key
        self._ledger, self._rules, self._coins = ledger, rules, coins or OperatingSystemCoins()
        self._name, self._agreement, self._fewest, self._clock = client, study.clients[client], fewest, clock
        self._round, self._since, self._next_read = 0, 0.0, 0.0
        """The round that was seen last, since when it is open here, and when the source is read again for it."""
        super().__init__(client, study.run, self._read_source(), self._agreement.records)

    def _read_source(self) -> Responder:
        """The column as it is now; refused where its people have answered otherwise."""
        study = self._study
        column = read_arrived(self._read(), self._ledger, missing=study.missing, person_key=self._person_key)
        if not self._round:  # later, the time that it takes would depend on values
            tell_of_heaps(study, self._name, column)
        return Responder(
            study.run,
            column,
            self._agreement.mechanism,
            self._ledger,
            self._coins,
            scale=make_scale(study.scale, *study.range),
            missing=study.missing,
            rules=self._rules,
        )

    def message(self, study: str, questions: Sequence[Question]) -> AnswerMessage | None:
        """The answer of those who have come, the same again to the same round; none while there are too few."""
        (question,) = questions
        given = self._given(question)
        if given is None and self._reads_now(question):
            given = self._ask(question)
        if given is None:
            return None
        asked = Question.from_json(given.question)
        answer = Answer(self._run, question.round, self.client, question.level, given.ones)
        digest, link = question_digest(study, [asked]), link_of(given.position)
        return AnswerMessage.of(study, digest, [answer], link, [asked.length])

    def _given(self, question: Question) -> Stored | None:
        """What this round was answered with; refused where it was another question."""
        found = stored_answer(self._ledger, self._run, ONLY_CLIENT, question)
        if found is not None and Question.from_json(found.question).of(question.length) != question:
            raise Equivocation(
                f"round {question.round} of run {self._run!r} was answered, and is asked again with another question. "
                "Nothing was answered."
            )
        return found

    def _reads_now(self, question: Question) -> bool:
        now = self._clock()
        if question.round != self._round:
            self._round, self._since, self._next_read = question.round, now, now
        if now < self._next_read:
            return False
        self._next_read = now + self._study.deadline / READS
        return True

    def _ask(self, question: Question) -> Stored | None:
        """Let those who have come answer; none where there are too few."""
        try:
            self._responder = self._read_source()
        except InputError as error:
            # A file that is being replaced, a database that is down: it is tried again, and nothing was answered.
            raise SiteRefusal(f"the source cannot be read now: {error}") from None
        half = self._clock() >= self._since + self._study.deadline / 2
        with self._ledger.transaction():
            if (given := self._given(question)) is not None:  # by another process of this site
                return given
            self._check_order([question])
            wanted = min(question.length, self._records - self.asked())
            come = min(wanted, self._responder.available())
            if come < max(1, self._fewest, 0 if half else wanted):
                return None
            asked = question.of(come)
            stored = self._responder.outcome(asked).stored
        self._rules = replace(self._rules, max_epsilon=None)  # said once: another client of this site may say another
        return Stored(stored.ones, stored.position, asked.to_json())

    def account_for(self, records: int, through_round: int) -> None:
        """After a restore nobody can show who has answered since the backup, so nobody of this column answers."""
        raise LedgerError(
            f"the ledger {self._ledger.path} was restored from a backup. In an open study nobody can show who has "
            "answered since: everybody whom this column may hold counts as spent, and this site cannot go on with it."
        )
