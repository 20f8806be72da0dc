"""Diagnostics in plain words: what went well, what to note, what to worry about. Each rule says its threshold."""

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import Literal, NamedTuple

from privatile.core.mechanism import IMPOSSIBLE
from privatile.core.words import counted
from privatile.report.history import LevelHistory
from privatile.report.view import LevelView, RunView
from privatile.result.number_words import significant
from privatile.result.part_words import parts_of
from privatile.result.result import QuantileResult
from privatile.result.severity import MOST_TO_ACT_ON, to_act_on_and_rest

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
        if view.finished is not None:
            text = "The run ended while it was still searching for the quantile: it would have taken more answers."
            return [*found, Finding("worry", "No interval", text)]
        text = "The run is still searching for the quantile; an interval needs more rounds."
        return [*found, Finding("note", "No interval yet", text)]
    # An interval that is valid at every look does not wait for the questions to settle; where the quantile was not
    # located, nothing has settled, and ranks at the estimate mean nothing.
    if result.located and not result.valid_at_every_look:
        found.append(_settled(level, result))
    # Silence is told by the result's own caveat; so is a run that goes on.
    if not level.history.silent.any():
        text = f"Every {result.parts.one} answered in every round."
        found.append(Finding("good", "Everybody answered", text))
    found.append(_possible(view, level.history))
    if result.located and len(result.clients) > 1:
        found.append(_differences(level.history, result))
    if result.simulated:
        found.append(Finding("note", "Simulated", "Seeded randomness on made-up data: no one's privacy was at stake."))
    return [*caveat_findings(result), *(one for one in found if one.title != "Unfinished")]


def to_look_at_first(found: Sequence[Sequence[Finding]]) -> list[Finding]:
    """The few worries of all levels that a reader must act on: those of all levels, then each level's worst.

    >>> trouble, other, fine = Finding("worry", "a", ""), Finding("worry", "b", ""), Finding("good", "c", "")
    >>> [one.title for one in to_look_at_first([[other, trouble, fine], [trouble]])]
    ['a', 'b']
    """
    worries = [[each for each in own if each.status == "worry"] for own in found]
    common = [each for each in worries[0] if all(each in own for own in worries)]
    worst = [each for rank in zip_longest(*worries) for each in rank if each is not None]
    return list(dict.fromkeys([*common, *worst]))[:MOST_TO_ACT_ON]


def caveat_findings(result: QuantileResult) -> list[Finding]:
    """What the result carries, the most important first, without standing remarks: those are in the documentation."""
    first, rest = to_act_on_and_rest(result.caveats)
    return [
        Finding(
            "note" if caveat.severity == "note" else "worry",
            CAVEAT_TITLES[caveat.code].format(one=result.parts.one, many=result.parts.many),
            caveat.text,
        )
        for caveat in (*first, *rest)
    ]


CAVEAT_TITLES = {
    "support": "Little information",
    "not-located": "Not located",
    "slope": "Slope unknown",
    "curvature": "A bent distribution",
    "relaxations": "Few relaxations",
    "dominance": "One {one} decides",
    "contradiction": "A contradiction",
    "declaration": "Not shown as declared",
    "not-validated": "Too little information",
    "one-sided": "Open on one side",
    "half-open": "Bounded on one side only",
    "crossing": "Crossing quantiles",
    "out-of-reach": "Width out of reach",
    "misfit": "Not a smooth curve",
    "atom": "A round value inside",
    "chosen-later": "Chosen after the run",
    "unbounded": "Not located at all",
    "person": "Per person",
    "range": "At the end of the range",
    "not-private": "Not private",
    "weak": "Weak privacy",
    "missing": "Missing values",
    "dither": "Dithered values",
    "file": "About this file only",
    "silent": "Silent {many}",
    "much-silence": "Silent {many}",
    "unfinished": "Unfinished",
    "goes-on": "The run goes on",
    "moved": "The quantile has moved",
    "no-times": "Rounds have no time",
    "nobody-yet": "Nobody of a stratum has answered",
    "waiting": "Answers that wait",
    "central": "Local privacy costs precision",
    "survey-weights": "Survey weights",
    "thin-tail": "Few records with large weights",
    "unweighted": "No survey weights",
}


def _complete(view: RunView) -> Finding:
    if view.spec.design == "open":
        words = "The run goes on" if view.finished is None else "The run is over"
        text = f"{words} after {counted(view.done, 'round')}; how many there would be was not known beforehand."
        return Finding("note", "Unfinished", text) if view.finished is None else Finding("good", "Complete", text)
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
        f"{view.done:,} of {view.planned:,} planned rounds are done.",
    )


def _settled(level: LevelView, result: QuantileResult) -> Finding:
    middle = (level.history.low + level.history.high) / 2.0
    averaged = middle[len(level.history) - result.averaged_rounds :]
    half = len(averaged) // 2
    moved = abs(float(averaged[half:].mean() - averaged[:half].mean()))
    _, last = level.snapshots[-1]
    width = last.high - last.low
    low, high = result.confidence_interval
    if moved <= width:
        return Finding(
            "good",
            "Settled",
            "After the search, the questions of the first and of the second half of the rounds have the same mean, "
            "within the interval's width.",
        )
    return Finding(
        "worry",
        "Still moving",
        "The mean question of the second half of the rounds differs from that of the first half by more than "
        f"the interval's width ({significant(high - low, high - low)}). More rounds, or more records, are needed.",
    )


def _possible(view: RunView, history: LevelHistory) -> Finding:
    parts = parts_of(view.spec.weighting)
    counts = zip(view.spec.clients, history.state.ones, history.state.asked, strict=True)
    liars = [client.name for client, ones, asked in counts if client.mechanism.impossible(ones, asked)]
    if liars:
        return Finding(
            "worry",
            "Impossible answers",
            f"The share of yes of {', '.join(liars[:5])}{' and others' if len(liars) > 5 else ''} lies outside what "
            f"randomized response can give, by more than {IMPOSSIBLE:g} standard errors: these are no honest answers.",
        )
    return Finding(
        "good",
        "Answers are possible",
        f"Every {parts.one}'s share of yes is one that honest randomized response can give. (A liar who stays inside "
        "cannot be seen; the table says what one could do.)",
    )


def _differences(history: LevelHistory, result: QuantileResult) -> Finding:
    # Debiased shares of few records may leave [0, 1].
    ranks = [(min(max(c.local_rank, 0.0), 1.0), c.name) for c in result.clients if math.isfinite(c.local_rank)]
    excess, noise = 0.0, dict.fromkeys((client.name for client in result.clients), 0.0)
    parts = zip(history.plan.clients, result.classes or result.clients, history.state.window_asked, strict=True)
    for client, facts, asked in parts:
        if asked:
            variance = client.mechanism.variance(min(max(facts.local_rank, 0.0), 1.0)) / asked
            noise[client.held_by] += client.weight**2 * variance
    for facts in result.clients:
        variance = noise[facts.name] / facts.weight**2
        excess += (facts.local_rank - facts.level) ** 2 / variance if variance else 0.0
    freedom = len(ranks) - 1
    low, high = min(ranks), max(ranks)
    spread = f"The estimate's rank runs from {low[0]:.2f} ({low[1]}) to {high[0]:.2f} ({high[1]})."
    # A χ² with d degrees of freedom has mean d and standard deviation √(2d).
    if excess > freedom + 4.0 * math.sqrt(2.0 * freedom):
        return Finding(
            "note",
            f"The {result.parts.many} differ",
            f"{spread} Their distributions differ, so other weights would give another estimand.",
        )
    return Finding("good", f"The {result.parts.many} agree", f"{spread} Chance alone would give as much.")
