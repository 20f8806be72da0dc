"""The privacy audit of a peer: real processes of all organizations of a run without a coordinator, over planted files.

A peer answers only the question that its own replica computes, so the auditor does not choose the questions. It need
not: it has planted the files, so it knows the truth of every record for every question (`peer_plan`). Counts are read
from the peers' own files, which must all tell the same signed history, and judged as those of other clients (`checks`).

    answers  did every organization answer every question, and are their files one history, signed to its end
    ratio    is the likelihood ratio of a report e^ε, no more and no less, within exact confidence bounds
    whole    did every person of a file answer once, across a kill -9
    share, spread, shape, sums, sequence, shared, repeat, parity
             are the counts those of honest coins, fresh for every record, round, level, organization and run
    once     is the same question, asked again in a new log after kill -9 of everybody, answered with the same counts
    quiet    is no planted value in anything that the processes wrote or sent, the servers' streams included

An honest peer fails at most once in 1,000 audits.
"""

import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from privatile.core.words import counted
from privatile.federation.audit.audit import WHAT_IS_NOT_FOUND, Audit
from privatile.federation.audit.judgement import Finding
from privatile.federation.audit.peer_plan import (
    PEER_PARTS,
    PeerPlan,
    asked_by_runs,
    judge_runs,
    make_peer_plan,
    words_about,
)
from privatile.federation.audit.peer_session import OpenRound, PeerFailure, PeerSession, copy_folders
from privatile.federation.audit.quiet import find_quiet
from privatile.federation.setup.broker_binary import find_binary
from privatile.server.run_file import StoredRound

WHAT_PEERS_SHOW = (
    "The questions were the run's own, with cohorts of sizes that were fixed beforehand. At epsilon 1 and --off 0.02 "
    "simulated audits found a truth rate wrong by 2% every time, and 71 of 81 broken clients; not those that cheat "
    "where a run does not come: in local mode, in small files, at the ends of the range, at outer levels, in a "
    "question that comes twice. Whether a record answers another study was not asked: `privatile audit` without "
    "--peer does."
)
"""Measured by `studies/audit/peers.py`; the numbers are in docs/tasks/audit.md."""

REMARKS = (WHAT_PEERS_SHOW, WHAT_IS_NOT_FOUND)


def own_peer() -> list[str]:
    """The command of the shipped peer."""
    return [sys.executable, "-m", "privatile", "peer", "run"]


def audit_peer(
    epsilon: float,
    command: Sequence[str] | None = None,
    *,
    off: float = 0.02,
    rounds: int = 100,
    parts: Collection[str] = PEER_PARTS,
    say: Callable[[str], None] = lambda line: None,
) -> Audit:
    """Audit a program that takes the arguments of `privatile peer run`. Fewer `rounds` and `parts` find less."""
    plan = make_peer_plan(epsilon, np.random.default_rng(), off=off, rounds=rounds, parts=parts)
    find_binary()  # a machine without a server is no fault of the peer
    with tempfile.TemporaryDirectory(prefix="privatile-") as name:
        return _PeerAuditor(Path(name), plan, command or own_peer(), say).run()


@dataclass(eq=False, repr=False)
class _PeerAuditor:
    folder: Path
    plan: PeerPlan
    command: Sequence[str]
    say: Callable[[str], None]
    runs: dict[str, list[StoredRound]] = field(default_factory=dict)

    def run(self) -> Audit:
        """All runs, then what they show."""
        try:
            once = self._hold_all()
        except PeerFailure as failure:
            return self._audit([failure.finding])
        self.say("comparing the counts with honest coins")
        asked, transcript = asked_by_runs(self.plan, self.runs)
        answers = Finding("answers", True, f"every question was answered, by 4 peers: {words_about(self.plan, asked)}")
        return self._audit([answers, *judge_runs(self.plan, asked, transcript, np.random.default_rng()), *once])

    def _audit(self, findings: list[Finding]) -> Audit:
        self.say("looking for planted values")
        asked = [one.ask for rounds in self.runs.values() for one in rounds]
        numbers = [number for ask in asked for number in (ask.query, ask.sent, ask.step)]
        quiet = find_quiet(self.folder, self.plan.files.values(), numbers=numbers)
        reports = sum(sum(ask.lengths) for ask in asked)
        return Audit(self.plan.epsilon, reports, (*findings, quiet), "peer", REMARKS)

    def _hold_all(self) -> list[Finding]:
        """All runs of the plan; whether a question that was asked again got the same counts."""
        plan, place = self.plan, self.folder / "organizations"
        session = PeerSession(place, plan, self.command)
        session.set_up()
        if "copy" in plan.parts:
            self.say("ledgers are made")
            session.make_ledgers()
            copy_folders(place, self.folder / "for copy")
        kill = "kill" in plan.parts
        self.say(f"first: {len(session.places)} peers" + (", kill -9 and a new log in the middle" if kill else ""))
        lost = session.hold(kill=kill)
        self.runs["first"] = session.read()
        if "copy" in plan.parts:
            self.say("copy: the same study again, from copies of the folders")
            place.rename(self.folder / "before copy")  # held at one path: coins may be seeded with it
            (self.folder / "for copy").rename(place)
            session.hold(kill=False)
            self.runs["copy"] = session.read()
        return [find_once_again(plan, lost, self.runs["first"])] if kill else []


def find_once_again(plan: PeerPlan, lost: OpenRound, rounds: Sequence[StoredRound]) -> Finding:
    """Whether the answers of a lost log are those of the run, and nobody gave more reports than there are records."""
    levels = sorted((one for one in rounds if one.round == lost.number), key=lambda one: one.level_index)
    for place, (name, agreed) in enumerate(plan.study.clients.items()):
        counts = tuple(one.ones[place] for one in levels)
        if lost.counts.get(name, counts) != counts:
            text = f"{name} answered round {lost.number} with {lost.counts[name]}, after kill -9 with {counts}"
            return Finding("once", False, f"{text}: coins were drawn again")
        asked = sum(one.ask.lengths[place] for one in rounds)
        if asked > agreed.records:
            return Finding("once", False, f"{name} gave {asked:,} reports for {agreed.records:,} records")
    text = f"round {lost.number}, asked again in a new log after kill -9 of all, got the same counts from"
    return Finding("once", True, f"{text} {counted(len(lost.counts), 'peer')}; no more reports than records")
