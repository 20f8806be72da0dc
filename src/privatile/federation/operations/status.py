"""How far a run is, read from outside, and everything that is wrong with its folder.

How far a run is, read from outside.

What `privatile federation check` says: the folder, and whether everybody is there, as findings with a verdict.
"""

import time
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from privatile.core.text import counted, duration, event_line
from privatile.errors import StoreError
from privatile.federation.coordinator.journal import Event, Journal
from privatile.federation.setup.check import check
from privatile.federation.setup.folder import ORGANIZER, Directory, FolderWords
from privatile.result.result import QuantileResult
from privatile.run.coordinator import Coordinator, has_interval
from privatile.run.locks import run_lives
from privatile.run.run_file import RunStore
from privatile.run.state import SIGN_OF_LIFE, Alarm, read_alarms, run_state, sign_of_life, silent_rounds
from privatile.run.tables import folder_facts, running_process

SHOWN_CLIENTS = 20

WORDS = ("extra", "lines", "organization", "words", "sign_of_life")
"""Fields of a status that are words for people, or are shown otherwise."""


@dataclass(frozen=True)
class Status:
    """A run from outside."""

    run: str
    state: str
    levels: tuple[float, ...]
    done: int
    planned: int
    process: int | None
    silent: dict[str, int]
    """Rounds in a row without an answer, by client."""
    quarantined: dict[str, str]
    not_admitted: tuple[str, ...]
    heard: dict[str, float | None]
    """When each client was heard last, in seconds since 1970; empty before the run has begun."""
    events: tuple[Event, ...]
    answers: tuple[tuple[str, dict[str, Any]], ...] = ()
    """Of each level that has an interval so far: its sentence, and its main facts."""
    alarms: tuple[Alarm, ...] = ()
    """What is wrong now, the worst first."""
    extra: dict[str, Any] = field(default_factory=dict)
    """What the folder of an extension adds."""
    lines: tuple[str, ...] = ()
    """The same in words."""
    organization: str | None = None
    """Whose view it is, where every organization has a file of the same run."""
    words: FolderWords = ORGANIZER
    """How the folder's process and rounds are called."""
    sign_of_life: str = SIGN_OF_LIFE[0]
    """What the times in `heard` are."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        answers = [{"sentence": sentence, **facts} for sentence, facts in self.answers]
        events, alarms = ([one._asdict() for one in some] for some in (self.events, self.alarms))
        plain = {key: value for key, value in asdict(self).items() if key not in WORDS}
        return plain | {"events": events, "alarms": alarms, "answers": answers} | self.extra

    def to_text(self) -> str:
        """A few lines for people."""
        now = time.time()
        process = f", process {self.process}" if self.process else f", no {self.words.holder} running"
        lines = [
            f"run          {self.run}" + (f", as {self.organization} sees it" if self.organization else ""),
            f"state        {self.state}{process}",
            f"{'levels' if len(self.levels) > 1 else 'level ':<13}{', '.join(f'{level:g}' for level in self.levels)}",
            f"rounds       {self.done:,}"
            + (f" of {self.planned:,}" if self.planned else ", as many as it takes")
            + (f" {self.words.rounds_are}" if self.words.rounds_are else ""),
        ]
        lines += [f"ALARM        {alarm.title}: {alarm.text}" for alarm in self.alarms[:SHOWN_CLIENTS]]
        lines += self.lines
        for sentence, facts in self.answers:
            lines.append(f"so far       {sentence}" if self.state != "finished" else f"result       {sentence}")
            lines += [f"             {text}" for text in facts["beside"]]
        lines += self._client_lines(now)
        lines += [f"silent       {name}, {counted(rounds, 'round')}" for name, rounds in sorted(self.silent.items())]
        lines += [f"quarantined  {name}: {reason}" for name, reason in sorted(self.quarantined.items())]
        if self.not_admitted:
            lines.append(f"not admitted {', '.join(self.not_admitted)}")
        for event in self.events:
            lines.append(f"event        {event_line(*event, now=now)}")
        return "\n".join(lines)

    def _client_lines(self, now: float) -> list[str]:
        """Who was heard when. Of many, those first that have been missing the longest."""
        names = list(self.heard)
        if len(names) > SHOWN_CLIENTS:
            names.sort(key=lambda name: self.heard[name] or 0.0)
        lines, word = [], self.sign_of_life
        for name in names[:SHOWN_CLIENTS]:
            at = self.heard[name]
            lines.append(
                f"client       {name}, " + ("not heard yet" if at is None else f"{word} {duration(now - at)} ago")
            )
        if len(names) > SHOWN_CLIENTS:
            last = self.heard[names[SHOWN_CLIENTS]]
            since = "" if last is None else f", all {word} within the last {duration(now - last)}"
            lines.append(f"client       and {len(names) - SHOWN_CLIENTS:,} more{since}")
        return lines


def read_status(directory: Directory) -> Status:
    """Read a run's file while it is written."""
    study, roster = directory.study(), directory.roster()
    process = running_process(directory.pid_file)
    absent = tuple(sorted(set(study.clients) - set(roster.clients)))
    facts = folder_facts(directory.path)
    organization = None if facts is None else facts.organization
    if not directory.store_file.exists():
        state = (study.run, "not begun", study.levels, 0, study.rounds, process)
        extra, _ = directory.status_facts(None)
        return Status(*state, {}, {}, absent, {}, (), extra=extra, organization=organization, words=directory.words)
    with RunStore.open(directory.store_file, read_only=True) as store:
        journal, coordinator = Journal(store), Coordinator(store)
        events, heard = tuple(journal.events(10)), journal.heard()
        silent = silent_rounds(coordinator.tracks)
        alive = run_lives(store)
        alarms = tuple(read_alarms(store, silent, alive=alive))
        extra, lines = directory.status_facts(store)
        return Status(
            store.run,
            run_state(store, alarms, alive=alive),
            store.spec.levels,
            coordinator.done,
            coordinator.planned,
            process,
            silent,
            journal.quarantined(),
            absent,
            {client.name: heard.get(client.name) for client in store.spec.clients},
            events,
            _answers(coordinator),
            alarms,
            extra,
            tuple(lines),
            organization,
            directory.words,
            sign_of_life(store)[0],
        )


FACTS = ("level", "estimate", "confidence_interval", "condition", "grid_values", "other_interval", "contradiction")
"""What a status tells programs about the result of a level."""


def _answers(coordinator: Coordinator) -> tuple[tuple[str, dict[str, Any]], ...]:
    """The results so far; none while a level is still being searched for."""
    if not has_interval(coordinator.tracks):
        return ()
    found = []
    for result in coordinator.results():
        whole = result.facts()
        found.append((result.sentence, {**{key: whole[key] for key in FACTS}, "beside": beside(result)}))
    return tuple(found)


def beside(result: QuantileResult) -> list[str]:
    """The other interval of a result with its condition, or why there is none, in words."""
    shown = result.shown
    if shown.undeclared and result.located:
        return [f"If it is not so: {shown.undeclared}."]
    if shown.other is None:
        return [f"{result.contradiction[0].upper()}{result.contradiction[1:]}."] if result.contradiction else []
    low, high = shown.other.ends
    return [f"Beside it: {low} to {high}, {shown.other.condition}."]


def run_results(directory: Directory) -> tuple[QuantileResult, ...]:
    """The results of a run so far, one per level; none where an open run has no interval yet."""
    if not directory.store_file.exists():
        raise StoreError(f"{directory.store_file}: the run has not begun.")
    with RunStore.open(directory.store_file, read_only=True) as store:
        coordinator = Coordinator(store)
        return () if store.spec.design == "open" and not has_interval(coordinator.tracks) else coordinator.results()


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
