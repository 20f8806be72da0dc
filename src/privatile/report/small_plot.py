"""Small multiples as still drawings: one panel a setting, one line a method, error bars for Monte Carlo error."""

from __future__ import annotations

import math
from collections.abc import Sequence

from privatile.report.experiment_series import Point
from privatile.report.markup import Markup, tag
from privatile.report.ticks import ticks

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 300, 190, 46, 10, 10, 36
DASHES = ("", "6 3", "2 3", "8 3 2 3", "1 4")
COLORS = ("var(--blue)", "var(--worry)", "var(--good)", "var(--note)", "var(--ink)")
"""Told apart by dash and marker as well: colour alone says nothing here."""
MARKS: tuple[tuple[tuple[float, float], ...], ...] = (
    (),
    ((-3.4, -3.4), (3.4, -3.4), (3.4, 3.4), (-3.4, 3.4)),
    ((0, -4.2), (4, 3.2), (-4, 3.2)),
    ((0, -4.6), (4.6, 0), (0, 4.6), (-4.6, 0)),
    ((0, 4.2), (4, -3.2), (-4, -3.2)),
)
"""Corners of each method's mark about its middle; none: a circle."""


def panel(
    title: str, lines: Sequence[tuple[str, Sequence[Point]]], heights: tuple[float, float], rule: float | None
) -> Markup:
    """One panel: sizes on a logarithmic axis; `rule` is where the value should be."""
    sizes = sorted({point.size for _, points in lines for point in points})
    low, high = heights

    def x(size: float) -> float:
        if len(sizes) < 2:
            return LEFT + (WIDTH - LEFT - RIGHT) / 2
        share = (math.log(size) - math.log(sizes[0])) / (math.log(sizes[-1]) - math.log(sizes[0]))
        return LEFT + 12 + share * (WIDTH - LEFT - RIGHT - 24)

    def y(value: float) -> float:
        return TOP + (1 - (min(max(value, low), high) - low) / (high - low)) * (HEIGHT - TOP - BOTTOM)

    parts = []
    for value in ticks(low, high, 3):
        parts.append(
            tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=f"{y(value):.1f}", y2=f"{y(value):.1f}", stroke="var(--line)")
        )
        parts.append(tag("text", f"{value:.3g}", x=LEFT - 6, y=f"{y(value) + 4:.1f}", text_anchor="end"))
    if rule is not None:
        parts.append(
            tag(
                "line",
                x1=LEFT,
                x2=WIDTH - RIGHT,
                y1=f"{y(rule):.1f}",
                y2=f"{y(rule):.1f}",
                stroke="var(--ink)",
                stroke_dasharray="3 3",
            )
        )
    parts.extend(
        tag("text", f"{size:,.0f}", x=f"{x(size):.0f}", y=HEIGHT - 20, text_anchor="middle")
        for size in (sizes if len(sizes) <= 5 else [sizes[0], sizes[-1]])
    )
    for number, (_, points) in enumerate(lines):
        color, dash = COLORS[number % len(COLORS)], DASHES[number % len(DASHES)]
        nudge = (number - (len(lines) - 1) / 2) * 5
        path = " ".join(f"{x(point.size) + nudge:.1f},{y(point.value):.1f}" for point in points)
        parts.append(
            tag("polyline", points=path, fill="none", stroke=color, stroke_width=1.6, stroke_dasharray=dash or None)
        )
        for point in points:
            at = f"{x(point.size) + nudge:.1f}"
            ends = (f"{y(point.value - 2 * point.error):.1f}", f"{y(point.value + 2 * point.error):.1f}")
            parts.append(tag("line", x1=at, x2=at, y1=ends[0], y2=ends[1], stroke=color, stroke_width=1.6))
            parts.append(_mark(number, at, y(point.value)))
    drawing = tag("svg", *parts, class_="panel", viewBox=f"0 0 {WIDTH} {HEIGHT}", aria_hidden="true")
    return tag("figure", tag("figcaption", title), drawing)


def dots(lines: Sequence[tuple[str, Sequence[Point]]], ends: tuple[float, float], rule: float) -> Markup:
    """One row of a list of settings: a mark a method, left to right."""
    low, high = ends
    tall = 9 * len(lines) + 7

    def x(value: float) -> str:
        return f"{4 + (min(max(value, low), high) - low) / (high - low) * 292:.1f}"

    parts = [tag("line", x1=x(rule), x2=x(rule), y1=0, y2=tall, stroke="var(--ink)", stroke_dasharray="3 3")]
    for number, (_, points) in enumerate(lines):
        color, y = COLORS[number % len(COLORS)], 8 + 9 * number
        for point in points:
            ends_of_bar = (x(point.value - 2 * point.error), x(point.value + 2 * point.error))
            parts.append(tag("line", x1=ends_of_bar[0], x2=ends_of_bar[1], y1=y, y2=y, stroke=color, stroke_width=1.8))
            parts.append(_mark(number, x(point.value), y))
    return tag("svg", *parts, viewBox=f"0 0 300 {tall}", width=300, height=tall, aria_hidden="true")


def dots_axis(ends: tuple[float, float]) -> Markup:
    """The axis over a column of dots."""
    low, high = ends
    parts = []
    for value in ticks(low, high, 5):
        at = 4 + (value - low) / (high - low) * 292
        anchor = "start" if at < 14 else "end" if at > 286 else "middle"
        parts.append(tag("text", f"{value:.3g}", x=f"{at:.1f}", y=12, text_anchor=anchor))
        parts.append(tag("line", x1=f"{at:.1f}", x2=f"{at:.1f}", y1=15, y2=20, stroke="var(--soft)"))
    return tag("svg", *parts, viewBox="0 0 300 20", width=300, height=20)


def _mark(number: int, x: str, y: float | str) -> Markup:
    """The mark of a method: colour and shape both tell it."""
    color = COLORS[number % len(COLORS)]
    at, up = float(x), float(y)
    corners = MARKS[number % len(MARKS)]
    if not corners:
        return tag("circle", cx=f"{at:.1f}", cy=f"{up:.1f}", r=3.4, fill=color)
    return tag("polygon", points=" ".join(f"{at + dx:.1f},{up + dy:.1f}" for dx, dy in corners), fill=color)


def key(names: Sequence[str], dashes: bool = True) -> Markup:
    """Which line, or which mark, is which."""
    entries = []
    for number, name in enumerate(names):
        line = tag(
            "line", x1=0, x2=32, y1=7, y2=7, stroke=COLORS[number % len(COLORS)], stroke_width=2.4,
            stroke_dasharray=DASHES[number % len(DASHES)] or None,
        )  # fmt: skip
        drawing = tag("svg", line if dashes else None, _mark(number, "17", 7), width=34, height=14, aria_hidden="true")
        entries.append(tag("li", drawing, " ", name))
    return tag("ul", *entries, class_="key")
