"""Compares the result in a record with the result that its counts give.

    figures    estimate and interval
    settings   what study and counts fix: rounds, records, budgets, levels, weights
    words      estimand, method, caveats, diagnostics, explanation

Figures and settings must agree whichever version of privatile made the record. Words must agree only if this program
made it: another version may use other words, and only that version can tell its own words from altered ones, so their
difference is shown and not judged.
"""

import math
from typing import Any

from privatile.core.messages import LARGEST_REAL

SAME = 1e-9
"""Relative difference allowed for a number recomputed on another machine, whose functions round otherwise."""

LAST_BITS = 4
"""Roundings that a figure may differ by besides."""

FIGURES = ("estimate", "confidence_interval")
SETTINGS = ("rounds", "records", "level", "confidence_level", "epsilon", "run", "target", "design", "mode", "simulated")
CLIENT_SETTINGS = ("name", "records", "asked", "epsilon", "truth_rate", "weight", "level")


def alike(recorded: object, recomputed: object) -> bool:
    """Whether two JSON values are the same, their real numbers to nine digits.

    >>> alike({"a": [1, 0.1 + 0.2]}, {"a": [1, 0.3]}), alike({"a": 1}, {"a": 2}), alike([1], [1, 1]), alike("1", 1)
    (True, False, False, False)
    >>> alike(10**400, 0.5)
    False
    """
    one, two = recorded, recomputed
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(alike(one[key], two[key]) for key in two)
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(alike, one, two))
    if isinstance(one, int | float) and isinstance(two, int | float) and float in (type(one), type(two)):
        # A whole number beyond the largest double is written by nobody but a forger, and has no double to compare.
        beyond = max(abs(one), abs(two)) > LARGEST_REAL
        return not beyond and math.isclose(one, two, rel_tol=SAME, abs_tol=SAME)
    return type(one) is type(two) and one == two


def same_figures(recorded: object, recomputed: object, error: float) -> bool:
    """Whether an estimate, or both ends of an interval, are the same within `SAME` standard errors and their last bits.

    Relative to the standard error, not to the number: a wrong median of 1e-12 is as wrong as one of 1e12.

    >>> same_figures(5.0 + 1e-12, 5.0, 0.1), same_figures(5.0 + 1e-9, 5.0, 0.1), same_figures(2e-12, 1e-12, 1e-12)
    (True, False, False)
    """
    one, two = recorded, recomputed
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(same_figures(one[key], two[key], error) for key in two)
    if isinstance(one, float) and isinstance(two, float) and math.isfinite(one):
        return abs(one - two) <= SAME * error + LAST_BITS * math.ulp(two)
    return type(one) is type(two) and one == two


def differences(recorded: dict[str, Any], recomputed: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The settings and the words that differ between two results as plain JSON: the record's, and the one from here."""
    settings = [key for key in SETTINGS if not alike(recorded.get(key), recomputed[key])]
    words = [
        key
        for key in sorted((recorded.keys() | recomputed.keys()) - {*FIGURES, *SETTINGS, "clients"})
        if not alike(recorded.get(key), recomputed.get(key))
    ]
    clients = recorded.get("clients"), recomputed["clients"]
    if not alike(*(_of_clients(entries, settings=True) for entries in clients)):
        settings.append("clients")
    if not alike(*(_of_clients(entries, settings=False) for entries in clients)):
        words.append("ranks of the clients")
    return settings, words


def _of_clients(clients: object, *, settings: bool) -> list[dict[str, Any]] | None:
    """What the study fixes of each client, or what the run found; None where this is no list of clients."""
    if not isinstance(clients, list) or not all(isinstance(client, dict) for client in clients):
        return None
    return [{key: client[key] for key in client if (key in CLIENT_SETTINGS) is settings} for client in clients]
