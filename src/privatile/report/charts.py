"""Drawings of runs and experiments: still ones, positions in pixels that a template draws as SVG, and for print.

Page and print figure draw the same series. An experiment's rows are drawn with one panel per setting, one line per
method, one point per size.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.core.text import percent_text
from privatile.report.pages import BLUE, GREY
from privatile.report.path import ThinPath, shown_path
from privatile.result.shown import CONDITIONS
from privatile.run.view import RunView

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]

SIZES = {"records": "records per client", "rounds": "rounds"}
"""Labels of sizes, and what they count."""

MAX_ERROR = 6.0
"""Multiples of the bound that are drawn; a larger error is drawn at the edge, and its number is in the table."""


class Point(NamedTuple):
    """One cell of an experiment."""

    size: float
    value: float
    error: float
    """Monte Carlo standard error."""

    @property
    def low(self) -> float:
        """Two Monte Carlo standard errors below."""
        return self.value - 2 * self.error

    @property
    def high(self) -> float:
        """Two Monte Carlo standard errors above."""
        return self.value + 2 * self.error


class Panel(NamedTuple):
    """One setting: a line for each method, in the design's order."""

    setting: str
    lines: tuple[tuple[Point, ...], ...]


class Measure(NamedTuple):
    """Coverage or error of all cells."""

    title: str
    name: str
    """Short, for an axis."""
    panels: tuple[Panel, ...]
    heights: tuple[float, float]
    """What every panel shows from bottom to top."""
    rule: float
    """Where a method should be."""


class ExperimentSeries(NamedTuple):
    """All that is drawn of an experiment."""

    sizes: list[float]
    size_name: str
    """What the sizes count: records per client, or rounds."""
    methods: list[str]
    shared: str
    """What all cells have in common, said once; empty where there is nothing."""
    measures: tuple[Measure, ...]

    @classmethod
    def of(cls, rows: Sequence[Row], confidence_level: float) -> Self:
        """The series of an experiment's finished cells, of which there is at least one.

        >>> row = {"population": "normal", "level": "0.5", "method": "C1", "records": "200", "replications": 1000}
        >>> row |= {"coverage": 0.95, "coverage_error": 0.007, "rmse": 0.12, "bound": 0.1}
        >>> series = ExperimentSeries.of([row, {**row, "population": "cauchy"}], 0.95)
        >>> series.shared, [panel.setting for panel in series.measures[0].panels]
        ('level 0.5', ['population normal', 'population cauchy'])
        """
        methods = list(dict.fromkeys(row["method"] for row in rows))
        labels = [name for name, value in rows[0].items() if isinstance(value, str) and name not in (*SIZES, "method")]
        varying = [name for name in labels if len({row[name] for row in rows}) > 1]
        settings: dict[str, list[Row]] = {}
        for row in rows:
            settings.setdefault(_setting(row, varying) or "all cells", []).append(row)

        def panels(point: Callable[[Row], Point]) -> tuple[Panel, ...]:
            return tuple(
                Panel(
                    setting,
                    tuple(_points(point, [row for row in cells if row["method"] == name]) for name in methods),
                )
                for setting, cells in settings.items()
            )

        coverages, errors = [_coverage(row) for row in rows], [_error(row) for row in rows]
        lowest = max(0.0, min(*(point.low for point in coverages), confidence_level) - 0.01)
        measures = [Measure("Coverage", "coverage", panels(_coverage), (lowest, 1.0), confidence_level)]
        known = [point.high for point in errors if math.isfinite(point.value)]
        if known:  # a column of values has no density, so no least error is known
            title, highest = "Error, as a multiple of the least that any method can reach", max(known) * 1.05
            measures.append(Measure(title, "error / bound", panels(_error), (0.0, min(highest, MAX_ERROR)), 1.0))
        return cls(
            sorted({_size(row) for row in rows}),
            next(words for name, words in SIZES.items() if name in rows[0]),
            methods,
            _setting(rows[0], [name for name in labels if name not in varying]),
            tuple(measures),
        )


def _points(point: Callable[[Row], Point], rows: Sequence[Row]) -> tuple[Point, ...]:
    """The points of one line that can be drawn."""
    return tuple(sorted(made for made in map(point, rows) if math.isfinite(made.value)))


def _setting(row: Row, labels: Sequence[str]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {row[name]}" for name in labels)


def _size(row: Row) -> float:
    return next(float(row[name]) for name in SIZES if name in row)


def _coverage(row: Row) -> Point:
    return Point(_size(row), row["coverage"], row["coverage_error"])


def _error(row: Row) -> Point:
    ratio = row["rmse"] / row["bound"]
    # The root mean square of n normal errors has the standard error σ/√(2n).
    return Point(_size(row), ratio, ratio / math.sqrt(2 * row["replications"]))


STILL_POINTS = 300
"""Points of a trajectory: about one for two pixels of the drawing's width."""


MAX_DOTS = 60
"""Questions at the centre that are drawn."""


STRIP = 14
"""Height of the strip with the questions of the search."""

LETTER = 6.6
"""Width of a letter of an axis' number, in pixels of the drawing, rather too wide."""

MAX_TITLE = 60
"""Characters of a column's name beside an axis."""


class Shape(NamedTuple):
    """A line through points or, closed, a filled area; `kind` is its class in the style sheet."""

    kind: str
    points: str
    closed: bool = False
    series: int | None = None
    """Which method it belongs to: gives its colour and dash."""


class Label(NamedTuple):
    """A text at a place."""

    x: float
    y: float
    text: str
    anchor: str = "middle"


class Symbol(NamedTuple):
    """A point of a series: colour and form tell which one."""

    series: int
    x: float
    y: float


class Chart(NamedTuple):
    """A drawing: its shapes in the order in which they cover each other, then texts, then symbols."""

    kind: str
    width: int
    height: int
    shapes: Sequence[Shape]
    labels: Sequence[Label] = ()
    symbols: Sequence[Symbol] = ()


class Axis(NamedTuple):
    """Values from low to high on pixels from first to last."""

    low: float
    high: float
    first: float
    last: float

    def at(self, value: float) -> float:
        """Where a value is drawn; one beyond the axis is drawn at its end."""
        share = (min(max(value, self.low), self.high) - self.low) / ((self.high - self.low) or 1.0)
        return round(self.first + share * (self.last - self.first), 1)


def ticks(low: float, high: float, about: int = 4, *, whole: bool = False) -> list[float]:
    """Multiples of 1, 2, 2.5 or 5 times a power of ten inside [low, high], some `about` of them.

    `whole`: whole numbers only.

    >>> ticks(0.788, 1.0, 3), ticks(47_512, 53_930), ticks(0.0, 2.65, 3)
    ([0.8, 0.9, 1.0], [48000.0, 50000.0, 52000.0], [0.0, 1.0, 2.0])
    >>> ticks(5.0, 5.0), ticks(43.2, 47.8, 9), ticks(43.2, 47.8, 9, whole=True)
    ([5.0], [43.5, 44.0, 44.5, 45.0, 45.5, 46.0, 46.5, 47.0, 47.5], [44.0, 45.0, 46.0, 47.0])
    """
    if not (math.isfinite(low) and math.isfinite(high) and high > low):
        return [low]

    def numbers(step: float) -> range:
        return range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)

    power = 10.0 ** math.floor(math.log10((high - low) / about))
    steps = [part * power for part in (1.0, 2.0, 2.5, 5.0, 10.0)]
    if whole:
        steps = [step for step in steps if step >= 1.0 and step == round(step)] or [1.0]
    step = min(steps, key=lambda step: abs(len(numbers(step)) - about))
    # Multiplied, not added up; digits behind the step's own are rounding.
    return [round(number * step, 12 - math.floor(math.log10(step))) for number in numbers(step)]


def tick_texts(values: Sequence[float]) -> list[str]:
    """Numbers beside an axis, all with as many decimals as tell them apart.

    >>> tick_texts([44.0, 45.0]), tick_texts([0.8, 0.9, 1.0]), tick_texts([47_500.0, 50_000.0])
    (['44', '45'], ['0.8', '0.9', '1.0'], ['47,500', '50,000'])
    """
    decimals = (d for d in range(12) if all(math.isclose(round(value, d), value, abs_tol=1e-12) for value in values))
    digits = next(decimals, 12)
    return [f"{value:,.{digits}f}" for value in values]


def _line(kind: str, x1: float, y1: float, x2: float, y2: float, series: int | None = None) -> Shape:
    return Shape(kind, f"{x1},{y1} {x2},{y2}", series=series)


def _grid(y: Axis, left: float, right: float, texts: Iterable[tuple[float, str]]) -> tuple[list[Shape], list[Label]]:
    """Horizontal lines at some values, with the values written left of them."""
    places = [(y.at(value), text) for value, text in texts]
    lines = [_line("grid", left, at, right, at) for at, _ in places]
    return lines, [Label(left - 7, round(at + 4, 1), text, "end") for at, text in places]


def trajectory_chart(path: ThinPath, value: str) -> Chart | None:
    """The estimate and its interval over the rounds; none where there are fewer than two points.

    `value` names the vertical axis. The search's questions are a strip at the bottom: they go everywhere.
    """
    if len(path.rounds) < 2:
        return None
    width, height, left, top = 760, 300, 80, 26
    low, high = path.heights
    last = float(path.rounds[-1])
    x, y = Axis(1.0, last, left, width - 8), Axis(low, high, height - 34, top)
    keep = np.unique(np.linspace(0, len(path.rounds) - 1, min(STILL_POINTS, len(path.rounds))).round().astype(int))

    def points(values: Sequence[float], order: Iterable[int]) -> str:
        drawn = [i for i in order if not math.isnan(values[i])]
        return " ".join(f"{x.at(float(path.rounds[i])):.0f},{y.at(float(values[i]))}" for i in drawn)

    def area(low: Sequence[float], high: Sequence[float]) -> str:
        return f"{points(low, keep)} {points(high, keep[::-1])}"

    heights = ticks(low, high, 5, whole=path.whole_ticks)
    shapes, labels = _grid(y, left, width - 8, list(zip(heights, tick_texts(heights), strict=True)))
    shapes += [
        *_strip(x, y, path),
        Shape(
            "walk", area(_after_search(path, path.question_low), _after_search(path, path.question_high)), closed=True
        ),
        Shape("band", area(path.low.tolist(), path.high.tolist()), closed=True),
        *(Shape("beside", points(ends.tolist(), keep)) for ends in (path.other_low, path.other_high)),
        *(Shape("estimate", points(path.estimate.tolist(), part)) for part in _unbroken(path.estimate, keep)),
    ]
    centers = np.flatnonzero(~np.isnan(path.question_center))
    for i in centers[:: 1 + len(centers) // MAX_DOTS].tolist():
        at, height_there = x.at(float(path.rounds[i])), y.at(float(path.question_center[i]))
        shapes.append(_line("dot", at, height_there, at, height_there))
    for number in ticks(1, last, 6, whole=True):
        labels.append(Label(x.at(number), height - 14, f"{number:,.0f}", "end" if number > 0.97 * last else "middle"))
    labels += [Label((left + width) // 2, height, "rounds"), Label(4, 14, _axis_title(value), "start")]
    return Chart("still", width, height, shapes, labels)


def _unbroken(values: Floats, places: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The places in a row that have a value: no line is drawn across a gap.

    >>> [part.tolist() for part in _unbroken(np.array([np.nan, 1.0, 2.0, np.nan, 3.0]), np.arange(5))]
    [[1, 2], [4]]
    """
    here = ~np.isnan(values[places])
    parts = np.split(places, np.flatnonzero(here[1:] != here[:-1]) + 1)
    return [part for part in parts if not math.isnan(values[part[0]])]


def _after_search(path: ThinPath, questions: Floats) -> list[float]:
    return [math.nan if searched else question for searched, question in zip(path.searched, questions, strict=True)]


def _strip(x: Axis, y: Axis, path: ThinPath) -> list[Shape]:
    """The questions of the search, drawn small on a scale of their own."""
    if not path.searched.any():
        return []
    rounds, questions = path.rounds[path.searched], path.question_high[path.searched]
    inside = Axis(float(questions.min()), float(questions.max()), y.first - 2, y.first - STRIP + 2)
    left, right = x.at(1.0), x.at(float(path.search))
    some = range(0, len(rounds), 1 + len(rounds) // STILL_POINTS)
    line = " ".join(f"{x.at(float(rounds[i]))},{inside.at(float(questions[i]))}" for i in some)
    box = f"{left},{y.first} {left},{y.first - STRIP} {right},{y.first - STRIP} {right},{y.first}"
    return [Shape("strip", box, closed=True), Shape("searched", line)]


def _axis_title(value: str) -> str:
    return value if len(value) <= MAX_TITLE else f"{value[: MAX_TITLE - 1]}…"


def panel_chart(lines: Sequence[Sequence[Point]], heights: tuple[float, float], rule: float) -> Chart:
    """A line per method over sizes on a logarithmic axis; `rule` is where the values should be."""
    width, height, left, right = 300, 190, 46, 290
    sizes = sorted({point.size for points in lines for point in points})
    y = Axis(*heights, height - 36, 10)
    x = Axis(math.log(sizes[0]), math.log(sizes[-1]), left + 12, right - 12)
    shapes, labels = _grid(y, left, right, [(value, f"{value:.3g}") for value in ticks(*heights, 3)])
    shapes.append(_line("rule", left, y.at(rule), right, y.at(rule)))
    named = sizes if len(sizes) <= 5 else [sizes[0], sizes[-1]]
    labels += [Label(x.at(math.log(size)), height - 20, f"{size:,.0f}") for size in named]
    symbols = []
    for series, points in enumerate(lines):
        # Neighbouring methods are drawn a little apart, so that no bar hides another.
        nudge = (series - (len(lines) - 1) / 2) * 5
        places = [round(x.at(math.log(point.size)) + nudge, 1) for point in points]
        path = " ".join(f"{at},{y.at(point.value)}" for at, point in zip(places, points, strict=True))
        shapes.append(Shape("series", path, series=series))
        for at, point in zip(places, points, strict=True):
            shapes.append(_line("bar", at, y.at(point.low), at, y.at(point.high), series))
            symbols.append(Symbol(series, at, y.at(point.value)))
    return Chart("panel", width, height, shapes, labels, symbols)


def dots_chart(
    lines: Sequence[Sequence[tuple[float, float, float]]],
    ends: tuple[float, float],
    rule: float | None,
    width: int = 300,
) -> Chart:
    """A row of a table: a symbol with its bar (value, low, high) per method, from left to right."""
    height, x = 9 * len(lines) + 7, Axis(*ends, 4, width - 4)
    shapes, symbols = [] if rule is None else [_line("rule", x.at(rule), 0, x.at(rule), height)], []
    for series, points in enumerate(lines):
        y = 8 + 9 * series
        for value, low, high in points:
            shapes.append(_line("bar", x.at(low), y, x.at(high), y, series))
            symbols.append(Symbol(series, x.at(value), y))
    return Chart("dots", width, height, shapes, (), symbols)


def dots_axis(ends: tuple[float, float], form: str = ".3g", about: int = 5) -> Chart:
    """The axis over a column of dots, its numbers written as `form` says, those left out that would touch another.

    >>> [label.text for label in dots_axis((35_700, 60_400), ",.10g", 4).labels]
    ['40,000', '45,000', '50,000', '55,000']
    """
    x = Axis(*ends, 4, 296)
    values = [(x.at(value), f"{value:{form}}") for value in ticks(*ends, about)]
    labels: list[Label] = []
    taken = -math.inf
    for at, text in values:
        anchor, wide = ("start" if at < 14 else "end" if at > 286 else "middle"), LETTER * len(text)
        begin = at - {"start": 0.0, "middle": wide / 2.0, "end": wide}[anchor]
        if begin >= taken:
            labels.append(Label(at, 12, text, anchor))
            taken = begin + wide + LETTER
    return Chart("dots", 300, 20, [_line("tick", at, 15, at, 20) for at, _ in values], labels)


OTHER_NAMES = {"any-shape": "whatever the distribution", "smooth": "if smooth", "anytime": "if smooth"}
"""The interval that stands beside the first one, in a few words."""


def trajectory_figure(view: RunView) -> "Figure":
    """The estimate and its interval over the rounds, one panel per level."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(6.4, 0.6 + 2.9 * len(view.levels)), layout="constrained")
    axes = figure.subplots(len(view.levels), 1, squeeze=False)[:, 0]
    for level, panel in zip(view.levels, axes, strict=True):
        path, result = shown_path(level, 1200), level.result
        questions, alpha = ("low and high question", 0.22) if level.straddles else ("question", 0.45)
        asked = ~path.searched
        panel.fill_between(
            path.rounds, path.question_low, path.question_high, where=asked, color=GREY, alpha=alpha, linewidth=0.6,
            label=questions,
        )  # fmt: skip
        if path.search:
            panel.axvspan(1, path.search, 0, 0.03, color=GREY, alpha=0.45, linewidth=0, label="search")
        name = f"{percent_text(view.spec.confidence_level)} interval"
        if result is not None:
            condition = result.anytime_condition if result.shown.is_so_far else result.condition
            name += f", {CONDITIONS[condition or 'smooth']}"
        panel.fill_between(path.rounds, path.low, path.high, color=BLUE, alpha=0.25, linewidth=0.8, label=name)
        if result is not None and result.other is not None:
            for ends, text in ((path.other_low, OTHER_NAMES[result.other.method]), (path.other_high, None)):
                panel.plot(path.rounds, ends, color=BLUE, linewidth=0.9, linestyle=(0, (5, 3)), label=text)
        panel.plot(path.rounds, path.question_center, color=GREY, linestyle="none", marker=".", markersize=2.5)
        if not np.isnan(path.estimate).all():  # an interval that is open on one side has none
            panel.plot(path.rounds, path.estimate, color=BLUE, linewidth=1.8, label="estimate")
        panel.set_ylim(*path.heights)
        panel.yaxis.set_major_locator(MaxNLocator(6, integer=path.whole_ticks))
        panel.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        panel.yaxis.set_major_formatter("{x:,.6g}")
        panel.xaxis.set_major_formatter("{x:,.0f}")
        panel.set_ylabel(view.spec.value if len(view.levels) == 1 else f"{view.spec.value}, level {level.level:g}")
        panel.set_xlim(1, max(len(level), 2))
    axes[-1].set_xlabel("rounds")
    axes[0].legend(frameon=False, ncols=3, loc="lower right", bbox_to_anchor=(1.0, 1.0))
    return figure
