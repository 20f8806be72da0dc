"""The privacy audit: the real client process, planted data, and what its answers and its traces give away.

Four questions, each of which a broken client fails:

    ratio   Is the likelihood ratio of a report e^ε, no more and no less, within exact confidence bounds?
    fresh   Do two runs of the same client over the same data and questions differ as fresh coins must?
    once    Does a record answer once, also when it is asked again, asked otherwise, or after kill -9?
    quiet   Does no planted value turn up in anything that the process wrote or sent?

An audit measures what it measures: it cannot show that a client has no other trigger for misbehaviour.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Question
from privatile.errors import PrivatileError, ProtocolError
from privatile.federation.audit.binomial import clopper_pearson, reports_needed
from privatile.federation.setup.broker import EmbeddedBroker, free_port
from privatile.federation.setup.broker_configuration import BrokerSettings
from privatile.federation.setup.directory import Directory, admit, initialize, new_identity
from privatile.federation.setup.files import replace_file
from privatile.federation.setup.invitation import read_enrolment, read_invitation
from privatile.federation.site.folder import enroll
from privatile.federation.site.limits import limits_toml
from privatile.federation.study.study import ClientAgreement, FederationStudy
from privatile.federation.wire import messages as wire
from privatile.federation.wire import subjects
from privatile.federation.wire.connection import Connection, Msg, connected
from privatile.federation.wire.keys import KeyPair
from privatile.federation.wire.messages import AnswerMessage, AskMessage, Hello, Welcome

LOW, HIGH = 31415.9265, 73190.4242
"""The two planted values; half of the records each. Their digits occur nowhere else."""

BELOW, BETWEEN, ABOVE = 1000.0, 50000.0, 99000.0
"""Thresholds: below both values (the truth is 1), between them, above both (the truth is 0)."""

TRACES = ("31415.9", "31415,9", "3.14159265e", "73190.4", "73190,4", "7.31904", "314159265", "731904242")

ALPHA = 0.0005
"""Error of each bound: a sound client fails an audit once in a thousand times."""

POWER = 0.999
PROBES, PROBE_LENGTH = 40, 500
"""Rounds compared between two runs. Two fair counts of 500 agree with probability 1/35, forty in a row never."""


@dataclass(frozen=True)
class Finding:
    """One question's answer."""

    name: str
    passed: bool
    text: str


@dataclass(frozen=True)
class Audit:
    """What an audit found."""

    epsilon: float
    reports: int
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether every question was answered well."""
        return all(finding.passed for finding in self.findings)

    def to_text(self) -> str:
        """One line a question."""
        lines = [f"{'ok' if one.passed else 'FAILS':5}  {one.name:6} {one.text}" for one in self.findings]
        verdict = "passes" if self.passed else "does not pass"
        return "\n".join([*lines, f"The client {verdict}: epsilon {self.epsilon:g}, {self.reports:,} reports."])


def own_client() -> list[str]:
    """The command of the shipped client."""
    return [sys.executable, "-m", "privatile", "join"]


def audit(
    epsilon: float,
    command: Sequence[str] | None = None,
    *,
    off: float = 0.02,
    say: Callable[[str], None] = lambda line: None,
) -> Audit:
    """Audit a client program that takes the arguments of `privatile join`."""
    mechanism = RandomizedResponse.from_epsilon(epsilon)
    side = reports_needed(mechanism.truth_rate, off, ALPHA, POWER)
    with tempfile.TemporaryDirectory(prefix="privatile-audit-") as name:
        return asyncio.run(_Auditor(Path(name), epsilon, side, list(command or own_client()), say).run())


class _Auditor:
    def __init__(self, folder: Path, epsilon: float, side: int, command: list[str], say: Callable[[str], None]) -> None:
        self.folder = folder
        self.mechanism = RandomizedResponse.from_epsilon(epsilon)
        self.epsilon = epsilon
        self.side = side
        self.command = command
        self.say = say
        self.sent: list[bytes] = []
        self.reports = 0

    async def run(self) -> Audit:
        """Two sessions of the client: one for the ratio, one for everything that needs a restart."""
        findings = []
        probes = PROBES * PROBE_LENGTH
        size = 50_000
        rounds = -(-self.side // size)
        length = -(-self.side // rounds)
        self.say(f"ratio: {2 * rounds * length:,} reports")
        async with self._session("first", probes + 2 * rounds * length) as session:
            first = await session.counts(BELOW, PROBE_LENGTH, PROBES)
            above = await session.counts(BELOW, length, rounds)
            below = await session.counts(ABOVE, length, rounds)
        findings.append(self._ratio(above, below, rounds * length))
        self.say("fresh, once: a second session, with a kill")
        rest = 5_000
        async with self._session("second", probes + rest) as session:
            second = await session.counts(BELOW, PROBE_LENGTH, PROBES)
            findings.append(self._fresh(first, second))
            once = await self._once(session, rest, probes + rest)
        findings.append(await self._once_for_life(probes + rest) if once.passed else once)
        findings.append(self._quiet())
        return Audit(self.epsilon, self.reports, tuple(findings))

    # -- the four questions --------------------------------------------------------------------------------------

    def _ratio(self, above: list[int], below: list[int], trials: int) -> Finding:
        if not above or not below:
            return Finding("ratio", False, "the client did not answer")
        ones, noes = sum(above), sum(below)
        # P(1 | truth 1) and P(1 | truth 0); a report of 0 has the other ratio.
        low1, high1 = clopper_pearson(ones, trials, ALPHA / 2)
        low0, high0 = clopper_pearson(noes, trials, ALPHA / 2)
        bounds = ((low1 / high0, high1 / low0), ((1 - high0) / (1 - low1), (1 - low0) / (1 - high1)))
        limit = (1 + self.mechanism.truth_rate) / (1 - self.mechanism.truth_rate)
        text = ", ".join(f"{low:.4f} to {high:.4f}" for low, high in bounds)
        good = all(low <= limit <= high for low, high in bounds)
        return Finding("ratio", good, f"e^epsilon = {limit:.4f}; measured, for a report of 1 and of 0: {text}")

    def _fresh(self, first: list[int], second: list[int]) -> Finding:
        if not first or not second:
            return Finding("fresh", False, "the client did not answer")
        same = sum(one == two for one, two in zip(first, second, strict=True))
        # Agreement by chance: about 1/(2√(π·n·p·q)) a probe. More than half agree only when coins repeat.
        return Finding("fresh", same <= PROBES // 2, f"{same} of {PROBES} counts agree between two runs")

    async def _once(self, session: _Session, rest: int, total: int) -> Finding:
        half = rest // 2
        before = await session.count(BETWEEN, half)
        again = await session.repeat()
        if before is None or again != before:
            return Finding("once", False, f"the same question got {before}, then {again}: records answered again")
        if await session.repeat(query=BETWEEN + 1.0, patience=1.5) is not None:
            return Finding("once", False, "the same round with another question was answered")
        await session.restart()
        kept = await session.repeat()
        if kept != before:
            return Finding("once", False, f"after kill -9 the same question got {kept}, before {before}")
        after = await session.count(BETWEEN, rest - half)
        if after is None:
            return Finding("once", False, "the client did not go on after kill -9")
        more = await session.count(BETWEEN, 1, patience=3.0)
        if more is not None:
            return Finding("once", False, f"all {total:,} records had answered, and yet one more did")
        # Half of the records are above the threshold; those in the first rounds were drawn at random.
        return Finding("once", True, f"{total:,} records gave {total:,} reports, across a kill; not one more")

    async def _once_for_life(self, total: int) -> Finding:
        """A second study over the same records, at the same site: whoever counts answers only may still let them in."""
        self.say("once: another study asks the same records")
        async with self._session("third", total, site=self.folder / "second" / "site") as session:
            if await session.count(BETWEEN, total // 2) is not None:
                return Finding(
                    "once", False, f"all {total:,} records had answered, and yet they answered another study"
                )
        text = f"{total:,} records gave {total:,} reports, across a kill; not one more, nor to another study"
        return Finding("once", True, text)

    def _quiet(self) -> Finding:
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and path.name != "data.csv":
                content = path.read_bytes()
                if any(trace.encode() in content for trace in TRACES):
                    return Finding("quiet", False, f"a planted value stands in {path.name}")
        if any(trace.encode() in payload for payload in self.sent for trace in TRACES):
            return Finding("quiet", False, "a planted value crossed the wire")
        files = sum(path.is_file() for path in self.folder.rglob("*"))
        return Finding("quiet", True, f"no planted value in {files} files and {len(self.sent)} messages")

    # -- a session of the client under test ----------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _session(self, name: str, records: int, site: Path | None = None) -> AsyncIterator[_Session]:
        """A study of its own, at a new site or at one that is there, with its file and its ledger."""
        folder = self.folder / name
        terms = {"audited": ClientAgreement(self.epsilon, 1.0, records)}
        study = FederationStudy(
            new_identity(), "A privacy audit", "the auditor", "planted", (0.5,), (0.0, 100_000.0), 2000, clients=terms,
            allow_weak=True,
        )  # fmt: skip
        directory = initialize(folder / "auditor", study, BrokerSettings(port=free_port()))
        home = enroll(read_invitation(directory.invitation_file("audited")), site or folder / "site")
        replace_file(home.policy_file, limits_toml(self.epsilon, directory.key().public.fingerprint))
        enrolment = read_enrolment(home.enrolment_file)
        admit(directory, enrolment, enrolment.keys.fingerprint)
        if site is None:
            with (home.path / "data.csv").open("w", encoding="ascii") as file:
                file.write("planted\n" + f"{LOW}\n{HIGH}\n" * (records // 2) + f"{LOW}\n" * (records % 2))
        broker = EmbeddedBroker(directory.broker_files, directory.settings())
        await asyncio.to_thread(broker.start)
        try:
            authority = directory.authority.read_text(encoding="ascii")
            async with connected("coordinator", [directory.settings().url], directory.key(), authority) as connection:
                session = _Session(self, directory, home.path, connection, enrolment.keys.signer)
                await session.open()
                try:
                    yield session
                finally:
                    session.end()
        finally:
            await asyncio.to_thread(broker.stop)
            shutil.rmtree(directory.broker_files.folder / "jetstream", ignore_errors=True)


class _Session:
    """The auditor as coordinator of one client process."""

    def __init__(
        self, auditor: _Auditor, directory: Directory, site: Path, connection: Connection, signer: str
    ) -> None:
        self._auditor = auditor
        self._directory = directory
        self._study = directory.study()
        self._key: KeyPair = directory.key()
        self._site = site
        self._connection = connection
        self._signer = signer
        self._round = 0
        self._last: Question | None = None
        self._answer: asyncio.Future[int] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    async def open(self) -> None:
        """Listen, then start the client under test."""
        identity, nc = self._study.identity, self._connection.nc
        js = nc.jetstream()
        for stream, subject in (
            (subjects.ask_stream(identity), subjects.ask_subject(identity)),
            (subjects.answer_stream(identity), subjects.answer_subject(identity, "*")),
        ):
            await js.add_stream(name=stream, subjects=[subject], allow_direct=True)
        await nc.subscribe(subjects.hello_subject(identity, "audited"), cb=self._on_hello)
        await nc.subscribe(subjects.answer_subject(identity, "audited"), cb=self._on_answer)
        self._start()

    def _start(self) -> None:
        arguments = [str(self._directory.invitation_file("audited")), "--site", str(self._site), "--yes", "--verbose"]
        arguments += ["--source", str(self._site / "data.csv"), "--value", "planted"]
        with (self._site / "output.log").open("ab") as file:
            self._process = subprocess.Popen(
                [*self._auditor.command, *arguments], stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=_clean()
            )

    def end(self) -> None:
        """Stop the client under test."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
        if self._process is not None:
            self._process.wait()

    async def restart(self) -> None:
        """kill -9, and start again."""
        await asyncio.to_thread(self.end)
        self._start()

    async def _on_hello(self, message: Msg) -> None:
        self._auditor.sent.append(message.data)
        with contextlib.suppress(ProtocolError):
            hello = wire.read_message(message.data, self._signer, wire.LARGEST_ANSWER)
            if isinstance(hello, Hello):
                welcome = Welcome(self._study.digest, "audited", hello.instance, None, 0, 0, "")
                subject = subjects.welcome_subject(self._study.identity, "audited")
                await self._connection.nc.publish(subject, welcome.pack(self._key))

    async def _on_answer(self, message: Msg) -> None:
        self._auditor.sent.append(message.data)
        with contextlib.suppress(PrivatileError):
            answer = wire.read_message(message.data, self._signer, wire.LARGEST_ANSWER)
            waiting, asked = self._answer, self._last
            if isinstance(answer, AnswerMessage) and waiting is not None and asked is not None and not waiting.done():
                waiting.set_result(answer.answers[0].check(asked).ones)

    async def count(self, query: float, length: int, patience: float = 60.0) -> int | None:
        """Ask a new round; None where no answer comes."""
        self._round += 1
        self._last = Question(self._study.run, self._round, 0.5, query, length)
        count = await self._ask(self._last, patience)
        self._auditor.reports += length if count is not None else 0
        return count

    async def counts(self, query: float, length: int, rounds: int) -> list[int]:
        """Ask several rounds; nothing where one of them gets no answer."""
        found = []
        for _ in range(rounds):
            count = await self.count(query, length)
            if count is None:
                return []
            found.append(count)
        return found

    async def repeat(self, query: float | None = None, patience: float = 60.0) -> int | None:
        """Ask the last round again, as it was or with another threshold."""
        if self._last is None:
            return None
        asked = self._last
        changed = asked if query is None else Question(asked.run, asked.round, asked.level, query, asked.length)
        return await self._ask(changed, patience)

    async def _ask(self, question: Question, patience: float) -> int | None:
        self._answer = asyncio.get_running_loop().create_future()
        message = AskMessage.of(self._study.digest, {"audited": (question,)})
        await self._connection.nc.request(
            subjects.ask_subject(self._study.identity), message.pack(self._key), timeout=10
        )
        until = asyncio.get_running_loop().time() + patience
        try:
            # A client that has ended will not answer: no need to wait for it.
            while asyncio.get_running_loop().time() < until and not self._has_ended():
                await asyncio.wait([self._answer], timeout=0.25)
                if self._answer.done():
                    return self._answer.result()
            return None
        finally:
            self._answer = None

    def _has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None


def _clean() -> dict[str, str]:
    """The environment of the client under test: only what a process needs to start."""
    return {key: value for key, value in os.environ.items() if key in ("PATH", "PYTHONPATH", "HOME", "LANG", "TMPDIR")}
