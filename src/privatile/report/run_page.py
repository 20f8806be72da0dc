"""The report of one run: the answer, its way there, who answered, what it cost, what to beware of, how to cite."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privatile import __version__
from privatile.errors import InputError
from privatile.report.client_sections import clients_section, ledger_section
from privatile.report.findings import findings
from privatile.report.markup import Markup, join, tag
from privatile.report.print_style import FIGURE_FORMATS
from privatile.report.shell import CITATION, document
from privatile.report.still import still_chart
from privatile.report.view import LevelView, RunRecord, RunView, ThinPath
from privatile.result import QuantileResult, epsilon_text, significant

LISTED_CLIENTS = 1000
"""Clients in the page's data: about 120 bytes each."""

CHART_SCRIPTS = ("uplot/uPlot.iife.min.js", "chart.js", "report.js", "save.js")


def run_page(view: RunView) -> str:
    """The whole page."""
    paths = [level.path(view.points) for level in view.levels]
    name = _title(view.levels[0])
    sections: list[Markup] = [tag("header", *(_hero(level) for level in view.levels), class_="hero"), _tiles(view)]
    for index, (level, path) in enumerate(zip(view.levels, paths, strict=True)):
        sections.append(_chart(index, level, path, several=len(view.levels) > 1))
    sections += [clients_section(level) for level in view.levels[:1] if level.result is not None]
    sections += [ledger_section(view), _diagnostics(view), _details(view), _citing(view)]
    return document(name, sections, facts(view, paths), CHART_SCRIPTS)


def write_run_page(view: RunView, path: str | Path) -> Path:
    """Write the page; returns where."""
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"a page must end in .html, a figure in {', '.join(FIGURE_FORMATS)}; got {target.name!r}.")
    target.write_text(run_page(view), encoding="utf-8")
    return target


@dataclass(frozen=True)
class RunReporter:
    """Makes the report of a run that is over, wherever its file may be by then."""

    record: RunRecord
    results: tuple[QuantileResult, ...]

    def __call__(self, path: str | Path) -> Path:
        """A page for .html; a figure of the trajectory for .svg, .pdf and .png."""
        view = self.record.view(self.results)
        if Path(path).suffix.lower() in FIGURE_FORMATS:
            from privatile.report.run_figures import write_trajectory

            return write_trajectory(view, path)
        return write_run_page(view, path)


def facts(view: RunView, paths: list[ThinPath]) -> dict[str, Any]:
    """Everything on the page, for programs."""
    results = []
    for level in view.levels:
        if level.result is not None:
            plain = level.result.to_dict()
            plain["clients"] = plain["clients"][:LISTED_CLIENTS]
            results.append(plain)
    tally = view.levels[0].history.tally
    return {
        "kind": "privatile run",
        "format": 1,
        "privatile": __version__,
        "run": view.run,
        "specification": view.spec.digest,
        "created": _moment(view.created),
        "finished": None if view.finished is None else _moment(view.finished),
        "rounds": view.done,
        "planned_rounds": view.planned,
        "confidence_level": view.spec.confidence_level,
        "results": results,
        "answered": {
            client.name: [int(answered), int(silent)]
            for client, answered, silent in list(zip(view.spec.clients, tally.answered, tally.silent, strict=True))[
                :LISTED_CLIENTS
            ]
        },
        "trajectories": [plain_path(path) for path in paths],
        "citation": CITATION,
    }


def plain_path(path: ThinPath) -> dict[str, list[float | None] | list[int]]:
    """A thinned path as plain lists: four significant digits of the last interval's width."""
    width = float(path.high[-1] - path.low[-1]) if len(path.high) else math.nan
    if not (math.isfinite(width) and width > 0):
        width = abs(float(path.question_high[-1])) / 100 if len(path.question_high) else 1.0
    digits = 3 - math.floor(math.log10(width)) if width > 0 else 6

    def plain(values: NDArray[np.float64]) -> list[float | None]:
        return [None if math.isnan(value) else _short(round(value, digits)) for value in values.tolist()]

    anytime = {"anytime_low": plain(path.anytime_low), "anytime_high": plain(path.anytime_high)}
    return {
        "round": path.rounds.tolist(),
        "records": path.records.tolist(),
        "question_low": plain(path.question_low),
        "question_high": plain(path.question_high),
        "estimate": plain(path.estimate),
        "low": plain(path.low),
        "high": plain(path.high),
        **({} if np.isnan(path.anytime_low).all() else anytime),
    }


def _short(value: float) -> float:
    return int(value) if value == int(value) and abs(value) < 2**53 else value


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _title(level: LevelView) -> str:
    return level.result.estimand if level.result is not None else f"The {level.level:g} quantile, under way"


def _hero(level: LevelView) -> Markup:
    result = level.result
    if result is None:
        return tag(
            "div", tag("h1", _title(level)), tag("p", "–", class_="big"), tag("p", "No interval yet: still in burn-in.")
        )
    low, high = result.confidence_interval
    return tag(
        "div",
        tag("h1", result.estimand),
        tag("p", significant(result.estimate, high - low), class_="big", id=None),
        tag(
            "p",
            f"{100 * result.confidence_level:g}% interval ",
            tag("b", f"{significant(low, high - low)} … {significant(high, high - low)}"),
            class_="interval",
        ),
        tag("p", result.sentence, class_="sentence"),
    )


def _tiles(view: RunView) -> Markup:
    first = view.levels[0]
    records = sum(int(level.history.records[-1]) for level in view.levels if len(level.history))
    epsilon = max(client.mechanism.epsilon for client in view.spec.clients)
    times = first.history.at
    took = float(times[-1] - view.created) if len(times) else 0.0
    tiles = [
        (f"{records:,}", "records answered, each once"),
        (f"{len(view.spec.clients):,}", "client" if len(view.spec.clients) == 1 else "clients"),
        (epsilon_text(epsilon), "largest ε anyone spent"),
        (f"{view.done:,}" + ("" if view.finished else f" of {view.planned:,}"), "rounds"),
        (_duration(took), "from first question to last answer"),
    ]
    return tag("ul", *(tag("li", tag("b", shown), tag("span", label)) for shown, label in tiles), class_="tiles")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(seconds, 0):.3g} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"


def _chart(index: int, level: LevelView, path: ThinPath, several: bool) -> Markup:
    name = f", level {level.level:g}" if several else ""
    where = f"chart-{index}"
    thinned = len(level.history) > len(path.rounds)
    caption = join(
        [
            "Grey: where the question stood. Blue: the estimate, with the interval that the run would have reported "
            "had it ended there. ",
            f"The first {level.history.burn_in:,} rounds found the place (burn-in) and are not averaged. "
            if level.history.burn_in
            else "",
            f"{len(level.history):,} rounds are drawn as {len(path.rounds):,} steps that keep every extreme; the "
            f"interval was worked out after {len(level.readings):,} of them. "
            if thinned
            else "",
            "Looking at a moving interval and stopping when it pleases voids its confidence.",
        ]
    )
    buttons = [("in", "Zoom in"), ("out", "Zoom out"), ("left", "Earlier"), ("right", "Later"), ("reset", "Show all")]
    tools = tag(
        "div",
        tag("button", "By rounds", type="button", data_by="round", aria_pressed="true"),
        tag("button", "By records", type="button", data_by="records", aria_pressed="false"),
        tag("span", class_="spread"),
        *(tag("button", label, type="button", data_move=move) for move, label in buttons),
        class_="tools",
        role="group",
        aria_label=f"What the chart shows{name}",
    )
    return tag(
        "section",
        tag("h2", f"How it got there{name}", id=where),
        tag(
            "figure",
            _key(),
            tools,
            tag(
                "div",
                class_="plot",
                tabindex="0",
                role="img",
                aria_label="Chart of the estimate and its interval over the rounds. Plus and minus zoom, arrows move, "
                "0 shows all. The line below says what is shown.",
            ),
            still_chart(path),
            tag("p", class_="readout", role="status"),
            tag("figcaption", caption),
            class_="chart",
            data_level=index,
        ),
        aria_labelledby=where,
    )


def _key() -> Markup:
    entries = [("k-line", "estimate"), ("k-band", "interval"), ("k-walk", "question")]
    return tag("ul", *(tag("li", tag("i", "", class_=kind), label) for kind, label in entries), class_="key")


MARKS = {"good": "✓ fine", "note": "• note", "worry": "! look here"}


def _diagnostics(view: RunView) -> Markup:
    parts = []
    for level in view.levels:
        if len(view.levels) > 1:
            parts.append(tag("h3", f"Level {level.level:g}"))
        entries = [
            tag("li", tag("span", MARKS[status], class_="mark"), tag("b", title), tag("p", words), class_=status)
            for status, title, words in findings(view, level)
        ]
        parts.append(tag("ul", *entries, class_="findings"))
    return tag("section", tag("h2", "Is it sound?"), *parts)


def _details(view: RunView) -> Markup:
    tables = []
    for level in view.levels:
        if level.result is not None:
            shown = {row.key: row for row in (*level.result.shown_rows(), *level.result.diagnostics)}
            rows = [tag("tr", tag("th", row.label, scope="row"), tag("td", row.text)) for row in shown.values()]
            tables.append(tag("table", tag("tbody", *rows), class_="facts"))
    return tag("section", tag("h2", "All the facts"), *tables)


def _citing(view: RunView) -> Markup:
    return tag(
        "section",
        tag("h2", "How to cite"),
        tag("p", f"privatile {__version__}, run {view.run}, specification {view.spec.digest[:16]}…"),
        tag("pre", CITATION, tabindex="0"),
        tag(
            "p",
            tag("button", "Save the data of this page as JSON", type="button", id="save-json", class_="screen"),
        ),
        tag("p", "The same data stand in this file, in the script element with the id “facts”."),
    )
