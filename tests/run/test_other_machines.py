"""Runs of every design, written here and read under other settings of the processor, BLAS and the C library."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from privatile.estimator.schedule import NAMES
from tests.run import other_machines
from tests.run.other_machines import ODD_RUNS, Machine, compare, designs, fails, joined, made, read, settings, write

RUNS, ROUNDS = 14, 40
"""Eleven designs, two of them also with other data: 0 and 11 are straddled, 0 heaped and silent; 12 is tuned, 13 open,
both heaped."""
READ_UNDER = ("AVX2", "SSE", "C library without FMA")


def test_every_design_is_among_the_runs() -> None:
    assert len(designs()) == len(NAMES) <= RUNS
    assert {other_machines.spec_of(number, ROUNDS).design.partition(":")[0] for number in range(RUNS)} == {
        name.partition(":")[0] for name in NAMES
    }


def test_silent_clients_without_a_slope_do_not_end_a_run() -> None:
    """A run that stops by its width looks at it while the answers of silent clients give no slope: it crashed."""
    assert made(210, 150, "tuned")


@pytest.mark.process
def test_an_honest_run_file_is_accepted_on_every_machine(tmp_path: Path) -> None:
    write(tmp_path, RUNS, ROUNDS)
    for number, design in ODD_RUNS.items():
        (tmp_path / f"{number:05d}.db").write_bytes(made(number, 200, design))
    chosen = {name: setting for name, setting in settings(sys.executable).items() if name in READ_UNDER}
    with ThreadPoolExecutor() as pool:
        reading = {
            name: pool.submit(Machine(sys.executable, name, setting).read, tmp_path, k, 0, 1)
            for k, (name, setting) in enumerate(chosen.items())
        }
        here = read(tmp_path)
    assert not fails(compare(here, here))
    differences = {}
    for name, seen in reading.items():
        facts = compare(here, joined([seen.result()]))
        assert facts["files"] == RUNS + len(ODD_RUNS), name
        assert facts["forged"] >= 2 * RUNS, name
        assert not fails(facts), (name, facts)
        differences[name] = facts["question"]
    # The negative control: the settings make a difference, so that equality to the last bit would have been refused.
    if chosen["AVX2"]["NPY_DISABLE_CPU_FEATURES"]:
        assert max(differences.values()) > 0.0, differences


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("PRIVATILE_LONG"), reason="1,000 runs of 200 rounds; PRIVATILE_LONG=1 runs it")
@pytest.mark.timeout(14_400)
def test_a_thousand_runs_are_accepted_on_every_machine() -> None:
    """`PRIVATILE_PYTHONS` names other interpreters, with another numpy each."""
    others = [f"--python={python}" for python in os.environ.get("PRIVATILE_PYTHONS", "").split(os.pathsep) if python]
    subprocess.run([sys.executable, "-m", "tests.run.other_machines", f"--jobs={os.cpu_count()}", *others], check=True)
