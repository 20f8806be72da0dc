"""A run that is still going: read its file again and again, and say what is new as plain values.

The dashboard knows the file and nothing else: it cannot disturb a run, and it works the same whether the run is in
this process, in another one, or over.
"""

from __future__ import annotations

import math
import sqlite3
import time
from pathlib import Path
from typing import Any

import numpy as np

from privatile.errors import StoreError
from privatile.report.findings import caveat_findings
from privatile.report.view import LevelView, RunRecord, RunView
from privatile.result.result import QuantileResult, finite, lying_rank
from privatile.server.store import RunStore
from privatile.server.writer import writer_lives

POINTS = 600
"""Points of a level's path: more than a phone has pixels, few enough to send to fifty viewers every second."""

SHOWN_CLIENTS = 200
"""Clients listed; the silent and the quarantined come first."""

RECENT = 30.0
"""Seconds over which the rate of rounds is measured."""

EVENTS = 50


def find_run(path: Path) -> Path:
    """A run's file: itself, or the one in a federation's folder."""
    return path / "run.db" if path.is_dir() else path


class LiveRun:
    """A run's file, followed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._store: RunStore | None = None
        self._record: RunRecord | None = None
        self._tables: sqlite3.Connection | None = None
        self._seen: tuple[Any, ...] = ()
        self._state: dict[str, Any] | None = None

    def refresh(self) -> bool:
        """Read what is new; true when there is anything to show that was not there before."""
        if not self._open() or self._record is None or self._store is None:
            return False
        fresh = self._record.refresh(self._store)
        self._record.finished = self._one("SELECT finished FROM run")
        seen = (
            self._record.finished,
            self._one("SELECT count(*) FROM events"),
            self._one("SELECT group_concat(client) FROM quarantined"),
            self._lives(),
            self._quiet(),
        )
        changed = bool(fresh) or seen != self._seen or self._state is None
        self._seen = seen
        if changed:
            self._state = self._work_out(self._record)
        return changed

    def _lives(self) -> bool | None:
        """Whether the process that writes the run lives; none where that cannot be known."""
        return writer_lives(self._query("SELECT machine, process FROM writer"))

    def _quiet(self) -> bool:
        """Whether nothing has moved for a while."""
        if self._record is None or self._store is None:
            return False
        last = max((float(history.at[-1]) for history in self._record.histories if len(history)), default=0.0)
        return time.time() - max(last, self._store.created) > RECENT

    def _status(self, events: list[dict[str, Any]], last_round: float) -> str:
        """In a word. A run that no process carries on is stopped; where that cannot be known, its silence is told."""
        if self.finished:
            return "finished"
        if any(event["kind"] == "aborted" for event in events):
            return "aborted"
        lives = self._lives()
        if lives is False:
            return "stopped"
        if events and events[0]["kind"] == "paused" and events[0]["at"] >= last_round:
            return "paused"
        return "no news" if lives is None and self._quiet() else "running"

    @property
    def state(self) -> dict[str, Any]:
        """All there is to show, as of the last refresh."""
        return self._state or {"waiting": True, "now": time.time()}

    @property
    def finished(self) -> bool:
        """Whether the run is over."""
        return self._record is not None and self._record.finished is not None

    def close(self) -> None:
        """Let go of the file."""
        for each in (self._store, self._tables):
            if each is not None:
                each.close()
        self._store = self._record = self._tables = None

    def _open(self) -> bool:
        if self._store is not None:
            return True
        if not self.path.is_file():
            return False
        try:
            self._store = RunStore.open(self.path, read_only=True)
            self._tables = sqlite3.connect(
                f"{self.path.resolve().as_uri()}?mode=ro", uri=True, timeout=5.0, check_same_thread=False
            )
            self._record = RunRecord(self._store)
        except StoreError:
            self.close()  # a file in the making has no run in it yet
            if self.path.stat().st_size and time.time() - self.path.stat().st_mtime > 5.0:
                raise
            return False
        return True

    def _query(self, statement: str) -> list[tuple[Any, ...]]:
        """Rows; none where the table is not there (a run without a federation has no events)."""
        if self._tables is None:
            return []
        try:
            return self._tables.execute(statement).fetchall()
        except sqlite3.OperationalError:
            return []

    def _one(self, statement: str) -> Any:
        rows = self._query(statement)
        return rows[0][0] if rows else None

    def _work_out(self, record: RunRecord) -> dict[str, Any]:
        view = record.view()
        history = record.histories[0]
        times, now = history.at, time.time()
        quarantined = dict(self._query("SELECT client, reason FROM quarantined"))
        events = [
            {"at": at, "kind": kind, "client": client, "round": number, "text": text}
            for at, kind, client, number, text in self._query(
                f"SELECT at, kind, client, round, text FROM events ORDER BY rowid DESC LIMIT {EVENTS}"
            )
        ]
        status = self._status(events, float(times[-1]) if len(times) else 0.0)
        return {
            "waiting": False,
            "now": now,
            "run": view.run,
            "value": view.spec.value,
            "simulated": view.spec.simulated,
            "confidence_level": view.spec.confidence_level,
            "status": status,
            "started": view.created,
            "finished": record.finished,
            "last_round_at": float(times[-1]) if len(times) else None,
            "until_width": view.spec.until_width,
            "done": view.done,
            "planned": view.planned,
            "rate": _rate(times, now) if status == "running" else None,
            "records": view.records,
            "levels": [_level(view, level) for level in view.levels],
            "clients": _clients(view, quarantined),
            "events": events,
        }


def _rate(times: np.ndarray[Any, np.dtype[np.float64]], now: float) -> float | None:
    """Rounds a second lately; none while nothing has moved for a while."""
    recent = times[times > now - RECENT]
    if len(recent) < 2 or recent[-1] <= recent[0]:
        return None
    return (len(recent) - 1) / float(max(now, recent[-1]) - recent[0])


def _level(view: RunView, level: LevelView) -> dict[str, Any]:
    path = level.path(POINTS)
    result = level.result
    shown: dict[str, Any] = {
        "level": level.level,
        "burn_in": level.history.burn_in,
        "averaged": 0 if result is None else result.averaged_rounds,
        "path": path.to_dict(),
        "estimate": None,
        "fixed": None,
        "anytime": None,
        "estimand": None,
        "caveats": [],
    }
    if result is not None:
        low, high = result.confidence_interval
        shown |= {
            "estimate": result.estimate,
            "fixed": {"low": low, "high": high, "method": result.method},
            "anytime": anytime_of(result),
            "estimand": result.estimand,
            "caveats": [caveat._asdict() for caveat in caveat_findings(result)],
        }
    return shown


def anytime_of(result: QuantileResult) -> dict[str, float] | None:
    """The interval that may be looked at as often as one likes; none where the run has none yet."""
    return None if result.anytime is None else {"low": result.anytime.low, "high": result.anytime.high}


def _clients(view: RunView, quarantined: dict[str, str]) -> dict[str, Any]:
    history = view.levels[0].history
    streaks = history.silent_streak
    asked = [sum(counts) for counts in zip(*(level.history.state.asked for level in view.levels), strict=True)]
    states = [
        "quarantined" if client.name in quarantined else "silent" if streak else "alive" if answered else "awaited"
        for client, streak, answered in zip(view.spec.clients, streaks, history.answered, strict=True)
    ]
    counts = {state: states.count(state) for state in ("alive", "silent", "awaited", "quarantined")}
    order = sorted(range(len(states)), key=lambda k: (states[k] == "alive", k))[:SHOWN_CLIENTS]
    plan = history.plan
    return {
        "counts": counts,
        "all": len(states),
        "listed": [
            {
                "name": view.spec.clients[k].name,
                "state": states[k],
                "reason": quarantined.get(view.spec.clients[k].name),
                "silent_rounds": int(streaks[k]),
                "last_answer": None if math.isnan(history.last_answer[k]) else float(history.last_answer[k]),
                "answered": int(history.answered[k]),
                "missed": int(history.silent[k]),
                "records": view.spec.clients[k].records,
                "asked": asked[k],
                "epsilon": finite(view.spec.clients[k].mechanism.epsilon),
                "weight": view.spec.clients[k].weight,
                "lying_rank": finite(lying_rank(plan.clients[k], plan.level)),
            }
            for k in order
        ],
    }
