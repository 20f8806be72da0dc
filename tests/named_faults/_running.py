"""Tests with a fault and without, in a process that ends afterwards."""

import contextlib
import importlib
import io
from collections.abc import Sequence

import pytest
from hypothesis import Phase, settings

from tests.named_faults import FAULTS, Seams, all_faults

OPTIONS = ["-q", "--no-header", "-p", "no:cacheprovider", "-W", "ignore", "-o", "timeout=240"]

NO_ASSERTION = ("src/privatile", "tests/named_faults")
"""An assertion that fails there is not the test's own."""

Outcome = tuple[str, str]
"""In one or two words, and what explains it."""


class _Outcomes:
    """What became of the tests of one session."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        """Failures that are none of an assertion."""
        self.failed: list[str] = []
        self.passed: list[str] = []

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
        report = (yield).get_result()
        if report.failed:
            self.failed.append(item.nodeid)
            if report.when != "call" or call.excinfo is None or not _is_assertion(call.excinfo):
                self.errors.append(f"{report.when}: {call.excinfo and call.excinfo.exconly()}")
        elif report.passed and report.when == "call":
            self.passed.append(item.nodeid)


def _is_assertion(caught: "pytest.ExceptionInfo[BaseException]") -> bool:
    """Whether the test itself has failed by an assertion, or by a `pytest.raises` that saw nothing raised."""
    if not caught.errisinstance((AssertionError, pytest.fail.Exception)) or str(caught.value).startswith("Timeout"):
        return False
    return not any(part in str(caught.traceback[-1].path) for part in NO_ASSERTION)


def _run(nodes: Sequence[str], *options: str) -> tuple[_Outcomes, str]:
    """Run tests in this process; what became of them, and the end of what was printed."""
    outcomes, printed = _Outcomes(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        pytest.main([*OPTIONS, *options, *nodes], plugins=[outcomes])
    return outcomes, printed.getvalue()[-2000:]


def good_tests(nodes: Sequence[str]) -> set[str]:
    """Those of these tests that pass without a fault, in all cases that are meant."""
    outcomes, _ = _run(nodes)

    def is_one_of(node: str, cases: list[str]) -> bool:
        return any(node in (case, case.partition("[")[0]) for case in cases)

    return {node for node in nodes if is_one_of(node, outcomes.passed) and not is_one_of(node, outcomes.failed)}


def outcome_of(name: str) -> Outcome:
    """Whether a fault's test notices it: "killed", "SURVIVED" or "error", and what explains it."""
    # A failure is enough: no search for a smaller one, and none that an earlier fault has left.
    settings.register_profile(
        "faults", database=None, derandomize=True, phases=(Phase.explicit, Phase.generate), report_multiple_bugs=False
    )
    settings.load_profile("faults")
    all_faults()
    fault, seams = FAULTS[name], Seams()
    try:
        importlib.import_module(fault.noticed_by.partition("::")[0].removesuffix(".py").replace("/", "."))
        fault.plant(seams)
    except Exception as error:
        return "error", f"it cannot be planted: {type(error).__name__}: {error}"
    outcomes, printed = _run([fault.noticed_by], "-x")
    if outcomes.errors:
        return "error", f"the test did not fail by an assertion: {outcomes.errors[0]}\n{printed}"
    if outcomes.failed:
        return ("killed", "") if seams.ran else ("error", "the test failed, but the fault did not run")
    if outcomes.passed:
        return "SURVIVED", "" if seams.ran else "the fault did not run"
    return "error", f"no test was run\n{printed}"
