"""What the audit of a peer finds, measured on simulated runs: false alarms, wrong truth rates, broken clients.

    python -m studies.audit.peers honest 3000 1 100    # honest peers that fail, at epsilon 1, with runs of 100 rounds
    python -m studies.audit.peers rate 200 1 100 1.02  # peers whose truth rate is wrong by this factor
    python -m studies.audit.peers broken 1 100         # which broken clients of the tests' table are not found

Questions come from the same design as in a run, and so depend on the simulated counts. Counts of the first two are
binomial, as if every record were drawn anew, those of the table's clients are made record by record. The checks are
those of a real audit. Nothing is killed and no file is written: `once` and `quiet` are not part of it.
"""

import sys
from collections import Counter

import numpy as np
from tests.federation.broken_clients.simulated import Honest
from tests.federation.broken_clients.simulated_peers import run_failures
from tests.federation.broken_clients.table import TABLE

from privatile.federation.audit.peer_plan import PeerPlan, asked_by_runs, judge_runs, make_peer_plan
from privatile.federation.audit.plan import Asks
from privatile.server.coordinator import Track
from privatile.server.run_file import StoredRound

OFF = 0.02


def hold(plan: PeerPlan, rng: np.random.Generator, factor: float) -> list[StoredRound]:
    """One run; every truth rate is multiplied by the factor, but for that of the whole file."""
    study, found = plan.study, []
    tracks = [Track(study.spec, index) for index in range(len(study.levels))]
    for number in range(1, study.rounds + 1):
        for index, track in enumerate(tracks):
            ask = track.ask
            assert ask is not None
            ones = []
            for (name, agreed), length in zip(study.clients.items(), ask.lengths, strict=True):
                one = (np.array([part]) for part in (number, study.asked_levels[index], ask.sent, length))
                share = float(Asks(plan.files[name], agreed.mechanism.truth_rate, *one).shares[0])
                chance = share if name == plan.whole else 0.5 + factor * (share - 0.5)
                ones.append(int(rng.binomial(length, chance)))
            found.append(StoredRound(index, number, ask, tuple(ones)))
            track.advance(ones)
    return found


def simulate(audits: int, epsilon: float, rounds: int, factor: float) -> None:
    """How many audits fail, check by check. `whole` is left out: its records are not drawn one by one here."""
    rng = np.random.default_rng()
    failed: Counter[str] = Counter()
    for _ in range(audits):
        plan = make_peer_plan(epsilon, rng, off=OFF, rounds=rounds)
        asked, transcript = asked_by_runs(plan, {run: hold(plan, rng, factor) for run in plan.runs})
        findings = judge_runs(plan, asked, transcript, rng)
        names = [one.name for one in findings if not one.passed and one.name != "whole"]
        failed.update(names)
        failed["any"] += bool(names)
    print(f"epsilon {epsilon:g}, {rounds} rounds, factor {factor:g}: {failed['any']} of {audits} fail; {dict(failed)}")


def broken(epsilon: float, rounds: int) -> None:
    """The clients of the table that are not found in one audit."""
    rng = np.random.default_rng()
    plan = make_peer_plan(epsilon, rng, off=OFF, rounds=rounds)
    kinds: dict[str, type[Honest]] = {"Honest": Honest, **TABLE}
    missed = [name for name, kind in kinds.items() if not run_failures(plan, kind, rng)]
    print(f"{len(kinds) - len(missed)} of {len(kinds)} are found; not {', '.join(missed)}")


if __name__ == "__main__":
    what, *numbers = sys.argv[1:]
    if what == "broken":
        broken(float(numbers[0]), int(numbers[1]))
    else:
        factor = float(numbers[3]) if what == "rate" else 1.0
        simulate(int(numbers[0]), float(numbers[1]), int(numbers[2]), factor)
