"""A peer on another processor, or with another numpy, computes the same chain values from the same log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from replica.other_processors import STUDIES, read, write
from tests.run.other_machines import settings

pytestmark = pytest.mark.process

READ_UNDER = ("AVX2", "SSE")


class Machine(NamedTuple):
    """A Python under a setting."""

    python: str
    setting: dict[str, str]

    def read(self, folder: Path, out: Path) -> dict[str, Any]:
        command = [
            self.python,
            "-W",
            "ignore",
            "-m",
            "replica.other_processors",
            str(folder),
            str(out),
        ]
        path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", **self.setting}
        subprocess.run(command, env=environment, check=True)
        found: dict[str, Any] = json.loads(out.read_text())
        return found


def compare(folder: Path, machines: dict[str, Machine], studies: Sequence[int], rounds: int) -> dict[str, int]:
    """Every machine reads every log; gives in how many rounds each would have asked another question."""
    chains = write(folder, studies, rounds)
    differ = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        reading = {
            name: pool.submit(machine.read, folder, folder / f"{place}.json")
            for place, (name, machine) in enumerate(machines.items())
        }
    for name, task in reading.items():
        found = task.result()
        logs = found["logs"].values()
        differ[name] = sum(one["other_bits"] for one in logs)
        print(f"{name}: Python {found['python']}, numpy {found['numpy']}, other bits in {differ[name]} rounds")
        assert {number: one["chains"] for number, one in found["logs"].items()} == chains, name
        for one in logs:
            assert one["finished"], (name, one["kinds"])
            assert not {"refused", "other history", "astray"} & set(one["kinds"]), name
    return differ


def test_a_log_gives_the_same_chain_values_under_every_setting_of_the_processor(tmp_path: Path) -> None:
    known = settings(sys.executable)
    differ = compare(tmp_path, {name: Machine(sys.executable, known[name]) for name in READ_UNDER}, [0], 30)
    assert read(tmp_path)["logs"]["0"]["other_bits"] == 0  # here they are the same
    # The negative control: the settings make a difference, so that equality to the last bit would have been refused.
    if known["AVX2"]["NPY_DISABLE_CPU_FEATURES"]:
        assert max(differ.values()) > 0, differ


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("PRIVATILE_LONG"), reason="every setting of every Python: PRIVATILE_LONG=1")
@pytest.mark.timeout(3600)
def test_other_pythons_and_every_setting_agree(tmp_path: Path) -> None:
    """`PRIVATILE_PYTHONS` names other interpreters, with another numpy each."""
    pythons = [sys.executable, *filter(None, os.environ.get("PRIVATILE_PYTHONS", "").split(os.pathsep))]
    machines = {
        f"{python} {name}": Machine(python, setting) for python in pythons for name, setting in settings(python).items()
    }
    compare(tmp_path, machines, range(len(STUDIES)), 80)
