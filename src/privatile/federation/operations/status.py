"""How far a federation's run is, read from outside, and everything that is wrong with its folder.

What `privatile federation check` says: the folder, and whether everybody is there, as findings with a verdict.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from privatile.errors import StoreError
from privatile.federation.setup.check import check
from privatile.federation.setup.folder import Directory
from privatile.result.result import Results
from privatile.run.run_file import RunStore
from privatile.run.state import read_state
from privatile.run.status import RunStatus, status_of
from privatile.run.tables import folder_facts, running_process
from privatile.run.view import RunView


def read_status(directory: Directory) -> RunStatus:
    """Read a run's file while it is written, and the folder it lies in."""
    study, roster = directory.study(), directory.roster()
    absent = tuple(sorted(set(study.clients) - set(roster.clients)))
    words = directory.words
    if not directory.store_file.exists():
        facts = folder_facts(directory.path)
        return RunStatus(
            study.run,
            "not begun",
            study.levels,
            planned=study.rounds,
            process=running_process(directory.pid_file),
            organization=None if facts is None else facts.organization,
            holder=words.holder,
            not_admitted=absent,
            extra=directory.status_facts(None)[0],
        )
    with RunStore.open(directory.store_file, read_only=True) as store, store.snapshot():
        view = RunView(store)
        found = status_of(store, view, read_state(store, view.levels))
        extra, lines = directory.status_facts(store)
    return replace(
        found,
        holder=words.holder,
        rounds_are=words.rounds_are,
        not_admitted=absent,
        extra=extra,
        lines=tuple(lines),
    )


def run_results(directory: Directory) -> Results:
    """The results of a run so far, one per level; none where an open run has no interval yet."""
    if not directory.store_file.exists():
        raise StoreError(f"{directory.store_file}: the run has not begun.")
    view = RunView.read(directory.store_file)
    return Results() if view.spec.design == "open" and None in view.results() else view.all_results()


class Finding(NamedTuple):
    """One thing that was found."""

    state: str
    """error: the run cannot go on so; alarm: somebody is missing, or the process; note: to do, or to know."""
    text: str


@dataclass(frozen=True)
class CheckReport:
    """All that was found, and what it comes to."""

    findings: tuple[Finding, ...]
    verdict: str

    @property
    def errors(self) -> list[str]:
        """What has to be mended."""
        return self._texts("error")

    @property
    def alarms(self) -> list[str]:
        """Who is missing."""
        return self._texts("alarm")

    def _texts(self, state: str) -> list[str]:
        return [one.text for one in self.findings if one.state == state]

    @property
    def in_order(self) -> bool:
        """Whether nothing is wrong."""
        return not self.errors and not self.alarms

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        found = [one._asdict() for one in self.findings]
        return {"in_order": self.in_order, "verdict": self.verdict, "findings": found}

    def to_text(self) -> str:
        """One line per note and alarm, then the verdict; errors are said by who reports them."""
        labels = {"note": "note   ", "alarm": "ALARM  "}
        lines = [labels[one.state] + one.text for one in self.findings if one.state in labels]
        return "\n".join(lines if self.errors else [*lines, self.verdict])


def look(directory: Directory) -> CheckReport:
    """Look at everything in a folder, and at its run."""
    found = check(directory)
    findings = [Finding("note", text) for text in found.remarks]
    if found.errors:
        findings += [Finding("error", text) for text in found.errors]
        return CheckReport(tuple(findings), "This federation is not ready.")
    status = read_status(directory)
    # A run that somebody has stopped is looked at before it is started again: no fault, but it is said.
    told = [("alarm", text) for text in found.missing]
    told += [("note" if alarm.was_asked_for else "alarm", f"{alarm.title}: {alarm.text}") for alarm in status.alarms]
    findings += [Finding(*one) for one in sorted(told, key=lambda one: one[0] == "alarm")]
    if any(one.state == "alarm" for one in findings):
        killed = any(alarm.kind == "stopped" and not alarm.was_asked_for for alarm in status.alarms)
        wrong = "the run's process has ended" if killed else "not everybody is there"
        verdict = f"The folder is as it should be, but {wrong}: see the alarms."
    elif status.state == "aborted":
        verdict = "The run was aborted: nobody is asked any more. What was answered stays spent."
    elif findings:
        verdict = "Nothing is wrong; the notes above say what is still to do or to know."
    else:
        verdict = "Everything is in order."
    return CheckReport(tuple(findings), verdict)
