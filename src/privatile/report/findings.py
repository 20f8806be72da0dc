"""Diagnostics in plain words: what went well, what to note, what to worry about. Each rule says its threshold."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np

from privatile.core.mechanism import IMPOSSIBLE
from privatile.report.history import LevelHistory
from privatile.report.view import LevelView, RunView
from privatile.result.result import QuantileResult, significant

Status = Literal["good", "note", "worry"]


class Finding(NamedTuple):
    """One remark."""

    status: Status
    title: str
    text: str


def findings(view: RunView, level: LevelView) -> list[Finding]:
    """All remarks about one level of a run."""
    found = [_complete(view)]
    result = level.result
    if result is None:
        return [
            *found,
            Finding("note", "No interval yet", "The run is still finding the place; an interval needs more."),
        ]
    found += [_settled(level, result), _silence(view, level.history), _possible(view, level.history)]
    if len(result.clients) > 1:
        found.append(_differences(result))
    if result.simulated:
        found.append(Finding("note", "Simulated", "Seeded randomness on made-up data: no one's privacy was at stake."))
    return [*found, *caveat_findings(result)]


def caveat_findings(result: QuantileResult) -> list[Finding]:
    """Every caveat that the result carries, in its order; no page shows a result without them."""
    return [
        Finding("worry" if code in WORRIES else "note", CAVEAT_TITLES.get(code, "Beware"), text)
        for code, text in result.caveats
    ]


WORRIES = frozenset(
    {
        "range", "not-private", "weak", "support", "not-located", "slope", "curvature", "relaxations", "misfit",
        "unbounded",
    }
)  # fmt: skip
"""Caveats under which the interval, or the privacy, may not be what it says."""

CAVEAT_TITLES = {
    "support": "Too little information",
    "not-located": "Not located",
    "slope": "Slope unknown",
    "curvature": "A bent distribution",
    "relaxations": "Few relaxations",
    "dominance": "One client decides",
    "crossing": "Crossing quantiles",
    "out-of-reach": "Width out of reach",
    "misfit": "Not a smooth curve",
    "atom": "A round value inside",
    "unbounded": "Not located at all",
    "person": "Per person",
    "range": "At the end of the range",
    "not-private": "Not private",
    "weak": "Weak privacy",
    "missing": "Missing values",
    "dither": "Dithered values",
    "file": "About this file only",
    "silent": "Silent at the end",
    "central": "Local privacy costs precision",
    "survey-weights": "No survey weights",
}


def _complete(view: RunView) -> Finding:
    if view.finished is not None and view.done < view.planned:
        return Finding(
            "good",
            "Complete",
            f"The run stopped by its own rule after {view.done:,} of {view.planned:,} rounds; the records left "
            "over were not asked.",
        )
    if view.finished is not None:
        return Finding("good", "Complete", f"All {view.done:,} planned rounds were asked and stored.")
    return Finding(
        "note",
        "Unfinished",
        f"{view.done:,} of {view.planned:,} planned rounds are done. An interval read off while a run goes on, and "
        "acted upon, no longer has its stated confidence.",
    )


def _settled(level: LevelView, result: QuantileResult) -> Finding:
    averaged = level.history.after[len(level.history) - result.averaged_rounds :]
    half = len(averaged) // 2
    moved = abs(float(averaged[half:].mean() - averaged[:half].mean()))
    _, last = level.snapshots[-1]
    width = last.high - last.low
    low, high = result.confidence_interval
    if moved <= width:
        return Finding(
            "good",
            "Settled",
            "Once the place was found, the questions of the first and of the second half of the rounds centre on the "
            "same place, within the interval's width.",
        )
    return Finding(
        "worry",
        "Still moving",
        "The questions of the second half of the rounds centre elsewhere than those of the first half, by more than "
        f"the interval's width ({significant(high - low, high - low)}). More rounds, or more records, are needed.",
    )


def _silence(view: RunView, history: LevelHistory) -> Finding:
    silent, rounds = history.silent, len(history)
    if not silent.any():
        return Finding("good", "Everybody answered", f"Every client answered in each of the {rounds:,} rounds.")
    worst = int(np.argmax(silent))
    share = silent.sum() / (len(silent) * rounds)
    text = (
        f"{int((silent > 0).sum())} of {len(silent)} clients missed rounds; {share:.1%} of all answers are missing, "
        f"most of them from {view.spec.clients[worst].name} ({int(silent[worst]):,} rounds). Weights were not changed: "
        "a silent client's last answer stood in, and its noise is part of the interval."
    )
    return Finding("worry" if share > 0.05 or history.silent_streak.any() else "note", "Silent clients", text)


def _possible(view: RunView, history: LevelHistory) -> Finding:
    liars = [
        client.name
        for client, asked, ones in zip(view.spec.clients, history.state.asked, history.state.ones, strict=True)
        if client.mechanism.impossible(ones, asked)
    ]
    if liars:
        return Finding(
            "worry",
            "Impossible answers",
            f"The share of yes of {', '.join(liars[:5])}{' and others' if len(liars) > 5 else ''} lies outside what "
            f"randomized response can give, by more than {IMPOSSIBLE:g} standard errors: not an honest client.",
        )
    return Finding(
        "good",
        "Answers are possible",
        "Every client's share of yes is one that honest randomized response can give. (A liar who stays inside cannot "
        "be seen; the table says what one could do.)",
    )


def _differences(result: QuantileResult) -> Finding:
    ranks = [(client.local_rank, client.name) for client in result.clients if math.isfinite(client.local_rank)]
    excess = 0.0
    for client in result.clients:
        error = rank_error(client.local_rank, client.truth_rate, averaged_records(result, client.asked))
        if error > 0:
            excess += ((client.local_rank - client.level) / error) ** 2
    freedom = len(ranks) - 1
    low, high = min(ranks), max(ranks)
    spread = f"The estimate's rank runs from {low[0]:.2f} ({low[1]}) to {high[0]:.2f} ({high[1]})."
    # A χ² with d degrees of freedom has mean d and standard deviation √(2d).
    if excess > freedom + 4.0 * math.sqrt(2.0 * freedom):
        return Finding(
            "note", "The clients differ", f"{spread} Their distributions differ: other weights, another estimand."
        )
    return Finding("good", "The clients agree", f"{spread} No more than chance would do.")


def rank_error(client_rank: float, truth_rate: float, asked: float) -> float:
    """Standard error of a local rank: √((r⁻² − (2F − 1)²)/(4n)).

    >>> round(rank_error(0.5, 0.5, 10_000), 4)
    0.01
    """
    if asked <= 0 or not math.isfinite(client_rank):
        return math.nan
    return math.sqrt(max(truth_rate**-2 - (2.0 * client_rank - 1.0) ** 2, 0.0) / (4.0 * asked))


def averaged_records(result: QuantileResult, asked: int) -> float:
    """How many of a client's records answered in the averaged rounds, about."""
    return asked * result.averaged_rounds / max(result.rounds, 1)
