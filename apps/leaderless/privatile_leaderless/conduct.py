"""What a peer does at the place in the log where it stands: propose, answer, vote to close, sign the end.

The only clock of the protocol is here. Nothing that follows from it is trusted by others: a proposal counts if it is
the study's next question, and a round closes early only with f + 1 votes.

Order of durability for everything that signs a chain value: (1) its slot, which is never given to another value,
(2) of an answer, the ledger's transaction, with coins of the operating system, (3) published until it is seen. Ed25519
is deterministic and the ledger returns the stored count, so a second attempt is the same bytes.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from privatile.errors import Equivocation, ProtocolError, SiteRefusal
from privatile.federation.site.limits import SiteLimits, check_questions
from privatile.federation.site.responder import SiteResponder
from privatile.federation.site.service import AT_ONCE
from privatile.records.keys import KeyPair
from privatile_leaderless.entries import AnyEntry, LevelAsk, read_entry
from privatile_leaderless.log import LogPort
from privatile_leaderless.notes import PeerNotes
from privatile_leaderless.peer_file import LogEntry, PeerLog
from privatile_leaderless.replica import Replica


class VoteBox:
    """A vote to abort that was not yet seen in the log. The file survives a crash of either side."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @property
    def pending(self) -> bool:
        """Whether a vote is still to be cast."""
        return self._file.exists()

    def put(self) -> None:
        """Have the running peer vote, or the next one that runs."""
        self._file.touch(mode=0o600)

    def done(self) -> None:
        """The vote is in the log."""
        self._file.unlink(missing_ok=True)


log = logging.getLogger("privatile.leaderless")

T = TypeVar("T")

STEP_IN, MAX_STEP_IN = 0.3, 30.0
"""Seconds until the second peer in turn proposes a round's question, unless entries take long on the way; each further
one waits twice as long, up to the second number. The first in turn proposes at once."""

USUAL_DELAYS = 5.0
"""How many times longer than an entry usually takes the second peer in turn waits at least."""

ANSWER_AGAIN = 5.0
"""Seconds until an answer that is still missing is published again."""


def proposal_delay(place: int, number: int, peers: int, usual: float = 0.0) -> float:
    """How long the peer at this place of the study waits before it proposes the question of a round.

    `usual` is how long an entry usually takes until it is read back.

    >>> [proposal_delay(place, 4, 3) for place in range(3)], proposal_delay(2, 4, 3, usual=0.2)
    ([0.6, 0.0, 0.3], 1.0)
    """
    turn = (place - number) % peers
    step = max(STEP_IN, USUAL_DELAYS * usual)
    return 0.0 if turn == 0 else min(step * 2.0 ** (turn - 1), MAX_STEP_IN)


@dataclass(eq=False, repr=False)
class PeerProtocol:
    """One peer's part in the protocol, on one connection after the other."""

    _client: str
    _key: KeyPair
    _replica: Replica
    _log: PeerLog
    _responder: SiteResponder
    _limits: SiteLimits
    _notes: PeerNotes
    _votes: VoteBox
    _claim: Callable[[tuple[LevelAsk, ...]], bool]
    """Takes the slot of the chain value here, durably, with an answer to this question or none."""
    _restored: bool = False
    """The site says that its ledger was restored from a backup."""

    def __post_init__(self) -> None:
        self._place = list(self._replica.study.clients).index(self._client)
        self._sent: set[tuple[object, ...]] = set()
        """What was published on this connection: it publishes again by itself."""
        self._slot_since: tuple[int, float] = (-1, 0.0)
        self._asked_since: tuple[int, float, float] = (-1, 0.0, 0.0)
        self._forgotten = 1 if self._log.restored else 0
        """The highest slot in which it has signed what it does not know, as far as was seen: its file is an older copy.
        0: it is not."""
        self._relinked_in = 0
        """The slot in which a restored ledger was declared: its answers count from the next one on."""
        self._published: set[bytes] = set()
        """Own entries of this process that were not yet seen."""
        self._answers_at: dict[int, float] = {}
        """When to answer again, by slot."""
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="responder")

    def connected(self) -> None:
        """On a new connection everything that may not have arrived is published again."""
        self._sent.clear()
        self._answers_at.clear()

    def close(self) -> None:
        """Finish the answer in hand."""
        self._worker.shutdown(wait=True)

    @property
    def opened(self) -> float:
        """When this peer saw the open question, in seconds since 1970."""
        return self._asked_since[2] or time.time()

    async def act(self, port: LogPort, now: float) -> float:
        """Do what is to be done here; gives the time of the loop at which there may be something to do again."""
        replica = self._replica
        if self._forgotten:
            self._log.forfeit(max(replica.slot, self._forgotten))
            self._forgotten = 0
            text = (
                "this peer's file is an older copy: it signs nothing in the open round, nor in a later one in which "
                "its own signature was seen, and goes on with the next one"
            )
            self._notes.event("restored file", text, self._client, replica.closed + 1)
        await self._cast_vote(port)
        if replica.recovering:
            await self._recover(port)
            return now + 1.0
        if replica.ended:
            what = ("final", replica.head)
            if what not in self._sent and self._may_sign():
                await self._once(port, what, lambda: replica.final(self._client))
            return now + 1.0
        if replica.round is None:
            return now + 1.0
        if self._slot_since[0] != replica.slot:
            self._slot_since = (replica.slot, now)
        if replica.asked is None:
            return await self._propose(port, now)
        if self._asked_since[0] != replica.slot:
            self._asked_since = (replica.slot, now, time.time())
        if self._client in replica.missing and now >= self._answers_at.get(replica.slot, 0.0):
            # Read in the log and still missing: it came at a place where it did not count.
            self._answers_at = {replica.slot: now + ANSWER_AGAIN}
            await self._answer(port)
        deadline = self._asked_since[1] + replica.study.deadline
        if now < deadline:
            return min(deadline, now + 1.0)
        if self._client not in replica.close_votes:
            vote = ("close", replica.epoch, replica.head)
            await self._once(port, vote, lambda: replica.close_vote(self._client))
        return now + 1.0

    async def _once(self, port: LogPort, what: tuple[object, ...], make: Callable[[], AnyEntry]) -> None:
        if what not in self._sent:
            self._sent.add(what)
            await self._publish(port, make())

    # -- rounds ------------------------------------------------------------------------------------------------------

    async def _propose(self, port: LogPort, now: float) -> float:
        replica = self._replica
        delay = proposal_delay(self._place, replica.closed + 1, len(replica.study.clients), port.delay)
        at = self._slot_since[1] + delay
        if now >= at:
            what = ("proposal", replica.epoch, replica.head)
            await self._once(port, what, lambda: replica.proposal(self._client))
            return now + 1.0
        return at

    async def _answer(self, port: LogPort) -> None:
        replica, study = self._replica, self._replica.study
        asked = replica.asked
        if asked is None or not await self._compare_ledger(port):
            return
        questions = asked.questions(self._client)
        try:
            check_questions(study, questions)
            for question in questions:
                self._limits.check_length(question)
            if not self._may_sign(replica.asks):
                return
            if sum(question.length for question in questions) <= AT_ONCE:
                answer = self._responder.message(study.digest, questions)
            else:
                answer = await self._in_worker(lambda: self._responder.message(study.digest, questions))
        except (Equivocation, SiteRefusal) as error:
            self._notes.event("refused", f"a question: {error}", self._client, asked.round)
            return
        if answer is not None:  # it is, but in an open study
            await self._publish(port, replica.answer(answer))

    def _may_sign(self, asks: tuple[LevelAsk, ...] = ()) -> bool:
        """Claim the slot for the chain value here, and the question; durable before anything is signed."""
        replica = self._replica
        if self._claim(asks):
            return True
        # A round that waits for this peer alone would wait for ever, where the file was put back from a backup.
        if replica.paused and replica.vouched(self._client) and self._log.regain(replica.slot) and self._claim(asks):
            return True
        self._notes.event(
            "not signed",
            "this peer has signed another history or another question in this round, or may have, where its file is an "
            "older copy: it signs the next one",
            self._client,
            replica.closed + 1,
        )
        return False

    async def _in_worker(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    # -- a ledger that was put back ----------------------------------------------------------------------------------

    async def _compare_ledger(self, port: LogPort) -> bool:
        """Compare the ledger with its last answer that was counted; whether it may answer this round.

        In every round: another process with a copy of key and ledger may have given that answer, and the people behind
        it are not asked again. Raises LedgerError where the ledger lacks what the log shows, unless the site has said
        that it was restored.
        """
        replica, seen = self._replica, self._replica.link(self._client)
        if self._relinked_in == replica.slot:
            return False
        asked = replica.records_asked(self._client)
        if self._responder.check_past(seen, asked, replica.closed, restored=self._restored) and seen is not None:
            self._notes.event(
                "restored", "the ledger was restored; unaccounted records are marked as spent", self._client
            )
            await self._publish(port, replica.restored(self._client, seen, self._responder.link()))
            self._relinked_in = replica.slot
            return False
        self._restored = False  # what is lost from now on was not said
        return True

    # -- decisions and recovery --------------------------------------------------------------------------------------

    async def _cast_vote(self, port: LogPort) -> None:
        replica = self._replica
        if not (self._votes.pending or replica.aborts_again(self._client)):
            return
        if replica.has_voted(self._client):
            self._votes.done()
        else:  # one that comes after its round does not count: there is another one in the next
            await self._once(port, ("vote", replica.epoch, replica.head), lambda: replica.vote(self._client))

    async def _recover(self, port: LogPort) -> None:
        replica = self._replica
        if self._log.slots.is_doubtful and not replica.is_furthest(self._client):
            text = (
                "this peer's file is an older copy: it does not say where it stands before the others have. If the log "
                "begins without it and it stays behind: privatile peer catch-up DIR --from RUN.DB of another one"
            )
            self._notes.event("restored file", text, self._client, replica.closed + 1)
            return
        # Again where it has learned meanwhile that its file is an older copy.
        slots = self._log.slots
        stand = replica.stand(self._client, slots, self._log.answered(slots.highest))
        await self._once(port, ("stand", replica.epoch, slots.is_doubtful), lambda: stand)
        what = ("checkpoint", replica.epoch, replica.head)
        if replica.begins_at is not None and what not in self._sent and self._claim(()):
            self._sent.add(what)
            await self._publish(port, replica.checkpoint(self._client))

    def seen(self, entry: LogEntry) -> None:
        """An entry was read in the log: an own one that is not known here warns."""
        if entry.sender != self._client:
            return
        if entry.payload in self._published:
            self._published.discard(entry.payload)
            return
        with contextlib.suppress(ProtocolError):
            unknown = self._log.unknown_slot(read_entry(entry.payload, self._replica.keys[self._client].signer))
            self._forgotten = max(self._forgotten, unknown)

    async def _publish(self, port: LogPort, entry: AnyEntry) -> None:
        payload = entry.pack(self._key)
        self._published.add(payload)
        self._notes.metrics.add("published")
        await port.publish(payload)
