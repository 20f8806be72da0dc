"""The trajectory as a small still drawing: for paper, and for browsers that run no scripts."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from privatile.core.arrays import Floats
from privatile.report.markup import Markup, tag
from privatile.report.ticks import ticks
from privatile.report.view import ThinPath
from privatile.result.result import significant

WIDTH, HEIGHT, LEFT, BOTTOM = 760, 300, 80, 34
MOST = 300
"""Points drawn: about one for two pixels of the plot's width."""


def still_chart(path: ThinPath) -> Markup:
    """An SVG drawing, or nothing when there is nothing to draw."""
    if len(path.rounds) < 2:
        return Markup("")
    keep = np.unique(np.linspace(0, len(path.rounds) - 1, min(MOST, len(path.rounds))).round().astype(int))
    low, high = path.heights
    last = float(path.rounds[-1])

    def x(value: float) -> float:
        return LEFT + (value - 1) / max(last - 1, 1) * (WIDTH - LEFT - 8)

    def y(value: float) -> float:
        return 8 + (1 - (min(max(value, low), high) - low) / (high - low)) * (HEIGHT - BOTTOM - 8)

    def points(values: Floats, order: Iterable[int]) -> str:
        kept = [i for i in order if not math.isnan(values[i])]
        return " ".join(f"{x(float(path.rounds[i])):.0f},{y(float(values[i])):.1f}" for i in kept)

    band = points(path.low, keep) + " " + points(path.high, keep[::-1])
    walk = points(path.question_low, keep) + " " + points(path.question_high, keep[::-1])
    parts = [
        tag("polygon", points=walk, fill="var(--walk)", fill_opacity="0.35", stroke="var(--walk)", stroke_width="0.6"),
        tag("polygon", points=band, fill="var(--band)", stroke="var(--blue)", stroke_width="0.7"),
        tag("polyline", points=points(path.estimate, keep), fill="none", stroke="var(--blue)", stroke_width="2.2"),
    ]
    values = ticks(low, high, 5)
    apart = values[1] - values[0] if len(values) > 1 else high - low
    for value in values:
        parts.append(
            tag("line", x1=LEFT, x2=WIDTH - 8, y1=f"{y(value):.1f}", y2=f"{y(value):.1f}", stroke="var(--line)")
        )
        parts.append(tag("text", significant(value, apart), x=LEFT - 8, y=f"{y(value) + 4:.1f}", text_anchor="end"))
    parts.extend(
        tag("text", f"{at:,.0f}", x=f"{x(at):.0f}", y=HEIGHT - 14, text_anchor=_anchor(at / last))
        for at in ticks(1, last, 6)
    )
    parts.append(tag("text", "rounds", x=(LEFT + WIDTH) // 2, y=HEIGHT, text_anchor="middle"))
    return tag("svg", *parts, class_="still", viewBox=f"0 0 {WIDTH} {HEIGHT}", aria_hidden="true")


def _anchor(share: float) -> str:
    return "end" if share > 0.97 else "middle"
