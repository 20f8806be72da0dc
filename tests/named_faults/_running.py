"""One test under one fault, in a process that ends afterwards."""

import contextlib
import importlib
import io

import pytest
from hypothesis import Phase, settings

from tests.named_faults import FAULTS, Seams, all_faults

OPTIONS = ["-q", "-x", "--no-header", "-p", "no:cacheprovider", "-W", "ignore", "-o", "timeout=240"]

FAULTY = ("src/privatile", "tests/named_faults")
"""An assertion that fails there is not the test's own."""

Outcome = tuple[str, str]
"""In one or two words, and what explains it."""


class _Outcomes:
    """What became of the tests of one session."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.passed: set[str] = set()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
        report = (yield).get_result()
        if report.failed:
            noticed = report.when == "call" and call.excinfo is not None and _is_assertion(call.excinfo)
            self.failures.append("" if noticed else f"{report.when}: {call.excinfo and call.excinfo.exconly()}")
        elif report.passed and report.when == "call":
            self.passed.add(item.nodeid)


def _is_assertion(caught: "pytest.ExceptionInfo[BaseException]") -> bool:
    """Whether the test itself has failed by an assertion, or by a `pytest.raises` that saw nothing raised."""
    if not caught.errisinstance((AssertionError, pytest.fail.Exception)) or str(caught.value).startswith("Timeout"):
        return False
    return not any(part in str(caught.traceback[-1].path) for part in FAULTY)


def run_tests(node: str, name: str | None) -> Outcome:
    """The outcome of a test, in this process: "passed", "killed", "error" or "not run", and what it printed."""
    # A failure is enough: no search for a smaller one, and none that an earlier fault has left.
    settings.register_profile(
        "faults", database=None, derandomize=True, phases=(Phase.explicit, Phase.generate), report_multiple_bugs=False
    )
    settings.load_profile("faults")
    seams, outcomes, printed = Seams(), _Outcomes(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        if name is not None:
            all_faults()
            importlib.import_module(node.partition("::")[0].removesuffix(".py").replace("/", "."))
            FAULTS[name].plant(seams)
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


def run_safely(task: tuple[str, str | None]) -> Outcome:
    try:
        return run_tests(*task)
    except Exception as error:  # a fault that cannot be planted: its seam has moved
        return "error", f"{type(error).__name__}: {error}"
