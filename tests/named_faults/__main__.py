"""Run named faults: `python -m tests.named_faults [--sample N] [--jobs N] [WORD …]`."""

import argparse
import contextlib
import importlib
import io
import multiprocessing
import os
import random
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np  # noqa: F401  (imported once, before the processes are made)
import pytest
import scipy.stats  # noqa: F401

from tests.named_faults import FAULTS, Fault, Seams, all_faults

OPTIONS = ["-q", "-x", "--no-header", "-p", "no:cacheprovider", "-W", "ignore"]


class _Outcomes:
    """What became of the tests of one session."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.passed: set[str] = set()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
        report = (yield).get_result()
        if report.failed:
            by_assertion = call.excinfo is not None and call.excinfo.errisinstance(
                (AssertionError, pytest.fail.Exception)
            )
            in_test = report.when == "call" and by_assertion
            self.failures.append("" if in_test else f"{report.when}: {call.excinfo and call.excinfo.exconly()}")
        elif report.passed and report.when == "call":
            self.passed.add(item.nodeid)


def run_tests(node: str, name: str | None) -> tuple[str, str]:
    """The outcome of a test, in this process: "passed", "killed", "error" or "not run", and what it printed."""
    seams, outcomes, printed = Seams(), _Outcomes(), io.StringIO()
    if name is not None:
        all_faults()
        importlib.import_module(node.partition("::")[0].removesuffix(".py").replace("/", "."))
        FAULTS[name].plant(seams)
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        code = pytest.main([*OPTIONS, node], plugins=[outcomes])
    if outcomes.failures:
        others = [each for each in outcomes.failures if each]
        if others:
            return "error", f"it did not fail by an assertion: {others[0]}\n{printed.getvalue()[-2000:]}"
        if name is not None and not seams.ran:
            return "error", "the test failed, but the fault did not run"
        return "killed", ""
    if code == 0 and outcomes.passed:
        return "passed", "" if seams.ran or name is None else "the fault did not run"
    return "not run", printed.getvalue()[-2000:]


def judge(fault: Fault) -> tuple[str, str]:
    """Whether the fault dies, in processes of its own: the test without it, then with it."""
    context = multiprocessing.get_context("fork")
    outcomes = []
    for name in (None, fault.name):
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            outcomes.append(pool.submit(run_tests, fault.noticed_by, name).result())
    (before, why), (after, what) = outcomes
    if before != "passed":
        return "no good test", f"without the fault: {before} {why}"
    return ("killed", "") if after == "killed" else ("SURVIVED" if after == "passed" else after, what)


def main() -> int:
    """Run the faults that were asked for; the exit code is 0 if all of them die."""
    parser = argparse.ArgumentParser(prog="python -m tests.named_faults", description=__doc__)
    parser.add_argument("words", nargs="*", help="only faults whose name or file contains one of these")
    parser.add_argument("--sample", type=int, help="only so many, drawn at random")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    chosen = [
        each
        for each in all_faults()
        if not options.words or any(w in f"{each.file} {each.name}" for w in options.words)
    ]
    if options.sample:
        chosen = random.Random(options.seed).sample(chosen, min(options.sample, len(chosen)))
    alive = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for fault, (outcome, what) in zip(chosen, pool.map(judge, chosen), strict=True):
            alive += outcome != "killed"
            print(f"{outcome:12s} {fault.file}: {fault.name}  [{fault.noticed_by}]", flush=True)
            if what:
                print("    " + what.replace("\n", "\n    "), flush=True)
    print(f"{len(chosen)} faults, {len(chosen) - alive} killed")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
