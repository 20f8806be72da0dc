"""The privacy audit: a real client process, planted data, and what its answers and its files give away.

Four questions, each of which a broken client fails:

    ratio   Is the likelihood ratio of a report e^ε, no more and no less, within exact confidence bounds?
    fresh   Do two runs of the same client over the same data and questions differ as fresh coins must?
    once    Does a record answer only once, also when it is asked again, asked otherwise, or after kill -9?
    quiet   Is no planted value in anything that the process wrote or sent?

An audit cannot show that a client never misbehaves in a situation that the audit does not create.
"""

import asyncio
import contextlib
import math
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from privatile.core.mechanism import RandomizedResponse
from privatile.federation.audit.ratio import ratio_bounds, reports_needed
from privatile.federation.audit.session import TRACES, Session, open_session

BELOW, BETWEEN, ABOVE = 1000.0, 50000.0, 99000.0
"""Thresholds: below both planted values (the truth is 1), between them, above both (the truth is 0)."""

ALPHA = 0.0005
"""Error of each bound: a sound client fails an audit once in a thousand times."""

POWER = 0.999
PROBES, PROBE_LENGTH = 40, 500
"""Rounds compared between two runs. Two fair counts of 500 agree with probability 1/35, forty in a row never."""

ROUND_LENGTH = 50_000
"""The most records asked in one round for the ratio."""

ONCE_RECORDS = 5_000
"""Records that the question `once` is about."""


@dataclass(frozen=True)
class Finding:
    """The answer to one question."""

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
        """Whether the client passes every question."""
        return all(finding.passed for finding in self.findings)

    def to_text(self) -> str:
        """One line per question."""
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
    with tempfile.TemporaryDirectory(prefix="privatile-audit-") as name:
        return asyncio.run(_Auditor(Path(name), epsilon, command or own_client(), off, say).run())


@dataclass(eq=False, repr=False)
class _Auditor:
    folder: Path
    epsilon: float
    command: Sequence[str]
    off: float
    say: Callable[[str], None]
    received: list[bytes] = field(default_factory=list)
    reports: int = 0

    async def run(self) -> Audit:
        """One session for the ratio, a second one with a restart, a third one over the records of the second."""
        findings = []
        probes = PROBES * PROBE_LENGTH
        side = reports_needed(RandomizedResponse.from_epsilon(self.epsilon).truth_rate, self.off, ALPHA, POWER)
        rounds = math.ceil(side / ROUND_LENGTH)
        length = math.ceil(side / rounds)
        self.say(f"ratio: {2 * rounds * length:,} reports")
        async with self._session("first", probes + 2 * rounds * length) as session:
            first = await session.counts(BELOW, PROBE_LENGTH, PROBES)
            above = await session.counts(BELOW, length, rounds)
            below = await session.counts(ABOVE, length, rounds)
        findings.append(find_ratio(self.epsilon, above, below, rounds * length))
        self.say("fresh, once: a second session, with a kill")
        total = probes + ONCE_RECORDS
        async with self._session("second", total) as session:
            second = await session.counts(BELOW, PROBE_LENGTH, PROBES)
            findings.append(find_fresh(first, second))
            once = await find_once(session, total)
        findings.append(await self._find_once_for_life(total) if once.passed else once)
        findings.append(self._find_quiet())
        return Audit(self.epsilon, self.reports, tuple(findings))

    @contextlib.asynccontextmanager
    async def _session(self, name: str, records: int, site: Path | None = None) -> AsyncIterator[Session]:
        async with open_session(self.folder / name, self.command, self.epsilon, records, site) as session:
            yield session
        self.received += session.received
        self.reports += session.reports

    async def _find_once_for_life(self, total: int) -> Finding:
        """Ask the same records, at the same site, in another study: the ledger must remember them."""
        self.say("once: another study asks the same records")
        async with self._session("third", total, site=self.folder / "second" / "site") as session:
            if await session.count(BETWEEN, total // 2) is not None:
                return Finding(
                    "once", False, f"all {total:,} records had answered, and yet they answered another study"
                )
        text = f"{total:,} records gave {total:,} reports, across a kill; not one more, nor to another study"
        return Finding("once", True, text)

    def _find_quiet(self) -> Finding:
        files = [path for path in sorted(self.folder.rglob("*")) if path.is_file()]
        for path in files:
            if path.name != "data.csv" and _has_trace(path.read_bytes()):
                return Finding("quiet", False, f"a planted value is in {path.name}")
        if any(map(_has_trace, self.received)):
            return Finding("quiet", False, "a planted value crossed the wire")
        return Finding("quiet", True, f"no planted value in {len(files)} files and {len(self.received)} messages")


def _has_trace(content: bytes) -> bool:
    return any(trace.encode() in content for trace in TRACES)


def find_ratio(epsilon: float, above: list[int], below: list[int], trials: int) -> Finding:
    """Whether e^ε is within the bounds that the counts of ones give, for a report of 1 and for a report of 0."""
    if not above or not below:
        return Finding("ratio", False, "the client did not answer")
    bounds = ratio_bounds(sum(above), sum(below), trials, ALPHA)
    rate = RandomizedResponse.from_epsilon(epsilon).truth_rate
    limit = (1 + rate) / (1 - rate)
    text = ", ".join(f"{low:.4f} to {high:.4f}" for low, high in bounds)
    good = all(low <= limit <= high for low, high in bounds)
    return Finding("ratio", good, f"e^epsilon = {limit:.4f}; measured, for a report of 1 and of 0: {text}")


def find_fresh(first: list[int], second: list[int]) -> Finding:
    """Whether the counts of two runs differ.

    By chance a probe agrees with probability about 1/(2√(π·n·p·q)); more than half agree only when coins repeat.
    """
    if not first or not second:
        return Finding("fresh", False, "the client did not answer")
    same = sum(one == two for one, two in zip(first, second, strict=True))
    return Finding("fresh", same <= PROBES // 2, f"{same} of {PROBES} counts agree between two runs")


async def find_once(session: Session, total: int) -> Finding:
    """Whether the records of this study answer once. All but ONCE_RECORDS of `total` have answered before."""
    half = ONCE_RECORDS // 2
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
    if await session.count(BETWEEN, ONCE_RECORDS - half) is None:
        return Finding("once", False, "the client did not continue after kill -9")
    if await session.count(BETWEEN, 1, patience=3.0) is not None:
        return Finding("once", False, f"all {total:,} records had answered, and yet one more did")
    return Finding("once", True, f"{total:,} records gave {total:,} reports, across a kill; not one more")
