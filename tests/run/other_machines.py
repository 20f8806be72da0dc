"""Run files written under one setting of the processor and read under others.

    python -m tests.run.other_machines --runs 1000 --rounds 200 --python OTHER/bin/python … [--jobs N]

writes runs of every design with various levels, clients and scales here, reads them under every setting of `settings`
and with every other Python (another numpy), and prints per setting: files refused, the largest difference of a question
(in standard errors) and of a result, and forged questions that were accepted. Exit code 1 where a file was refused, a
result differs or a forged question was accepted.

`write` and `read` are the two halves, each in a process of its own: the settings are fixed when numpy is imported.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from privatile.core.mechanism import RandomizedResponse
from privatile.core.scale import make_scale, working_range
from privatile.errors import PrivatileError, ProtocolError
from privatile.estimator.clients import UNKNOWN_SIZE
from privatile.estimator.open_ended import End
from privatile.estimator.plan import QUESTION_BITS, Ask, as_sent
from privatile.estimator.schedule import NAMES, SELF_TUNING
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.run.coordinator import Coordinator, LevelRun
from privatile.run.run_file import RunStore, StoredRound
from tests.made_runs import copied

FORGED = 0.01
"""Standard errors by which a forged question is moved."""

ATOM = 1e-4
"""Least share of a round's standard error that a final one counts for."""

SAME = 1e-9
"""Relative difference of two results."""

ODD_RUNS = {132: "constant:5", 772: "power:0.6"}
"""Runs of 200 rounds whose fit takes long to settle: after eight steps results differed by 1e-5 standard errors."""

SCALES = (("linear", 0.0, 100.0), ("log", 1e3, 1e6), ("identity", -50.0, 70.0), ("logit", 0.0, 1.0))


# -- runs ------------------------------------------------------------------------------------------------------------


def designs() -> tuple[str, ...]:
    """Every design there is, a number in the place of each letter: a new one is here as soon as it has a name."""
    return tuple(re.sub(r"\bE\b", "5", name.replace("E,E,…", "LIST")).replace("B", "0.6") for name in NAMES)


def spec_of(number: int, rounds: int, design: str | None = None) -> RunSpec:
    """The specification of one run of many: the design by its number unless it is given, all else by chance."""
    rng = np.random.default_rng((20261116, number))
    names = designs()
    design = (design or names[number % len(names)]).replace("LIST", ",".join(str(3 + m % 4) for m in range(rounds)))
    clients = int(rng.integers(1, 5))
    levels: tuple[float, ...] = ((0.5,), (0.1,), (0.8,), (0.25, 0.5, 0.9))[int(rng.choice(4, p=(0.4, 0.2, 0.25, 0.15)))]
    parts = rng.dirichlet(np.full(clients, 5.0))
    weights = [float(part) for part in parts[:-1]]
    weights.append(1.0 - math.fsum(weights))
    scale, low, high = SCALES[int(rng.integers(len(SCALES)))]
    mechanisms = [RandomizedResponse.from_epsilon(float(rng.choice((0.5, 1.0, 2.0, 4.0)))) for _ in range(clients)]
    records = [int(rng.integers(40, 400)) * rounds * len(levels) for _ in range(clients)]
    if design == "open":
        records = [UNKNOWN_SIZE] * clients
    return RunSpec(
        "income",
        levels,
        tuple(ClientSpec(f"client {k}", mechanisms[k].threshold, weights[k], records[k]) for k in range(clients)),
        scale,
        low,
        high,
        design=design,
        rounds=None if design.startswith("list") or design == "open" else rounds,
        until_width=_until_width(rng, scale, low, high) if design in (*SELF_TUNING, "open", "rounds") else None,
        value_kind="continuous" if design == "tuned" else "any",
        simultaneous=len(levels) > 1,
        local_level="own" if rng.random() < 0.2 else "global",
        simulated=True,
        end=End(answers=200 * rounds * clients) if design == "open" and number % 2 else None,
    )


def _until_width(rng: np.random.Generator, scale: str, low: float, high: float) -> float | None:
    """A width at which some runs stop early."""
    return float((high - low) * rng.uniform(0.002, 0.05)) if rng.random() < 0.3 else None


def made(number: int, rounds: int, design: str | None = None) -> bytes:
    """The file of one run, its counts by chance.

    In a third of the runs clients are silent now and then. In half of the runs of the designs that tune themselves the
    values are heaped: F jumps. To the rounds of an open-ended run as many come as happen to: most often a few, now and
    then many or nobody of a client. It ends by its answers, by its width, or after so many rounds.
    """
    spec = spec_of(number, rounds, design)
    rng = np.random.default_rng((11, number))
    scale = make_scale(spec.scale, spec.low, spec.high)
    low, high = working_range(scale)
    width = high - low
    people = NormalDist(low + width * rng.uniform(0.2, 0.8), width * 10.0 ** rng.uniform(-2.5, -0.8))
    heap = width / 20.0 if number % (2 * len(NAMES)) in (0, len(NAMES) + 1, len(NAMES) + 2) else 0.0
    silence = 0.15 if number % 3 == 0 and len(spec.clients) > 1 else 0.0
    store = RunStore.create(":memory:", f"run-{number}", spec)
    coordinator = Coordinator(store)
    is_open = spec.design == "open"
    while (asked := coordinator.rounds()) is not None and not (is_open and coordinator.done == rounds):
        counts: list[list[int | None]] = []
        came: list[list[int]] = []
        for each in asked:
            query = scale.to_working(each.questions[0].query)
            counts.append([])
            came.append([question.length for question in each.questions])
            if is_open:
                came[-1] = [int(n) for n in rng.poisson(rng.lognormal(3.5, 1.5, len(spec.clients)))]
                came[-1][0] += not any(came[-1])
            for length, client in zip(came[-1], spec.clients, strict=True):
                place = heap * math.floor(query / heap) if heap else query
                yes = 0.5 + client.mechanism.truth_rate * (0.5 - people.cdf(place))
                silent = not is_open and coordinator.done and rng.random() < silence
                counts[-1].append(None if silent or not length else int(rng.binomial(length, yes)))
        coordinator.accept(counts, lengths=came if is_open else None)
    coordinator.finish("command" if is_open and coordinator.rounds() is not None else None)
    return copied(store)


def write(folder: Path, runs: int, rounds: int, part: int = 0, parts: int = 1) -> None:
    """Write the runs, or every `parts`-th of them."""
    for number in range(part, runs, parts):
        (folder / f"{number:05d}.db").write_bytes(made(number, rounds))


# -- reading them ----------------------------------------------------------------------------------------------------


class Differences:
    """How far recorded questions are from this machine's own, in standard errors, over all rounds replayed."""

    def __init__(self) -> None:
        self.largest = 0.0
        self.other_side = 0
        """Rounds in which a decision fell the other way."""

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look at every question that is replayed meanwhile."""
        take = LevelRun.take

        def watched(track: LevelRun, asked: Ask) -> None:
            own, state = track.ask, track.state
            take(track, asked)
            if own is None or track.state is not state:
                self.other_side += 1
            elif own.query != asked.query:
                off = abs(own.query - asked.query)
                self.largest = max(self.largest, off / track.plan.standard_error(state, own))

        with patch.object(LevelRun, "take", watched):
            yield


def read(folder: Path, part: int = 0, parts: int = 1) -> dict[str, Any]:
    """What this machine makes of every file, or of every `parts`-th, as JSON.

    Results, or why it refuses; and the forged questions it takes.
    """
    seen = Differences()
    found: dict[str, Any] = {"numpy": np.__version__, "runs": {}, "forged": 0, "accepted": []}
    for path in sorted(folder.glob("*.db"))[part::parts]:
        try:
            with RunStore.open(path, read_only=True) as store, seen.watched():
                coordinator = Coordinator(store)
                results = coordinator.results()
                rounds = list(store.all_rounds())
        except PrivatileError as error:
            found["runs"][path.stem] = str(error)
            continue
        # Without the sentence: it rounds numbers that are there, and the last bit may decide how.
        found["runs"][path.stem] = [
            (
                {key: value for key, value in result.facts().items() if key != "sentence"},
                result.inference.error_scale * result.scale.slope(result.inference.center),
            )
            for result in results
        ]
        for number, accepted in forge(coordinator.spec, rounds, results[0].inference.error_scale, int(path.stem)):
            found["forged"] += 1
            found["accepted"] += [f"{path.stem}, round {number}"] if accepted else []
    plain: dict[str, Any] = json.loads(json.dumps(found | {"largest": seen.largest, "other_side": seen.other_side}))
    return plain


def forge(spec: RunSpec, rounds: list[StoredRound], final: float, seed: int) -> list[tuple[int, bool]]:
    """Move the question of an early, a middle and a late round of the first level; which round, and whether it passes.

    It is moved by 0.01 standard errors of the run at that round or of its `final` estimate, whichever is less. Where F
    jumps the final one is as small as an atom, 10⁻⁹ of the round's: it then counts as `ATOM` of that. The question is
    always moved by more than its last bits that are free.
    """
    level = [stored for stored in rounds if stored.level_index == 0]
    rng = np.random.default_rng((7, seed))
    third = max(len(level) // 3, 1)
    chosen = {min(int(part * third + rng.integers(third)), len(level) - 1) for part in range(3)}
    track, outcomes = LevelRun(spec, 0), []
    for place, stored in enumerate(level[: max(chosen) + 1]):
        if place in chosen:
            error = track.plan.standard_error(track.state, stored.ask)
            smaller = min(error, max(final, ATOM * error)) if 0.0 < final < math.inf else error
            off = max(FORGED * smaller, 2.0 * QUESTION_BITS * math.ulp(stored.ask.query))
            query = stored.ask.query + float(rng.choice((-1.0, 1.0))) * off
            forged = as_sent(track.plan, stored.ask._replace(query=query))
            assert forged is not None
            try:
                track.take(forged)
                outcomes.append((stored.round, True))
                break
            except ProtocolError:
                outcomes.append((stored.round, False))
        track.replay(stored)
    return outcomes


# -- comparing -------------------------------------------------------------------------------------------------------


def largest_difference(one: object, two: object, error: float, path: str = "") -> tuple[float, str]:
    """The largest relative difference of two results, and where; ∞ where words or whole numbers differ.

    Numbers in units of the data are compared relative to their size and the standard error, whichever is larger.
    """
    if isinstance(one, dict) and isinstance(two, dict) and one.keys() == two.keys():
        pairs = [largest_difference(one[key], two[key], error, f"{path}.{key}") for key in one]
        return max(pairs, default=(0.0, path))
    if isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        pairs = [largest_difference(*pair, error, f"{path}[{k}]") for k, pair in enumerate(zip(one, two, strict=True))]
        return max(pairs, default=(0.0, path))
    if isinstance(one, float) and isinstance(two, float):
        if one == two or (math.isnan(one) and math.isnan(two)):
            return 0.0, path
        size = max(abs(one), abs(two), min(error, 1.0))
        return abs(one - two) / size if math.isfinite(size) else math.inf, path
    return (0.0, path) if type(one) is type(two) and one == two else (math.inf, f"{path}: {one!r} and {two!r}")


def compare(written: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """What two machines make of the same files, in numbers."""
    refused = {name: text for name, text in other["runs"].items() if isinstance(text, str)}
    worst, estimate = (0.0, ""), 0.0
    for name, results in other["runs"].items():
        if name in refused:
            continue
        for own, seen in zip(written["runs"][name], results, strict=True):
            (one, error), (two, _) = own, seen
            worst = max(worst, largest_difference(one, two, error, name))
            if math.isfinite(error) and error and one["estimate"] is not None and two["estimate"] is not None:
                estimate = max(estimate, abs(one["estimate"] - two["estimate"]) / error)
    return {
        "files": len(other["runs"]),
        "refused": refused,
        "question": other["largest"],
        "other_side": other["other_side"],
        "result": worst,
        "estimate": estimate,
        "forged": other["forged"],
        "accepted": other["accepted"],
    }


def fails(facts: dict[str, Any]) -> bool:
    """Whether a setting breaks the promise."""
    return bool(facts["refused"] or facts["accepted"]) or not facts["result"][0] <= SAME


# -- settings --------------------------------------------------------------------------------------------------------


def settings(python: str) -> dict[str, dict[str, str]]:
    """Settings of processor, BLAS and C library that this numpy can be started with, by name."""
    script = (
        "import numpy._core._multiarray_umath as m; print(*[n for n in m.__cpu_dispatch__ if m.__cpu_features__[n]])"
    )
    found = subprocess.run([python, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    wide = [name for name in found if name.startswith("AVX512") or name == "X86_V4"]
    return {
        "as it is": {},
        "AVX2": {"NPY_DISABLE_CPU_FEATURES": " ".join(wide), "OPENBLAS_CORETYPE": "Haswell"},
        "SSE": {"NPY_DISABLE_CPU_FEATURES": " ".join(found), "OPENBLAS_CORETYPE": "Nehalem"},
        "BLAS SkylakeX": {"OPENBLAS_CORETYPE": "SkylakeX"},
        "BLAS Haswell": {"OPENBLAS_CORETYPE": "Haswell"},
        "BLAS Nehalem": {"OPENBLAS_CORETYPE": "Nehalem"},
        "C library without FMA": {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX512F"},
    }


class Machine(NamedTuple):
    """A Python under a setting."""

    python: str
    name: str
    setting: dict[str, str]

    def run(self, *arguments: str) -> None:
        """One half of this module, in a process of its own."""
        command = [self.python, "-W", "ignore", "-m", "tests.run.other_machines", *arguments]
        subprocess.run(command, env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **self.setting}, check=True)

    def read(self, folder: Path, number: int, part: int, parts: int) -> dict[str, Any]:
        """What it makes of a part of the files."""
        out = folder / f"found-{number}-{part}.json"
        self.run("read", str(folder), f"--out={out}", f"--part={part}/{parts}")
        seen: dict[str, Any] = json.loads(out.read_text())
        return seen


def joined(seen: list[dict[str, Any]]) -> dict[str, Any]:
    """The parts that one machine read, as one."""
    return {
        "numpy": seen[0]["numpy"],
        "runs": {name: results for part in seen for name, results in part["runs"].items()},
        "forged": sum(part["forged"] for part in seen),
        "accepted": [text for part in seen for text in part["accepted"]],
        "largest": max(part["largest"] for part in seen),
        "other_side": sum(part["other_side"] for part in seen),
    }


def main() -> int:
    """Write, read under every setting, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("half", nargs="?", choices=("write", "read"))
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--python", action="append", default=[], help="a Python with another numpy; may be repeated")
    given = parser.parse_args()
    part, parts = (int(each) for each in given.part.split("/"))
    if given.half == "write":
        write(given.folder, given.runs, given.rounds, part, parts)
        return 0
    if given.half == "read":
        given.out.write_text(json.dumps(read(given.folder, part, parts)))
        return 0
    machines = [
        Machine(python, name, setting)
        for python in (sys.executable, *given.python)
        for name, setting in settings(python).items()
    ]
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(given.jobs) as pool:
        folder, jobs = Path(place), given.jobs
        began = time.monotonic()
        asked = (f"--runs={given.runs}", f"--rounds={given.rounds}")
        list(pool.map(lambda k: machines[0].run("write", place, *asked, f"--part={k}/{jobs}"), range(jobs)))
        print(f"{given.runs} runs of {given.rounds} rounds written, {time.monotonic() - began:.0f} s", flush=True)
        reading = [
            [pool.submit(machine.read, folder, number, k, jobs) for k in range(jobs)]
            for number, machine in enumerate(machines)
        ]
        failed, own = False, None
        for machine, tasks in zip(machines, reading, strict=True):
            seen = joined([task.result() for task in tasks])
            own = own or seen
            facts = compare(own, seen)
            failed |= fails(facts)
            print(
                f"numpy {seen['numpy']:<6} {machine.name:<22} {facts['files']} files, {len(facts['refused'])} refused; "
                f"question {facts['question']:.1e} s.e., estimate {facts['estimate']:.1e} s.e., result "
                f"{facts['result'][0]:.1e}; "
                f"{facts['other_side']} decisions the other way; "
                f"{len(facts['accepted'])} of {facts['forged']} forged accepted; {time.monotonic() - began:.0f} s",
                flush=True,
            )
            for text in [*facts["refused"].values()][:3] + facts["accepted"][:3]:
                print("   ", text)
            if not facts["result"][0] <= SAME:
                print("   ", facts["result"][1])
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
