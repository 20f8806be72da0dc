"""The responder and its ledger, as the client's service uses them; that of an open study too.

The responder and its ledger, as the client's service uses them.

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
from typing import NamedTuple

from privatile.client.ledger.account import SpendingRules
from privatile.client.ledger.integrity import PersonKey
from privatile.client.ledger.ledger import Ledger, Position, Stored, stored_answer
from privatile.client.order.shuffle import HEAPS, ShuffledColumn, has_heaps, read_arrived, shuffle
from privatile.client.randomizer import Coins, OperatingSystemCoins
from privatile.client.responder import Responder
from privatile.client.sources.source import ONLY_CLIENT, Source
from privatile.core.messages import Answer, Question
from privatile.core.scale import make_scale
from privatile.errors import AlreadyAnswered, Equivocation, InputError, LedgerError, SiteRefusal
from privatile.federation.study import FederationStudy, agreed_class, name_in_ledger
from privatile.federation.wire import AnswerMessage, Link, question_digest

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
        self._answered, self._counted_through = 0, 0
        """Records that have answered this run, in entries of the ledger up to this one."""

    def asked(self) -> int:
        """How many records have answered this run, or were written off, by the ledger."""
        return self._responder.asked()

    def release(self) -> None:
        """Give back what was reserved and not asked: the run is over."""
        self._responder.release()

    def link(self) -> Link:
        """The last entry of this study in the ledger; what other studies were given does not show."""
        return link_of(self._responder.position)

    def confirm(self, seen: Link) -> None:
        """Raise LedgerError where `seen` is not part of this ledger's past."""
        self._responder.confirm(Position(seen.sequence, bytes.fromhex(seen.hash)))

    def answer(self, questions: Sequence[Question]) -> tuple[tuple[Answer, ...], Link]:
        """One count per question, all in one transaction, and the link of the last one."""
        with self.ledger.transaction():
            self._check_order(questions)
            outcomes = [self._responder.outcome(question) for question in questions]
            # Counted here, under the write lock: another process may have answered since this one was opened.
            new, through = self.ledger.execute(
                "SELECT COALESCE(SUM(length), 0), COALESCE(MAX(sequence), ?) FROM answers"
                " WHERE sequence > ? AND run = ? AND client = ? AND ones IS NOT NULL",
                (self._counted_through, self._counted_through, self._run, self._responder.client),
            ).fetchone()
            if self._answered + new > self._records:
                raise SiteRefusal(
                    f"with round {questions[0].round} more records would be asked than the {self._records} agreed to."
                )
        self._answered, self._counted_through = self._answered + new, through
        last = max((outcome.stored.position for outcome in outcomes), key=lambda position: position.sequence)
        return tuple(replace(outcome.answer, client=self.client) for outcome in outcomes), link_of(last)

    def message(self, study: str, questions: Sequence[Question]) -> AnswerMessage | None:
        """The answer to a round's questions, to be signed; `study` is the study's digest.

        None where there is nothing to answer with yet, in an open study (`open_responder`).
        """
        answers, link = self.answer(questions)
        # The signature holds for these counts as the answer to the question as it was received.
        return AnswerMessage.of(study, question_digest(study, questions), answers, link)

    def _check_order(self, questions: Sequence[Question]) -> None:
        """Refuse a new question of a round before the last one answered: the coordinator may count on its absence.

        It has seen by the link of the later answer that no coin was drawn for that round, and asks its records later.
        """
        last = self._last_round()
        for question in questions:
            if question.round < last and not self._responder.has_answered(question):
                raise SiteRefusal(
                    f"round {question.round} is over: round {last} has been answered. Its records answer later rounds."
                )

    def _last_round(self) -> int:
        """The last round of this run that the ledger has answered."""
        own = (self._run, self._responder.client)
        rows = self.ledger.execute("SELECT COALESCE(MAX(round), 0) FROM answers WHERE run = ? AND client = ?", own)
        return int(rows.fetchone()[0])

    @property
    def is_unproven(self) -> bool:
        """Whether this ledger was restored, and nobody has shown since what this run had asked."""
        return self._responder.is_unproven

    def check_past(self, seen: Link | None, records: int, through_round: int, *, restored: bool) -> bool:
        """Compare this ledger with `seen`, its last answer that was counted; whether it has lost that.

        Raises LedgerError where it has, unless the site has said that the ledger was `restored`: then what it lacks of
        the `records` that were asked, the last in `through_round`, is marked as spent (`account_for`).
        """
        lost = False
        try:
            if seen is not None:
                self.confirm(seen)
        except LedgerError:
            if not restored:
                raise
            lost = True
        # Where every answer that was counted is there, one that came too late to count may be missing all the same.
        if lost or self.is_unproven:
            self.account_for(records, through_round)
        return lost

    def account_for(self, records: int, through_round: int) -> None:
        """After a restore: the coordinator has shown that it asked `records` in all, the last in `through_round`.

        What this ledger lacks of them is marked as spent, answered or not; the rest of what it keeps for the run may
        answer. The coordinator's word is all there is: one that says less than it was given has records asked twice.
        One whose open round lies before what even this ledger has answered was put back from a backup itself. It
        cannot show anything, and nothing is answered.
        """
        last = max(self._last_round(), lost_through(self.ledger, self._run, self._responder.client))
        if through_round + 1 < last:  # the open round may be answered, and its answer not have come
            raise LedgerError(
                f"the ledger {self.ledger.path} was restored from a backup, and so was the run's file: "
                f"it knows of {through_round} rounds, this ledger of {last}. So "
                "nobody can show what was asked since the backups. Have the newest run.db put back there, then start "
                "again; where it is lost, these records count as spent: ask new people."
            )
        lost = min(max(0, records - self.asked()), self._responder.available())
        if lost:
            self._responder.mark_spent(lost, through_round)
        self._responder.prove()


def tell_of_heaps(study: FederationStudy, client: str, column: ShuffledColumn) -> None:
    """Tell the site alone, in its log, if values that the study declares continuous lie on heaps.

    The other sites are taken to hold values alike.
    """
    if study.spec.declared.continuous and has_heaps([(column, 1.0)], study.error_in_rank):
        log.warning(HEAPS, f"client {client}", 'Stop, and ask the organizer for a study with value_kind = "any".')


class GivenAnswer(NamedTuple):
    """One level of an answer, as the ledger holds it."""

    question: Question
    ones: int


def given_answers(ledger: Ledger, run: str, name: str = ONLY_CLIENT) -> dict[int, tuple[GivenAnswer, ...]]:
    """Every round of a run that this ledger has answered, one entry per level, in the order in which they were asked.

    A site has one name for itself in its ledger, one for each weight class (`name_in_ledger`). Other clients may have
    answered a run of the same name there: whoever invites a site chooses that name.
    """
    found: dict[int, tuple[GivenAnswer, ...]] = {}
    rows = ledger.execute(
        "SELECT round, question, ones FROM answers WHERE run = ? AND client = ? AND question IS NOT NULL"
        " ORDER BY sequence",
        (run, name),
    )
    for number, question, ones in rows:
        found[number] = (*found.get(number, ()), GivenAnswer(Question.from_json(question), ones))
    return found


def lost_through(ledger: Ledger, run: str, name: str = ONLY_CLIENT) -> int:
    """The last round whose answers may be missing because this ledger was restored; 0 where it never was."""
    own = (run, name)
    rows = ledger.execute("SELECT coalesce(max(lost_through), 0) FROM runs WHERE run = ? AND client = ?", own)
    return int(rows.fetchone()[0])


def link_of(position: Position) -> Link:
    """A position of the ledger, as it is sent."""
    return Link(position.sequence, position.head.hex())


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
        responder = Responder(
            study.run,
            column,
            agreement.mechanism,
            ledger,
            coins or OperatingSystemCoins(),
            scale=make_scale(study.scale, *study.range),
            missing=study.missing,
            rules=rules,
        )
        if not responder.asked():  # later, the time that it takes would depend on values
            tell_of_heaps(study, client, column)
        if reserve:
            responder.reserve(agreement.records)
        responder.require(max(0, agreement.records - responder.asked()))
    except AlreadyAnswered as error:
        # The ledger knows the site by one name for all studies; people know it by the study's.
        left = 0 if responder is None else responder.asked() + responder.available()
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
