"""The state of a run as plain values, read from its file again and again.

The dashboard knows the file and nothing else: it cannot disturb a run, and it works the same whether the run is in
this process, in another one, or over.
"""

import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from privatile.core.arrays import Floats
from privatile.core.extensions import of_file
from privatile.core.text import counted, percent_text, printable
from privatile.errors import InputError, StoreError
from privatile.report.charts import OTHER_NAMES
from privatile.report.path import thin_path
from privatile.report.run_page import caveat_findings
from privatile.result.shown import ShownInterval, finite, lying_rank
from privatile.run.run_file import RunStore
from privatile.run.state import (
    CLIENT_KINDS,
    OVER,
    STATES,
    Badge,
    RunState,
    event_tone,
    last_events,
    read_state,
    sign_of_life,
    state_tone,
)
from privatile.run.tables import folder_facts, no_run_in
from privatile.run.view import LevelView, RunView

POINTS = 600
"""Points of a level's path: more than a phone has pixels, few enough to send to fifty viewers every second."""

SHOWN_CLIENTS = 200
"""Clients listed; the silent and the quarantined come first."""

LATELY, MIN_ROUNDS = 10.0, 5
"""The rounds of so many seconds give the pace; where fewer were closed in them, so many rounds."""

RECENT = 30.0
"""Seconds without a round after which there is no pace, unless rounds take as long."""

OLD = 2.0
"""Seconds after which a pace is measured again, though no round came."""

NEW_FILE = 5.0
"""Seconds for which a file without a run may be one that is just being made."""

EVENTS = 50


def find_run(path: Path) -> Path:
    """A run's file: itself, or the one in a federation's folder; one in which no run will ever be is refused."""
    found = path / "run.db" if path.is_dir() else path
    if found.name == "run.db" and not found.exists() and (why := no_run_in(found.parent)):
        raise InputError(why)
    return found


class LiveRun:
    """A run's file, read again at every refresh."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._store: RunStore | None = None
        self._view: RunView | None = None
        self._seen: tuple[Any, ...] = ()
        self.state: dict[str, Any] = nothing_yet(path)
        """All there is to show, as of the last refresh."""

    @property
    def finished(self) -> bool:
        """Whether the run is over."""
        return self._view is not None and self._view.finished is not None

    def refresh(self) -> bool:
        """Read what is new; true when there is anything to show that was not there before."""
        store = self._store or self._open()
        if store is None:
            before, found = self.state, nothing_yet(self.path)
            if found["waits_for"] == before["waits_for"]:
                return False
            self.state = found
            return True
        with store.snapshot():
            fresh = self._view is None or self._view.refresh()
            view = self._view = self._view or RunView(store, drawn=True)
            now = read_state(store, view.levels)
            happened, extension = last_events(store, EVENTS), of_file(store.query)
            count = store.query("SELECT count(*) FROM events")
        # An alarm says how long ago something was: its words are other ones after a while.
        seen = (now.word, count, now.quarantined, now.heard, [(*alarm[:2], alarm.text) for alarm in now.alarms])
        is_old = self.state.get("rate") is not None and time.time() - self.state["now"] > OLD
        if not fresh and seen == self._seen and not is_old:
            return False
        self._seen = seen
        events = [{**event._asdict(), "tone": event_tone(event.kind, extension)} for event in reversed(happened)]
        self.state = _state(view, now.word, events, _clients(view, now)) | {
            "organization": None if (facts := folder_facts(self.path.parent)) is None else facts.organization,
            "sign_of_life": sign_of_life(store)[1] if store.query("SELECT 1 FROM federation") else "last answer",
            "badge": now.badge.facts(),
            "alarms": [{**alarm._asdict(), "title": alarm.title} for alarm in now.alarms[:SHOWN_CLIENTS]],
        }
        return True

    def note_trouble(self, error: Exception) -> None:
        """The file could not be read: what was shown stays, with the reason; where nothing was, the badge says it."""
        self._seen = ()  # the next look that succeeds is news
        self.state = {**self.state, "now": time.time(), "trouble": printable(f"{type(error).__name__}: {error}")}
        if self.state["waiting"]:
            self.state["badge"] = Badge("unreadable", "cannot be read").facts()

    @property
    def healthy(self) -> bool:
        """Whether the run goes on, or is finished: nothing that people should look at now."""
        state = self.state
        quiet = not (state["waiting"] or state["alarms"] or state.get("trouble"))
        return quiet and state["status"] in ("running", "finished")

    def close(self) -> None:
        """Close the file."""
        if self._store is not None:
            self._store.close()
        self._store = self._view = None

    def _open(self) -> RunStore | None:
        self.path = find_run(self.path)  # a folder may have come meanwhile
        if not self.path.is_file():
            return None
        try:
            self._store = RunStore.open(self.path, read_only=True)
        except StoreError:
            found = self.path.stat()
            if found.st_size and time.time() - found.st_mtime > NEW_FILE:
                raise
        return self._store


def nothing_yet(path: Path) -> dict[str, Any]:
    """The state before there is a run's file: what the page waits for, in words."""
    if path.is_file():
        waits_for = f"the first look at the run's file {path}"
    elif (facts := folder_facts(path.parent)) is not None:
        waits_for = f"{facts.holder}: `{facts.begins}` begins the run"
    else:
        waits_for = f"the run's file {path}: the command that makes it has not begun to ask"
    return {
        "waiting": True,
        "now": time.time(),
        "waits_for": waits_for,
        "badge": Badge("waiting", "reading the file" if path.is_file() else "waiting for the run to begin").facts(),
        "alarms": [],
    }


def _state(view: RunView, status: str, events: list[dict[str, Any]], clients: dict[str, Any]) -> dict[str, Any]:
    times, now = view.levels[0].at, time.time()
    return {
        "waiting": False,
        "now": now,
        "run": view.run,
        "value": view.spec.value,
        "simulated": view.spec.simulated,
        "percent": percent_text(view.spec.confidence_level),
        "status": status,
        "goes_on": status == "running",
        "is_over": status in OVER,
        "ended": STATES[status].about,
        "started": view.created,
        "finished": view.finished,
        "last_round_at": float(times[-1]) if len(times) else None,
        "until_width": view.spec.until_width,
        "done": view.done,
        "planned": view.planned,
        "rate": _rate(times, now) if status == "running" else None,
        "records": view.records,
        "levels": [_level(level) for level in view.levels],
        "clients": clients,
        "events": events,
    }


def _rate(times: Floats, now: float) -> float | None:
    """Rounds per second lately; none while there are no new ones.

    Twenty rounds in two seconds, then five of five seconds each: those five are the pace. A wait that is longer than
    such a round counts; one of a minute, here, ends it.

    >>> times = np.array([*np.arange(0, 2, 0.1), 7.0, 12.0, 17.0, 22.0, 27.0])
    >>> [_rate(times, now) and round(_rate(times, now), 2) for now in (27.0, 31.0, 37.0, 87.0)]
    [0.2, 0.2, 0.17, None]
    """
    if len(times) < 2:
        return None
    count = min(max(int(np.sum(times > times[-1] - LATELY)) - 1, MIN_ROUNDS), len(times) - 1)
    lasted, waits = float(times[-1] - times[-1 - count]), now - float(times[-1])
    if lasted <= 0 or waits > max(RECENT, 3 * lasted / count):
        return None
    return count / (lasted + max(waits - lasted / count, 0.0))


def _level(level: LevelView) -> dict[str, Any]:
    result = level.result
    shown: dict[str, Any] = {
        "level": level.level,
        "straddles": level.straddles,
        "path": thin_path(level, POINTS).to_dict(),
    }
    if result is None:
        nothing = dict.fromkeys(("headline", "shown", "fixed", "anytime", "other", "estimand"))
        nothing |= {"always": False, "located": False, "values_left": "", "undeclared": "", "contradiction": ""}
        return {**shown, **nothing, "caveats": []}
    told, other = result.shown, result.other
    return shown | {
        "headline": told.headline,
        "located": result.located,
        "always": result.valid_at_every_look,
        "shown": "anytime" if told.is_so_far else "fixed",
        "fixed": _interval(told.own),
        "anytime": None if told.anytime is None else _interval(told.anytime),
        "other": None
        if other is None or told.other is None
        else {**_interval(told.other), "name": OTHER_NAMES[other.method]},
        "values_left": told.values_left,
        "undeclared": told.undeclared,
        "contradiction": result.contradiction,
        "estimand": result.estimand,
        "caveats": [caveat._asdict() for caveat in caveat_findings(result)],
    }


def _interval(one: ShownInterval) -> dict[str, Any]:
    """One interval in the words that people read; its ends as numbers for what is computed under the cursor."""
    names = ("low", "high", "text", "estimate", "condition", "width")
    return {name: getattr(one, name) for name in names}


def _client_text(state: str, name: str, now: RunState) -> str:
    """A client's state in a few words."""
    if state == "silent" and (missed := now.silent.get(name)):
        return f"silent for {counted(missed, 'round')}"
    if state == "quarantined":
        return f"quarantined: {now.quarantined.get(name, '')}"
    if state == "alive":
        return "alive" if now.word in ("running", "paused") else "answered"
    return "not heard yet" if state == "waiting" else state


def _clients(view: RunView, now: RunState) -> dict[str, Any]:
    """Everybody's state: that of the alarms, else whether anything came; of many, those with an alarm first."""
    level = max(view.levels, key=len)  # one that is over counts no more answers
    # Of a run that is over there are no alarms: then what its file says of the end.
    worst = dict.fromkeys(now.silent, "silent") | dict.fromkeys(now.quarantined, "quarantined")
    worst |= {alarm.client: alarm.kind for alarm in reversed(now.alarms) if alarm.client is not None}
    asked = [client.answered for client in view.clients.values()]
    states = [
        worst.get(client.name, "alive" if answered or client.name in now.heard else "waiting")
        for client, answered in zip(view.spec.clients, level.answered, strict=True)
    ]
    counts = {state: states.count(state) for state in CLIENT_KINDS}
    order = sorted(range(len(states)), key=lambda k: (states[k] == "alive", k))[:SHOWN_CLIENTS]
    plan, clients = level.plan, view.spec.clients
    return {
        "counts": counts,
        "all": len(states),
        "listed": [
            {
                "name": clients[k].name,
                "state": states[k],
                "tone": state_tone(states[k]),
                "text": _client_text(states[k], clients[k].name, now),
                "silent_rounds": now.silent.get(clients[k].name, 0),
                "last_answer": None if math.isnan(level.last_answer[k]) else float(level.last_answer[k]),
                "heard": now.heard.get(clients[k].name),
                "answered": int(level.answered[k]),
                "missed": int(level.silent[k]),
                "records": None if view.spec.design == "open" else view.spec.clients[k].records,
                "asked": asked[k],
                "epsilon": finite(view.spec.clients[k].mechanism.epsilon),
                "weight": view.spec.clients[k].weight,
                "lying_rank": finite(lying_rank(plan.clients[k], plan.level)),
            }
            for k in order
        ],
    }
