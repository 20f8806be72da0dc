"""The responder and its ledger, as a site uses them; that of an open study too.

In the ledger a site has one name for itself, whatever a study calls it: two studies that name it differently must not
make its records look new.

The responder of an open study: whoever has arrived and not answered takes part, each person once for life.

The source is read anew for every round: a file that grows, a query that gives more rows. Who has answered is in the
ledger, by person. A site answers a round once: with as many as the question asks for, as soon as so many have come;
else, when half of the round's time is over, with those who are there. When it answers depends on how many have come and
on the clock, never on a value.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from privatile.client.ledger.account import Account, SpendingRules
from privatile.client.ledger.integrity import PersonKey
from privatile.client.ledger.ledger import Ledger
from privatile.client.order.shuffle import HEAPS, ShuffledColumn, has_heaps, read_arrived, shuffle
from privatile.client.randomizer import Coins, OperatingSystemCoins
from privatile.client.responder import Responder, answer_all
from privatile.client.sources.source import Source
from privatile.core.messages import Answer, Position, Question
from privatile.core.scale import make_scale
from privatile.errors import AlreadyAnswered, Equivocation, InputError, LedgerError, SiteRefusal
from privatile.federation.study import FederationStudy, agreed_class, name_in_ledger
from privatile.federation.wire import RoundAnswers

log = logging.getLogger("privatile.federation.client")


class SiteResponder:
    """Questions in, counts and the ledger's link out; everything durable first."""

    def __init__(self, client: str, run: str, responder: Responder, records: int) -> None:
        """`records` is what the site has agreed to: it answers no more, whatever the coordinator asks."""
        self.client = client
        self._run = run
        self._records = records
        self._responder = responder
        self.ledger = responder.ledger

    @property
    def account(self) -> Account:
        """What this run may ask and has asked, by the ledger."""
        return self._responder.account

    def link(self) -> Position:
        """The last entry of this study in the ledger; what other studies were given does not show."""
        return self.account.position

    def answer(self, questions: Sequence[Question]) -> tuple[Answer, ...]:
        """One answer per question, all in one transaction."""
        with self.ledger.transaction():
            self._check_order(questions)
            answers = answer_all((self._responder, question) for question in questions)
            # Counted here, under the write lock: another process may have answered since this one was opened.
            if self.account.answered() > self._records:
                raise SiteRefusal(
                    f"with round {questions[0].round} more records would be asked than the {self._records} agreed to."
                )
        return tuple(replace(answer, client=self.client) for answer in answers)

    def message(self, study: str, questions: Sequence[Question]) -> RoundAnswers | None:
        """The answer to a round's questions, to be signed; `study` is the study's digest.

        None where there is nothing to answer with yet, in an open study (`open_responder`).
        """
        # The signature holds for these counts as the answer to the question as it was received.
        return RoundAnswers.of(study, self.answer(questions))

    def _check_order(self, questions: Sequence[Question]) -> None:
        """Refuse a new question of a round before the last one answered: the coordinator may count on its absence.

        It has seen by the link of the later answer that no coin was drawn for that round, and asks its records later.
        """
        last = self.account.last_round()
        for question in questions:
            if question.round < last and not self.account.has_answered(question):
                raise SiteRefusal(
                    f"round {question.round} is over: round {last} has been answered. Its records answer later rounds."
                )

    def check_past(self, seen: Position | None, records: int, through_round: int, *, restored: bool) -> bool:
        """Compare this ledger with `seen`, its last answer that was counted; whether it has lost that.

        Raises LedgerError where it has, unless the site has said that the ledger was `restored`: then what it lacks of
        the `records` that were asked, the last in `through_round`, is marked as spent (`account_for`).
        """
        lost = False
        try:
            if seen is not None:
                self.account.confirm(seen)
        except LedgerError:
            if not restored:
                raise
            lost = True
        # Where every answer that was counted is there, one that came too late to count may be missing all the same.
        if lost or self.account.state().unproven:
            self.account_for(records, through_round)
        return lost

    def account_for(self, records: int, through_round: int) -> None:
        """After a restore: the coordinator has shown that it asked `records` in all, the last in `through_round`.

        What this ledger lacks of them is marked as spent, answered or not; the rest of what it keeps for the run may
        answer. The coordinator's word is all there is: one that says less than it was given has records asked twice.
        One whose open round lies before what even this ledger has answered was put back from a backup itself. It
        cannot show anything, and nothing is answered.
        """
        state = self.account.state()
        last = max(self.account.last_round(), state.lost_through)
        if through_round + 1 < last:  # the open round may be answered, and its answer not have come
            raise LedgerError(
                f"the ledger {self.ledger.path} was restored from a backup, and so was the run's file: "
                f"it knows of {through_round} rounds, this ledger of {last}. So "
                "nobody can show what was asked since the backups. Have the newest run.db put back there, then start "
                "again; where it is lost, these records count as spent: ask new people."
            )
        lost = min(max(0, records - state.asked), self._responder.available())
        if lost:
            self._responder.mark_spent(lost, through_round)
        self.account.prove()


def tell_of_heaps(study: FederationStudy, client: str, column: ShuffledColumn) -> None:
    """Tell the site alone, in its log, if values that the study declares continuous lie on heaps.

    The other sites are taken to hold values alike.
    """
    if study.spec.declared.continuous and has_heaps([(column, 1.0)], study.error_in_rank):
        log.warning(HEAPS, f"client {client}", 'Stop, and ask the organizer for a study with value_kind = "any".')


def _responder(
    study: FederationStudy,
    client: str,
    column: ShuffledColumn,
    ledger: Ledger,
    rules: SpendingRules,
    coins: Coins | None,
) -> Responder:
    return Responder(
        study.run,
        column,
        study.clients[client].mechanism,
        ledger,
        coins or OperatingSystemCoins(),
        scale=make_scale(study.scale, *study.range),
        missing=study.missing,
        rules=rules,
    )


def open_responder(
    study: FederationStudy,
    client: str,
    source: Source,
    ledger: Ledger,
    rules: SpendingRules,
    *,
    person_key: PersonKey | None = None,
    coins: Coins | None = None,
    reserve: bool = True,
) -> SiteResponder:
    """Read the source; refuse now, rather than in mid-run, where too few records are left for what was agreed.

    `reserve` keeps the agreed records for this run, so that no other run asks them; a transport that does not tell its
    clients when a run is over cannot release them, and should not reserve.
    """
    if study.is_open:
        raise InputError("an open study reads its source anew in every round: this transport does not do that.")
    agreement = study.clients[client]
    agreed = agreed_class(study.clients, client)
    if (agreed is None) != (source.weight is None):
        raise InputError(
            f"client {client} answers for all records alike, by the study: leave out the weight column."
            if agreed is None
            else f"client {client} answers for a weight class, by the study: name the column of the weights (--weight)."
        )
    columns = shuffle(source, ledger, missing=study.missing, person_key=person_key, classes=agreed)
    if list(columns) != [name_in_ledger(study.clients, client)]:
        raise InputError("a site answers for one client: give one file without a client column.")
    (column,) = columns.values()
    responder: Responder | None = None
    try:
        responder = _responder(study, client, column, ledger, rules, coins)
        if not responder.account.state().asked:  # later, the time that it takes would depend on values
            tell_of_heaps(study, client, column)
        if reserve:
            responder.reserve(agreement.records)
        responder.require(max(0, agreement.records - responder.account.state().asked))
    except AlreadyAnswered as error:
        # The ledger knows the site by one name for all studies; people know it by the study's.
        left = 0 if responder is None else responder.account.state().asked + responder.available()
        fewer = f" To ask fewer, whoever made the study makes a new one with --records {client}={left}." if left else ""
        raise AlreadyAnswered(
            f"client {client} cannot answer with the {agreement.records:,} records that its invitation names: {error}"
            f"{fewer}"
        ) from None
    return SiteResponder(client, study.run, responder, agreement.records)


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
        self._ledger, self._rules, self._coins = ledger, rules, coins
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
        return _responder(study, self._name, column, self._ledger, self._rules, self._coins)

    def message(self, study: str, questions: Sequence[Question]) -> RoundAnswers | None:
        """The answer of those who have come, the same again to the same round; none while there are too few."""
        (question,) = questions
        given = self._given(question)
        if given is None and self._reads_now(question):
            given = self._ask(question)
        if given is None:
            return None
        return RoundAnswers.of(study, [replace(given, client=self.client)])

    def _given(self, question: Question) -> Answer | None:
        """What this round was answered with; refused where it was another question."""
        found = self.account.stored(question)
        if found is not None and found.question.of(question.length) != question:
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

    def _ask(self, question: Question) -> Answer | None:
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
            wanted = min(question.length, self._records - self.account.state().asked)
            come = min(wanted, self._responder.available())
            if come < max(1, self._fewest, 0 if half else wanted):
                return None
            answer = self._responder.answer(question.of(come))
        self._rules = replace(self._rules, max_epsilon=None)  # said once: another client of this site may say another
        return answer

    def account_for(self, records: int, through_round: int) -> None:
        """After a restore nobody can show who has answered since the backup, so nobody of this column answers."""
        raise LedgerError(
            f"the ledger {self._ledger.path} was restored from a backup. In an open study nobody can show who has "
            "answered since: everybody whom this column may hold counts as spent, and this site cannot go on with it."
        )
