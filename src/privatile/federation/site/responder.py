"""The responder and its ledger, as the client's service uses them.

In the ledger a site has one name for itself, whatever a study calls it: two studies that name it differently must not
make its records look new.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from privatile.client.coins import Coins, OperatingSystemCoins
from privatile.client.ledger.keys import PersonKey
from privatile.client.ledger.ledger import Ledger, Position
from privatile.client.ledger.spending_rules import SpendingRules
from privatile.client.order.column import HEAPS, ShuffledColumn, has_heaps
from privatile.client.order.shuffle import shuffle
from privatile.client.responder import Responder
from privatile.client.sources.source import ONLY_CLIENT, Source
from privatile.core.messages import Answer, Question
from privatile.core.scale import make_scale
from privatile.errors import AlreadyAnswered, InputError, LedgerError, SiteRefusal
from privatile.federation.study.study import FederationStudy
from privatile.federation.study.weight_classes import agreed_class, name_in_ledger
from privatile.federation.wire.messages import AnswerMessage, Link, question_digest

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
        log.warning(HEAPS, f"client {client}", 'Stop, and ask the organizer for a study with values = "any".')


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
