"""Where a run stands, read from its file: a text for people, and the same facts for programs."""

import math
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from privatile.core.text import counted, duration, event_line, printable
from privatile.result.result import QuantileResult
from privatile.run.run_file import RunStore
from privatile.run.state import STATES, Alarm, Event, RunState, last_events, read_state, sign_of_life
from privatile.run.tables import folder_facts, running_process
from privatile.run.view import RunView

SHOWN_CLIENTS = 20
EVENTS = 10

FACTS = ("level", "estimate", "confidence_interval", "condition", "grid_values", "other_interval", "contradiction")
"""What a status tells programs about the result of a level."""


@dataclass(frozen=True)
class RunStatus:
    """A run from outside; `extra`, `lines` and what stands before them are added by a federation's folder."""

    run: str
    state: str
    levels: tuple[float, ...]
    done: int = 0
    planned: int = 0
    records: int = 0
    """Records that have answered."""
    last_round: float | None = None
    """When the last round was closed, in seconds since 1970."""
    process: int | None = None
    silent: dict[str, int] = field(default_factory=dict)
    """Rounds in a row without an answer, by client."""
    quarantined: dict[str, str] = field(default_factory=dict)
    heard: dict[str, float | None] = field(default_factory=dict)
    """When each client was heard last, in seconds since 1970; empty before the run has begun."""
    events: tuple[Event, ...] = ()
    results: tuple[QuantileResult, ...] = ()
    """None while a level is still being searched for."""
    alarms: tuple[Alarm, ...] = ()
    """What is wrong now, the worst first."""
    organization: str | None = None
    """Whose view it is, where every organization has a file of the same run."""
    holder: str = ""
    """Whose process holds the folder, in words; empty for a file without such a folder."""
    sign_of_life: str = ""
    """What the times in `heard` are."""
    rounds_are: str = ""
    """What its rounds are besides done."""
    not_admitted: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)
    """What the folder of an extension adds."""
    lines: tuple[str, ...] = ()
    """The same in words."""
    read_at: float = field(default_factory=time.time)
    """When the file was read, which is replayed after that."""

    @property
    def is_over(self) -> bool:
        """Whether nobody is asked any more."""
        return self.state in ("finished", "aborted")

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        names = ("run", "state", "levels", "done", "planned", "records", "last_round", "process", "silent")
        plain = {name: getattr(self, name) for name in (*names, "quarantined", "not_admitted", "heard")}
        events, alarms = ([one._asdict() for one in some] for some in (self.events, self.alarms))
        answers = []
        for result in self.results:
            whole = result.facts()
            answers.append({key: whole[key] for key in ("sentence", *FACTS)} | {"beside": beside(result)})
        return plain | {"events": events, "alarms": alarms, "answers": answers} | self.extra

    def to_text(self) -> str:
        """A few lines for people."""
        now = self.read_at
        process = f", process {self.process}" if self.process else f", no {self.holder} running" if self.holder else ""
        known = STATES.get(self.state)
        why = f": {known.about}" if known and known.tone in ("note", "worry") and not self.alarms else ""
        last = "" if self.last_round is None or self.is_over else f", the last {duration(now - self.last_round)} ago"
        lines = [
            f"run          {printable(self.run)}"
            + (f", as {printable(self.organization)} sees it" if self.organization else ""),
            f"state        {self.state}{process}{why}",
            f"{'levels' if len(self.levels) > 1 else 'level ':<13}{', '.join(f'{level:g}' for level in self.levels)}",
            f"rounds       {self.done:,}"
            + (f" of {self.planned:,}" if self.planned else ", as many as it takes")
            + (f" {self.rounds_are}" if self.rounds_are else "")
            + f"{last}; {counted(self.records, 'answer')}",
        ]
        lines += [f"ALARM        {alarm.title}: {alarm.text}" for alarm in self.alarms[:SHOWN_CLIENTS]]
        lines += [*self.lines, *self._answer_lines(), *self._client_lines(now)]
        lines += [f"silent       {name}, {counted(rounds, 'round')}" for name, rounds in sorted(self.silent.items())]
        lines += [f"quarantined  {name}: {reason}" for name, reason in sorted(self.quarantined.items())]
        if self.not_admitted:
            lines.append(f"not admitted {', '.join(self.not_admitted)}")
        lines += [f"event        {event_line(*event, now=now)}" for event in self.events]
        return "\n".join(printable(line) for line in lines)

    def _answer_lines(self) -> list[str]:
        """The result of every level, and what is said about it."""
        lines, told = [], dict[str, None]()
        for result in self.results:
            lines.append(f"{'so far' if self.state != 'finished' else 'result':<13}{result.sentence}")
            lines += [f"             {text}" for text in beside(result)]
            told |= dict.fromkeys(f"look here    {caveat.text}" for caveat in result.shown.act)
        for result in self.results:
            told |= dict.fromkeys(f"note         {caveat.text}" for caveat in result.shown.rest)
        if not self.results and self.done:
            lines.append("so far       no interval yet: the quantile is still being searched for")
        return [*lines, *told]

    def _client_lines(self, now: float) -> list[str]:
        """Who was heard when, while the run goes on. Of many, those first that have been missing the longest."""
        if self.is_over:
            return []
        names, word = list(self.heard), self.sign_of_life
        if len(names) > SHOWN_CLIENTS:
            names.sort(key=lambda name: self.heard[name] or 0.0)
        lines = []
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


def beside(result: QuantileResult) -> list[str]:
    """The other interval of a result with its condition, or why there is none, in words."""
    shown = result.shown
    if shown.undeclared and result.located:
        return [f"If it is not so: {shown.undeclared}."]
    if shown.other is None:
        return [f"{result.contradiction[0].upper()}{result.contradiction[1:]}."] if result.contradiction else []
    low, high = shown.other.ends
    return [f"Beside it: {low} to {high}, {shown.other.condition}."]


def read_run(path: Path) -> RunStatus:
    """Where the run in a file stands; the file may be written meanwhile."""
    read_at = time.time()
    with RunStore.open(path, read_only=True) as store, store.snapshot():
        view = RunView(store)
        return replace(status_of(store, view, read_state(store, view.levels)), read_at=read_at)


def status_of(store: RunStore, view: RunView, now: RunState) -> RunStatus:
    """Where a run stands that was just read."""
    facts = folder_facts(Path(store.path).parent)
    results = tuple(result for result in view.results() if result is not None)
    level = max(view.levels, key=len)
    times, federated = level.track.times, bool(store.query("SELECT 1 FROM federation"))
    answered = [None if math.isnan(at) else float(at) for at in level.last_answer]
    heard = {client.name: at for client, at in zip(view.spec.clients, answered, strict=True)}
    if federated:
        heard = {name: now.heard.get(name) for name in heard}
    return RunStatus(
        view.run,
        now.word,
        view.spec.levels,
        view.done,
        view.planned,
        view.records,
        times[-1] if times else None,
        None if facts is None else running_process(facts.process_file),
        now.silent,
        now.quarantined,
        heard,
        last_events(store, EVENTS),
        results if len(results) == len(view.levels) else (),
        now.alarms,
        None if facts is None else facts.organization,
        "" if facts is None else facts.holder.removeprefix("the "),
        sign_of_life(store)[0] if federated else "last answer",
    )
