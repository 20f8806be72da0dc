"""The site's desk: the responder and its ledger, as the client's service uses them.

In the ledger a site has one name for itself, whatever a study calls it: two studies that name it differently must not
make its records look new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from privatile.client.coins import Coins, OperatingSystemCoins
from privatile.client.ledger.keys import PersonKey
from privatile.client.ledger.ledger import Ledger, Position
from privatile.client.ledger.spending_rules import SpendingRules
from privatile.client.order.shuffle import shuffle
from privatile.client.responder import Responder
from privatile.client.sources.source import Source
from privatile.core.messages import Answer, Question
from privatile.core.scale import make_scale
from privatile.errors import InputError, SiteRefusal
from privatile.federation.setup.invitation import Invitation
from privatile.federation.site.limits import SiteLimits
from privatile.federation.wire.messages import Link


class SiteResponder:
    """Questions in, counts and the ledger's link out; everything durable first."""

    def __init__(self, client: str, run: str, responder: Responder, records: int) -> None:
        """`records` is what the site has agreed to: no more are asked, whatever the coordinator says."""
        self.client = client
        self._run = run
        self._records = records
        self._responder = responder
        self._ledger = responder.ledger
        self._through = self._ledger.position.sequence
        """Entries up to here are counted in `_answered`; a stored answer given again lies among them."""
        self._answered = self._total("ones IS NOT NULL")

    def _total(self, which: str = "TRUE") -> int:
        (total,) = self._ledger.execute(
            f"SELECT COALESCE(SUM(length), 0) FROM answers WHERE run = ? AND {which}", (self._run,)
        ).fetchone()
        return int(total)

    def promise(self) -> None:
        """Keep the records for this run, so that no other run promises or asks them; refused where too few are left."""
        self._responder.reserve(self._records)
        self._responder.require(max(0, self._records - self.spent()))

    def release(self) -> None:
        """The run is over: what was kept for it and not asked may be asked by others."""
        self._responder.release()

    def link(self) -> Link:
        """Where the ledger stands."""
        return _link(self._ledger.position)

    def confirm(self, seen: Link) -> None:
        """Raise LedgerError where `seen` is not part of this ledger's past."""
        self._ledger.confirm(Position(seen.sequence, bytes.fromhex(seen.hash)))

    def answer(self, questions: Sequence[Question]) -> tuple[tuple[Answer, ...], Link]:
        """One count a question, all in one transaction, and the link of the last."""
        with self._ledger.transaction():
            outcomes = [self._responder.outcome(question) for question in questions]
            new = sum(
                question.length
                for question, outcome in zip(questions, outcomes, strict=True)
                if outcome.stored.position.sequence > self._through
            )
            if self._answered + new > self._records:
                raise SiteRefusal(
                    f"with round {questions[0].round} more records would be asked than the {self._records} agreed to."
                )
        last = max((outcome.stored.position for outcome in outcomes), key=lambda position: position.sequence)
        self._answered += new
        self._through = max(self._through, last.sequence)
        return tuple(replace(outcome.answer, client=self.client) for outcome in outcomes), _link(last)

    def spent(self) -> int:
        """Records that this run has asked so far, or written off, by the ledger."""
        return self._total()

    def write_off(self, records: int, through_round: int) -> None:
        """After a restore: mark as spent what the coordinator may have been given and this ledger does not hold."""
        lost = min(max(0, records - self.spent()), self._responder.available())
        if lost:
            self._responder.mark_spent(lost, through_round)


def _link(position: Position) -> Link:
    return Link(position.sequence, position.head.hex())


def open_desk(
    invitation: Invitation,
    policy: SiteLimits,
    source: Source,
    ledger: Ledger,
    *,
    person_key: PersonKey | None = None,
    new_people: bool = False,
    coins: Coins | None = None,
) -> SiteResponder:
    """Read the source, check that the study can be answered from it, and sit down at the desk."""
    study = invitation.study
    terms = study.clients[invitation.client]
    columns = shuffle(source, ledger, missing=study.missing, person_key=person_key)
    if len(columns) != 1:
        raise InputError("a site answers for one client: give one file without a client column.")
    (column,) = columns.values()
    responder = Responder(
        study.run,
        column,
        terms.mechanism,
        ledger,
        coins or OperatingSystemCoins(),
        scale=make_scale(study.scale, *study.range),
        missing=study.missing,
        rules=SpendingRules(new_people=new_people, max_epsilon=policy.max_epsilon),
    )
    desk = SiteResponder(invitation.client, study.run, responder, terms.records)
    desk.promise()
    return desk
