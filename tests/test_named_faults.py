"""Faults that are planted on purpose are noticed by the tests they name; a sample of them, always the same."""

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.process, pytest.mark.slow]

CONTROLS = """
import os
from tests.named_faults import FAULTS, fault
from tests.named_faults._running import outcome_of

DRAW = "privatile.client.randomizer:SeededCoins.draw"
declare = fault("tests/client/test_coins.py::test_the_whole_range_is_used")

@declare
def noticed(seams):
    seams.change(DRAW, lambda coins, self, count: coins & coins[0])

@declare
def harmless(seams):
    seams.change(DRAW, lambda coins, self, count: coins.copy())

@declare
def never_run(seams):
    seams.change("privatile.client.randomizer:OperatingSystemCoins.draw", lambda coins, self, count: coins[:0])

@declare
def failing_otherwise(seams):
    seams.change(DRAW, lambda coins, self, count: coins.no_such_thing)

@declare
def failing_by_itself(seams):
    def assertion(coins, self, count):
        seams.hit()
        raise AssertionError
    assertion.__code__ = assertion.__code__.replace(co_filename="src/privatile/x.py")
    seams.change(DRAW, assertion)

@declare
def moved(seams):
    seams.skip("privatile.client.randomizer:SeededCoins.no_such_thing")

for name in list(FAULTS):
    if not (child := os.fork()):
        outcome, what = outcome_of(name)
        print(f"{name}: {outcome}, {what.partition(':')[0]}".strip(" ,"), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_a_sample_of_the_faults_dies() -> None:
    command = [sys.executable, "-m", "tests.named_faults", "--sample", "6", "--seed", "1", "--jobs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("6 faults, 6 killed\n")


def test_only_an_assertion_of_the_test_itself_kills_a_fault() -> None:
    """Controls: a fault that does no harm, one that does not run, three that die of something else."""
    told = subprocess.run([sys.executable, "-c", CONTROLS], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == [
        "noticed: killed",
        "harmless: SURVIVED",
        "never run: SURVIVED, the fault did not run",
        "failing otherwise: error, the test did not fail by an assertion",
        "failing by itself: error, the test did not fail by an assertion",
        "moved: error, it cannot be planted",
    ]
