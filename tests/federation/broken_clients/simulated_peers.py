"""Runs of an audit of peers without processes: clients of the table in place of the organizations' own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from privatile.core.messages import Question
from privatile.federation.audit.judgement import Finding, silent
from privatile.federation.audit.peer_plan import PeerPlan, asked_by_runs, judge_runs
from privatile.server.coordinator import Track
from privatile.server.run_file import StoredRound
from tests.federation.broken_clients.simulated import Honest, SimulatedSite, new_site


def run_failures(plan: PeerPlan, kind: type[Honest], rng: np.random.Generator) -> dict[str, str]:
    """The checks that a kind of client fails as a peer, and what they say."""
    study = plan.study
    begun = {name: new_site(name, study, file, kind, rng) for name, file in plan.files.items()}
    runs = {}
    for number, run in enumerate(plan.runs):
        found = _hold(plan, {name: replace(site) for name, site in begun.items()}, kind, rng, 1_000 * number)
        if isinstance(found, int):
            return {"answers": silent(run, "a peer", found).text}
        runs[run] = found
    asked, transcript = asked_by_runs(plan, runs)
    findings: list[Finding] = judge_runs(plan, asked, transcript, rng)
    return {finding.name: finding.text for finding in findings if not finding.passed}


def _hold(
    plan: PeerPlan, sites: dict[str, SimulatedSite], kind: type[Honest], rng: np.random.Generator, clock: int
) -> list[StoredRound] | int:
    """One run; the number of the round where somebody is silent."""
    study = plan.study
    clients = {name: kind(site.place, rng) for name, site in sites.items()}
    tracks = [Track(study.spec, index) for index in range(len(study.levels))]
    found = []
    for number in range(1, study.rounds + 1):
        for index, track in enumerate(tracks):
            ask = track.ask
            assert ask is not None
            ones = []
            for (name, client), length in zip(clients.items(), ask.lengths, strict=True):
                client.clock = clock + number // 25
                question = Question(study.run, number, study.asked_levels[index], ask.sent, length)
                count = client.answer(question, sites[name].take(length, kind))
                if count is None:
                    return number
                ones.append(min(max(count, 0), length))
            found.append(StoredRound(index, number, ask, tuple(ones)))
            track.advance(ones)
    return found
