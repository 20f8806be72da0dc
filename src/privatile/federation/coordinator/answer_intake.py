"""The coordinator's reception: who is known, what each has sent, who is in quarantine and why. No network here.

Answers and hellos come in as bytes from a client's own subject; what goes out is a verdict, an event in the journal, or
a welcome.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

from privatile.errors import ProtocolError, StoreError
from privatile.federation.coordinator.collection import MOST_OFFENCES, Collection, impossible_share
from privatile.federation.coordinator.journal import Journal
from privatile.federation.monitoring import Metrics
from privatile.federation.study.study import FederationStudy
from privatile.federation.wire import messages as wire
from privatile.federation.wire.messages import Hello, Link, Welcome
from privatile.server.coordinator import Coordinator

log = logging.getLogger("privatile.federation.coordinator")


class AnswerIntake:
    """Judges what clients send, and remembers."""

    def __init__(
        self,
        study: FederationStudy,
        coordinator: Coordinator,
        journal: Journal,
        metrics: Metrics,
        signers: Mapping[str, str],
    ) -> None:
        self._study = study
        self._coordinator = coordinator
        self._journal = journal
        self._metrics = metrics
        self.signers: dict[str, str] = dict(signers)
        self.links: dict[str, Link] = journal.links()
        """The last link seen of each client's ledger."""
        self.quarantined: dict[str, str] = journal.quarantined()
        self.asked: dict[str, int] = self._records_asked()
        """Records that all rounds so far asked of each client, whether it answered or not."""
        self._offences: Counter[str] = Counter()
        self._heard: dict[str, float] = {}

    def _records_asked(self) -> dict[str, int]:
        return {name: totals.asked for name, totals in self._coordinator.store.client_totals().items()}

    # -- answers -------------------------------------------------------------------------------------------------

    def take(self, collection: Collection | None, client: str, payload: bytes, *, from_mailbox: bool = False) -> None:
        """Judge what came in on a client's answer subject."""
        if collection is None:
            self._metrics.add("late", client=client)
            return
        if client in self.quarantined:
            self._metrics.add("ignored", client=client)
            return
        verdict = collection.offer(client, payload)
        if from_mailbox and verdict.outcome == "rejected":
            return  # left over from before; judged when it came
        self._metrics.add(verdict.outcome, client=client)
        if verdict.outcome in ("counted", "duplicate"):
            self._offences[client] = 0
            self._heard[client] = time.time()
        elif verdict.outcome == "rejected":
            self._offences[client] += 1
            self.event("rejected", verdict.reason, client, collection.round)
            if self._offences[client] >= MOST_OFFENCES:
                self.quarantine(client, f"{MOST_OFFENCES} answers in a row were unusable: {verdict.reason}")
        elif verdict.outcome == "forked":
            collection.answers.pop(client, None)
            self.quarantine(client, verdict.reason)

    def quarantine(self, client: str, reason: str) -> None:
        """Count nothing more of this client until people decide."""
        if client not in self._study.clients or client in self.quarantined:
            return
        self.quarantined[client] = reason
        self._journal.quarantine(client, reason)
        self._metrics.set("quarantined", len(self.quarantined))
        self.event("quarantined", reason, client, self._coordinator.done + 1)

    def readmit(self, client: str) -> None:
        """People have decided."""
        if client in self.quarantined:
            del self.quarantined[client]
            self._offences[client] = 0
            self._journal.readmit(client)
            self._metrics.set("quarantined", len(self.quarantined))
            self.event("readmitted", "people have decided that its answers count again", client)

    def look_for_lies(self) -> None:
        """Quarantine a client whose share of ones over all rounds is impossible under its truth rate."""
        for track in self._coordinator.tracks:
            state = track.state
            for client, ones, asked in zip(track.plan.clients, state.ones, state.asked, strict=True):
                if impossible_share(ones, asked, client.mechanism):
                    self.quarantine(
                        client.name,
                        "its share of ones over all rounds is impossible under its truth rate (5 standard errors)",
                    )

    # -- hellos --------------------------------------------------------------------------------------------------

    def greet(self, collection: Collection | None, client: str, payload: bytes, now: float) -> Welcome | None:
        """The reply to a hello; nothing to a stranger or to nonsense."""
        signer = self.signers.get(client)
        if signer is None:
            return None
        try:
            message = wire.read_message(payload, signer, wire.LARGEST_ANSWER)
            if not isinstance(message, Hello) or message.client != client:
                raise ProtocolError("the message is not a hello of this client.")
        except ProtocolError as error:
            self._metrics.add("rejected_hellos", client=client)
            seen = int(self._metrics.value("rejected_hellos", client=client))
            if seen & (seen - 1) == 0:  # the first, second, fourth, eighth …: a flood must not fill the disk
                log.warning("a hello was rejected", extra={"facts": {"client": client, "reason": str(error)}})
            return None
        self._metrics.set("heard", now, client=client)
        self._heard[client] = now
        known = self.links.get(client)
        if message.study == self._study.digest and known is not None and message.restored == known != message.ledger:
            self.links[client] = known = message.ledger
            self._journal.relink(client, message.ledger)
            self.event("restored", "its ledger was restored; unaccounted records are marked as spent", client)
        accepted = None if collection is None else collection.answers.get(client)
        return Welcome(
            self._study.digest,
            client,
            message.instance,
            known if accepted is None else accepted.ledger,
            self._coordinator.done + (accepted is not None),
            self.asked[client],
            self.quarantined.get(client, "")[:500],
        )

    # -- keys and events -----------------------------------------------------------------------------------------

    def refresh(self, fresh: Mapping[str, str]) -> None:
        """Keys that were admitted, rotated or revoked since the last look."""
        for name, signer in fresh.items():
            if self.signers.get(name) not in (None, signer):
                self.event("rotated", "its key was replaced", name)
            self.signers[name] = signer
        for name in set(self.signers) - set(fresh):
            del self.signers[name]
            self.event("revoked", "its key was revoked", name)

    def keep_heard(self) -> None:
        """Write down who was heard: now and then, since each writing waits for the disk."""
        heard, self._heard = self._heard, {}
        if heard:
            with suppress(StoreError):  # a disk too full for this is told of by what matters: a round, an event
                self._journal.hear(heard)

    def event(self, kind: str, text: str, client: str | None = None, number: int | None = None) -> None:
        """Write an event into the journal and the log."""
        self._journal.note(kind, text, client, number)
        facts: dict[str, object] = {"reason": text}
        if client is not None:
            facts["client"] = client
        if number is not None:
            facts["round"] = number
        log.log(logging.INFO if kind in ("finished", "resumed") else logging.WARNING, kind, extra={"facts": facts})
