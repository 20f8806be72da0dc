"""How far a federation's run is, read from outside, and everything that is wrong with its folder.

What `privatile federation check` says: the folder, and whether everybody is there, as findings with a verdict.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

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
    read_at = time.time()
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
        read_at=read_at,
    )


def run_results(directory: Directory) -> Results:
    """The results of a run so far, one per level; none where an open run has no interval yet."""
    if not directory.store_file.exists():
        raise StoreError(f"{directory.store_file}: the run has not begun.")
    view = RunView.read(directory.store_file)
    return Results() if view.spec.design == "open" and None in view.results() else view.all_results()


@dataclass(frozen=True)
class CheckReport:
    """All that was found, and what it comes to."""

    verdict: str
    notes: Sequence[str] = ()
    """To do, or to know."""
    errors: Sequence[str] = ()
    """The run cannot go on so."""
    alarms: Sequence[str] = ()
    """Somebody is missing, or the process."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        told = (("note", self.notes), ("error", self.errors), ("alarm", self.alarms))
        found = [{"state": state, "text": text} for state, texts in told for text in texts]
        return {"in_order": not self.errors and not self.alarms, "verdict": self.verdict, "findings": found}

    def to_text(self) -> str:
        """One line per note and alarm, then the verdict; errors are said by who reports them."""
        lines = [f"note   {text}" for text in self.notes] + [f"ALARM  {text}" for text in self.alarms]
        return "\n".join(lines if self.errors else [*lines, self.verdict])


def look(directory: Directory) -> CheckReport:
    """Look at everything in a folder, and at its run."""
    found = check(directory)
    notes, alarms = [*found.remarks], [*found.missing]
    if found.errors:
        return CheckReport("This federation is not ready.", notes, found.errors)
    status = read_status(directory)
    for alarm in status.alarms:
        # A run that somebody has stopped is looked at before it is started again: no fault, but it is said.
        (notes if alarm.was_asked_for else alarms).append(f"{alarm.title}: {alarm.text}")
    if alarms:
        killed = any(alarm.kind == "stopped" and not alarm.was_asked_for for alarm in status.alarms)
        wrong = "the run's process has ended" if killed else "not everybody is there"
        verdict = f"The folder is as it should be, but {wrong}: see the alarms."
    elif status.state == "aborted":
        verdict = "The run was aborted: nobody is asked any more. What was answered stays spent."
    elif notes:
        verdict = "Nothing is wrong; the notes above say what is still to do or to know."
    else:
        verdict = "Everything is in order."
    return CheckReport(verdict, notes, alarms=alarms)
