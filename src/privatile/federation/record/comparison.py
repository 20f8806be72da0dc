"""A record's result beside the one its counts give: what must agree, and what only the same program says alike.

    figures    estimate and interval
    settings   what study and counts fix: rounds, records, budgets, levels, weights
    words      estimand, method, caveats, diagnostics, explanation: another version may say them otherwise, or say more

Figures and settings hold or fail whichever version made the record. Words fail only between runs of one program; of
another's, the difference is shown, since nobody but that program can tell an older wording from an altered one.
"""

from __future__ import annotations

import functools
import hashlib
import math
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from privatile import __version__

SAME = 1e-9
"""Relative difference allowed to a number recomputed on another machine; the estimate itself must be identical."""

FIGURES = ("estimate", "confidence_interval")
SETTINGS = ("rounds", "records", "level", "confidence_level", "epsilon", "run", "target", "design", "mode", "simulated")
OF_A_CLIENT = ("name", "records", "asked", "epsilon", "truth_rate", "weight", "level")


@functools.cache
def program() -> str:
    """What the program is: the version alone does not tell two builds apart."""
    return hash_sources(Path(str(files("privatile"))))


def hash_sources(root: Path) -> str:
    """SHA-256 of the version and of all Python files below `root`, with their names."""
    digest = hashlib.sha256(__version__.encode())
    for source in sorted(root.rglob("*.py")):
        name = source.relative_to(root).as_posix()
        digest.update(name.encode() + b"\0" + source.read_text(encoding="utf-8").encode() + b"\0")
    return digest.hexdigest()


def alike(told: object, mine: object) -> bool:
    """Whether two JSON values are the same, their real numbers to nine digits.

    >>> alike({"a": [1, 0.1 + 0.2]}, {"a": [1, 0.3]}), alike({"a": 1}, {"a": 2}), alike([1], [1, 1]), alike("1", 1)
    (True, False, False, False)
    """
    if isinstance(told, dict) and isinstance(mine, dict):
        return told.keys() == mine.keys() and all(alike(told[key], mine[key]) for key in mine)
    if isinstance(told, list) and isinstance(mine, list):
        return len(told) == len(mine) and all(map(alike, told, mine))
    if isinstance(told, int | float) and isinstance(mine, int | float) and float in (type(told), type(mine)):
        return math.isclose(told, mine, rel_tol=SAME, abs_tol=SAME)
    return type(told) is type(mine) and told == mine


@dataclass(frozen=True)
class Comparison:
    """Where a record's result and the recomputed one part; empty where they agree."""

    estimate: bool
    interval: bool
    settings: tuple[str, ...]
    words: tuple[str, ...]
    untold: tuple[str, ...]
    """Texts of the caveats that the record lacks."""


def compare(told: dict[str, Any], mine: dict[str, Any]) -> Comparison:
    """Two results as plain JSON: the record's, and the one recomputed here."""
    settings = [key for key in SETTINGS if not alike(told.get(key), mine[key])]
    told_clients, mine_clients = told.get("clients"), mine["clients"]
    if not alike(_of_clients(told_clients, fixed=True), _of_clients(mine_clients, fixed=True)):
        settings.append("clients")
    apart = {*FIGURES, *SETTINGS, "clients"}
    words = [key for key in sorted((told.keys() | mine.keys()) - apart) if not alike(told.get(key), mine.get(key))]
    if not alike(_of_clients(told_clients, fixed=False), _of_clients(mine_clients, fixed=False)):
        words.append("ranks of the clients")
    codes = _codes(told.get("caveats"))
    return Comparison(
        estimate=type(told.get("estimate")) is type(mine["estimate"]) and told["estimate"] == mine["estimate"],
        interval=alike(told.get("confidence_interval"), mine["confidence_interval"]),
        settings=tuple(settings),
        words=tuple(words),
        untold=tuple(caveat["text"] for caveat in mine["caveats"] if caveat["code"] not in codes),
    )


def _of_clients(clients: object, *, fixed: bool) -> list[dict[str, Any]] | None:
    """What was fixed of each client, or what was found; nothing where the list is none."""
    if not isinstance(clients, list) or not all(isinstance(client, dict) for client in clients):
        return None
    return [{key: client[key] for key in client if (key in OF_A_CLIENT) is fixed} for client in clients]


def _codes(caveats: object) -> set[str]:
    found = caveats if isinstance(caveats, list) else []
    return {str(caveat.get("code")) for caveat in found if isinstance(caveat, dict)}
