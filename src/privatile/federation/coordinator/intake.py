"""Which answers count: the state of the round that is being asked, and of the clients that answer it.

No input, no output, no clock: payloads go in, verdicts come out, and nothing else writes this state. The service acts
on the verdicts: it writes the journal, counts, logs and publishes.

Every payload on a client's answer subject gets one verdict:

    counted      the client's counts for this round
    duplicate    the same counts again
    late         an answer to an earlier round, or between two rounds
    ahead        an answer to a later round: the coordinator's own file is an older copy, and nobody is blamed
    ignored      the client is in quarantine
    unsigned     without a valid signature of this client: anybody may have sent it, and nobody is blamed
    foreign      signed, but no answer, or of another study or run: anybody who recorded it may have sent it again
    rejected     signed, but malformed, to another question, or counts out of range: an offence
    stale        would be rejected, but was judged before: the same message again, or from the broker's storage
    forked       the client's ledger has gone back, or is one of two copies: proven by this answer alone
"""

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from privatile.core.messages import Position, Question
from privatile.errors import NotSigned, ProtocolError
from privatile.federation.wire import (
    MAX_ANSWER,
    Hello,
    LevelCount,
    Message,
    RoundAnswers,
    Signed,
    Welcome,
    read_message,
    unquoted,
)

TWO_HOLDERS = (
    "two processes used its key at the same time, and both have stopped. Find the second one (a copied folder, a "
    "service left running), remove it, then start one again"
)

KEPT_HELLOS = 32
"""Hellos of one client, by whichever process, whose nonces another process may still echo."""


class Holders:
    """The processes that say hello with one client's key: finds two that live at the same time.

    Each of them echoes a nonce of the other (`site.service`), which no recorded hello can do; and one of the two has
    echoed a nonce of this coordinator, so that an old exchange that is sent again proves nothing.
    """

    def __init__(self) -> None:
        self._hellos: deque[tuple[str, str]] = deque(maxlen=KEPT_HELLOS)
        """(nonce, process) of the last hellos."""
        self._echoes: deque[tuple[str, str]] = deque(maxlen=KEPT_HELLOS)
        """(process, another one whose nonce it has echoed)."""
        self._live: deque[str] = deque(maxlen=2)
        """Processes that have echoed a nonce of this coordinator."""

    def see(self, hello: Hello, *, fresh: bool) -> bool:
        """Take in a hello; true when it proves two live holders."""
        this = hello.instance
        if fresh and this not in self._live:
            self._live.append(this)
        other = next((process for nonce, process in self._hellos if nonce == hello.echo and process != this), None)
        self._hellos.append((hello.nonce, this))
        if other is None or (this, other) in self._echoes:
            return False
        self._echoes.append((this, other))
        return (other, this) in self._echoes and (this in self._live or other in self._live)


Outcome = Literal[
    "counted", "duplicate", "late", "ahead", "ignored", "unsigned", "foreign", "rejected", "stale", "forked"
]

MAX_OFFENCES = 3
"""Different rejected answers after which a client is quarantined, unless a new count comes in between."""

OTHER_VERSION = "a hello with its signature names another version of the study: send it the present invitation"

KEPT_NONCES = 16
"""Welcomes of one client that may still be echoed: hellos and welcomes may cross on their way."""


class Verdict(NamedTuple):
    """What became of a payload; the reasons quote nothing of it."""

    outcome: Outcome
    reason: str = ""
    quarantine: str = ""
    """Why this payload put its client into quarantine; empty where it did not."""
    round: int | None = None
    """The round that the payload is an answer to, as its client has signed it; None for anything else."""


class LateLink(NamedTuple):
    """How far a client's ledger has come by answers that were too late to count.

    A ledger from before them is an older copy, though every count is in it.
    """

    link: Position | None
    since: int
    """The round in which the ledger was restored, 0 for never: answers up to that one are of the lost ledger."""


class Greeting(NamedTuple):
    """The reply to a hello, and the link from which a restored ledger continues, where the hello declared one."""

    welcome: Welcome
    restored: Position | None
    fresh: bool
    """Whether the hello has signed the nonce of a welcome: then the client is there now."""
    other_version: bool = False
    """Whether the hello names another version of the study: the client may have an outdated invitation."""
    two_holders: bool = False
    """Whether it proves, and no earlier one did, that two processes with this client's key have heard each other."""


class AnswerIntake:
    """The round that is being asked and what is known of each client."""

    def __init__(
        self,
        study: str,
        signers: Mapping[str, str],
        links: Mapping[str, Position] | None = None,
        quarantined: Mapping[str, str] | None = None,
        asked: Mapping[str, int] | None = None,
        late_links: Mapping[str, LateLink] | None = None,
        *,
        open_ended: bool = False,
    ) -> None:
        """`study` is the study's digest; `asked` holds the records that earlier rounds asked of every client.

        `open_ended`: the questions say how many records may take part, and the answers how many did.
        """
        self._study = study
        self._open_ended = open_ended
        self._signers = dict(signers)
        self._links = dict(links or {})
        """The last link seen of each client's ledger, before this round."""
        self._late_links = dict(late_links or {})
        """Not among the links: a late answer proves no fork, as the broker decides in which order answers come."""
        self._quarantined = dict(quarantined or {})
        self._asked = Counter(asked or {})
        self._offences: Counter[str] = Counter()
        self._rejected: set[bytes] = set()
        """Digests of what was rejected, without the signatures: whoever has recorded a message may send it again."""
        self._questions: Mapping[str, Sequence[Question]] = {}
        self._answers: dict[str, Signed[RoundAnswers]] = {}
        self._nonces: dict[str, deque[str]] = {}
        """Nonces of the last welcomes of each client that no hello has echoed yet."""
        self._holders: dict[str, Holders] = {}

    # -- the state, to read --------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether a round is being asked."""
        return bool(self._questions)

    @property
    def questions(self) -> Mapping[str, Sequence[Question]]:
        """The questions of the open round, by client."""
        return self._questions

    @property
    def answers(self) -> Mapping[str, Signed[RoundAnswers]]:
        """What has been counted in the open round."""
        return self._answers

    @property
    def missing(self) -> list[str]:
        """Clients that have not answered the open round yet."""
        return [client for client in self._questions if client not in self._answers]

    @property
    def quarantined(self) -> Mapping[str, str]:
        """Clients whose answers do not count until the organizer decides, with the reasons."""
        return self._quarantined

    @property
    def late_links(self) -> Mapping[str, LateLink]:
        """How far clients' ledgers have come by answers that were too late to count."""
        return self._late_links

    @property
    def unspent(self) -> frozenset[str]:
        """Clients that have answered the open round, and whose ledgers show no coin between this and the last answer.

        The link is part of what a client signs, and a site answers no round before one that it has answered: no coin
        was drawn in the rounds that it missed in between, and none will be. Where the ledger was restored nothing is
        known, and they count as spent.
        """
        return frozenset(client for client in self._answers if self._adds_only_this_round(client))

    def _adds_only_this_round(self, client: str) -> bool:
        before, late = self._links.get(client), self._late_links.get(client)
        if before is None or (late is not None and late.since > 0):
            return False
        return self._answers[client].body.ledger.adds_only(len(self._questions[client]), before)

    # -- rounds --------------------------------------------------------------------------------------------------

    def open(self, questions: Mapping[str, Sequence[Question]]) -> None:
        """Begin a round."""
        self._questions, self._answers = questions, {}
        for client, asked in questions.items():
            self._asked[client] += sum(question.length for question in asked)

    def counts(self) -> list[list[int | None]]:
        """Counts per level and client, in the questions' order; None where a client has not answered."""
        return [[None if count is None else count.ones for count in level] for level in self._by_level()]

    def lengths(self) -> list[list[int]]:
        """How many records took part, per level and client; 0 where a client has not answered."""
        return [[0 if count is None else count.length for count in level] for level in self._by_level()]

    def _by_level(self) -> Iterator[list[LevelCount | None]]:
        answers = [self._answers.get(client) for client in self._questions]
        for place in range(len(next(iter(self._questions.values()), ()))):
            yield [None if answer is None else answer.body.counts[place] for answer in answers]

    def close(self, asked: Mapping[str, int] | None = None) -> None:
        """End the round: its counts are in the run's file. `asked` is by client what all rounds have asked so far."""
        self._asked = self._asked if asked is None else Counter(asked)
        self._links.update((client, one.body.ledger) for client, one in self._answers.items())
        self._questions, self._answers = {}, {}

    # -- answers -------------------------------------------------------------------------------------------------

    def offer(
        self,
        client: str,
        payload: bytes,
        *,
        from_storage: bool = False,
        read: Callable[[bytes, str, int], Message] = read_message,
    ) -> Verdict:
        """Judge a payload from `client`'s answer subject; count it if it is an answer to this round.

        `read` checks a payload's signature: an extension reads it in another way.
        """
        signer = self._signers.get(client)
        if signer is None:
            return Verdict("unsigned", "the client has no key")
        message: Message | ProtocolError
        try:
            message = read(payload, signer, MAX_ANSWER)
        except NotSigned as error:
            return Verdict("unsigned", str(error))
        except ProtocolError as error:
            message = error
        verdict = self._judge(client, message, signer, payload.rpartition(b"\n")[2].decode())
        if isinstance(message, RoundAnswers) and message.study == self._study:
            verdict = verdict._replace(round=message.round)
            if verdict.outcome == "late" and message.client == client and client not in self._quarantined:
                self._see_late(client, message)
        reason = ""
        if verdict.outcome == "counted":  # a repeated answer clears nothing: it can be repeated without end
            self._offences[client] = 0
        elif verdict.outcome == "rejected" and (from_storage or self._rejected_before(client, payload)):
            return Verdict("stale", verdict.reason)
        elif verdict.outcome == "rejected":
            self._offences[client] += 1
            if self._offences[client] >= MAX_OFFENCES:
                reason = f"{MAX_OFFENCES} answers were unusable: {verdict.reason}"
        elif verdict.outcome == "forked":
            self._answers.pop(client, None)
            reason = verdict.reason
        return verdict._replace(quarantine=reason if reason and self.quarantine(client, reason) else "")

    def _rejected_before(self, client: str, payload: bytes) -> bool:
        """Whether this very message was rejected before; it is from now on."""
        message = hashlib.sha256(client.encode() + b"\n" + payload.rpartition(b"\n")[0]).digest()
        known = message in self._rejected
        self._rejected.add(message)
        return known

    def _judge(self, client: str, message: Message | ProtocolError, signer: str, signature: str) -> Verdict:
        if not self.is_open:
            return Verdict("late")
        if client in self._quarantined:
            return Verdict("ignored")
        asked = self._questions.get(client)
        if asked is None:
            return Verdict("rejected", "this client is not part of the round")
        if isinstance(message, ProtocolError):
            return Verdict("rejected", str(message))
        if not isinstance(message, RoundAnswers) or message.client != client:
            return Verdict("foreign", "the message is not an answer of this client")
        if message.study != self._study or message.run != asked[0].run:
            return Verdict("foreign", "the answer belongs to another study or run")
        if message.round < asked[0].round:
            return Verdict("late")
        if message.round > asked[0].round:
            return Verdict(
                "ahead", "the answer is to a later round: the run's file is an older copy, or this is untrue"
            )
        try:
            message.answers_to(asked, open_ended=self._open_ended)
        except ProtocolError as error:
            return Verdict("rejected", unquoted(error))
        return self._enter(client, Signed(message, signer, signature))

    def _enter(self, client: str, answer: Signed[RoundAnswers]) -> Verdict:
        before, ledger = self._answers.get(client), answer.body.ledger
        if before is not None:
            if (before.body.counts, before.body.ledger) == (answer.body.counts, ledger):
                return Verdict("duplicate")
            return Verdict("forked", "two different answers to one round: two copies of its ledger are in use")
        seen = self._links.get(client)
        if seen is not None and ledger.sequence <= seen.sequence:
            return Verdict(
                "forked",
                f"its ledger stands at entry {ledger.sequence}, but entry {seen.sequence} was seen before: "
                "it was restored from a backup (the site then says so: `privatile join … --restored`), or is one of "
                "two copies",
            )
        self._answers[client] = answer
        return Verdict("counted")

    def _see_late(self, client: str, message: RoundAnswers) -> None:
        before = self._late_links.get(client, LateLink(None, 0))
        if message.round > before.since and _further(message.ledger, before.link) == message.ledger:
            self._late_links[client] = LateLink(message.ledger, before.since)

    def _shown_link(self, client: str) -> Position | None:
        """The furthest link seen of a client's ledger, whether its answer counted or not."""
        accepted, late = self._answers.get(client), self._late_links.get(client)
        seen = self._links.get(client) if accepted is None else accepted.body.ledger
        return _further(None if late is None else late.link, seen)

    def relink(self, client: str, link: Position, number: int) -> None:
        """Go on from this link: the client has declared in this round that its ledger was restored."""
        self._links[client] = link
        self._late_links[client] = LateLink(None, number)

    # -- quarantine and keys -------------------------------------------------------------------------------------

    def quarantine(self, client: str, reason: str) -> bool:
        """Count nothing more of a client; False where it is no client of the study, or in quarantine already."""
        if client not in self._asked or client in self._quarantined:
            return False
        self._quarantined[client] = reason
        return True

    def readmit(self, client: str) -> bool:
        """Count a client's answers again; False where it was not in quarantine."""
        if client not in self._quarantined:
            return False
        del self._quarantined[client]
        self._offences[client] = 0
        return True

    def replace_signers(self, signers: Mapping[str, str]) -> tuple[list[str], list[str]]:
        """Use these keys from now on; gives the clients whose keys were replaced, and those whose keys are gone."""
        before, self._signers = self._signers, dict(signers)
        replaced = [client for client in signers if before.get(client) not in (None, signers[client])]
        return replaced, [client for client in before if client not in signers]

    # -- hellos --------------------------------------------------------------------------------------------------

    def greet(self, client: str, payload: bytes, rounds_done: int, nonce: str) -> Greeting | None:
        """The reply to a hello; None for an unknown client; raises ProtocolError for a message that is no hello.

        `nonce` is new and random. A restored ledger is believed only from a hello that echoes the nonce of a welcome:
        one that was recorded and is sent again changes nothing.
        """
        signer = self._signers.get(client)
        if signer is None:
            return None
        message = read_message(payload, signer, MAX_ANSWER)
        if not isinstance(message, Hello) or message.client != client:
            raise ProtocolError("the message is not a hello of this client.")
        nonces = self._nonces.setdefault(client, deque(maxlen=KEPT_NONCES))
        fresh = message.study == self._study and message.echo in nonces
        accepted = self._answers.get(client)
        link, restored = self._shown_link(client), None
        # Not while an answer of the lost ledger stands in the open round: its link would come back with it.
        if fresh and accepted is None and link is not None and message.restored == link != message.ledger:
            link = restored = message.ledger
        welcome = Welcome(
            self._study,
            client,
            message.instance,
            link,
            rounds_done + (accepted is not None),
            self._asked[client],
            self._quarantined.get(client, "")[:500],
            nonce,
            message.nonce,
        )
        if restored is not None:  # only now: an error above must leave the links as the journal has them
            self.relink(client, restored, rounds_done + 1)
        if fresh and message.echo is not None:
            nonces.remove(message.echo)
        nonces.append(nonce)
        two = self._holders.setdefault(client, Holders()).see(message, fresh=fresh)
        return Greeting(welcome, restored, fresh, message.study != self._study, two)


def _further(one: Position | None, other: Position | None) -> Position | None:
    """The link that lies further along in one ledger; `other` where they are equally far.

    >>> _further(Position(2), Position(3)).sequence, _further(None, None)
    (3, None)
    """
    if one is None or other is None:
        return one or other
    return one if one.sequence > other.sequence else other
