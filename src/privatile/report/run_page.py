"""The report of one run: the answer, its way there, who answered, what it cost, what to beware of, how to cite."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from privatile import __version__
from privatile.core.arrays import Floats
from privatile.core.words import duration
from privatile.errors import InputError
from privatile.report.client_sections import clients_section, ledger_section
from privatile.report.findings import Finding, findings
from privatile.report.markup import Markup, join, tag
from privatile.report.method_words import how_read, looking, short_title, way_there
from privatile.report.print_style import FIGURE_FORMATS
from privatile.report.shell import CITATION, document
from privatile.report.still import still_chart
from privatile.report.view import RunRecord, RunView, ThinPath
from privatile.result.result import QuantileResult, epsilon_text, significant

LISTED_CLIENTS = 1000
"""Clients in the page's data: about 120 bytes each."""

CHART_SCRIPTS = ("uplot/uPlot.iife.min.js", "chart.js", "report.js", "save.js")


def run_page(view: RunView) -> str:
    """The whole page."""
    paths = [level.path(view.points) for level in view.levels]
    sections: list[Markup] = [_hero(view), _tiles(view)]
    sections += [_chart(view, index, path) for index, path in enumerate(paths)]
    sections += [clients_section(view), ledger_section(view), _diagnostics(view), _details(view), _citing(view)]
    return document(_title(view), sections, facts(view, paths), CHART_SCRIPTS)


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
    history = view.levels[0].history
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
            for client, answered, silent in list(zip(view.spec.clients, history.answered, history.silent, strict=True))[
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

    def plain(values: Floats) -> list[float | None]:
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


def _title(view: RunView) -> str:
    if len(view.levels) == 1:
        return short_title(view.levels[0].level, view.spec.value)
    return f"{len(view.levels)} quantiles of {view.spec.value}"


def _hero(view: RunView) -> Markup:
    return tag("header", *(_one(view) if len(view.levels) == 1 else _several(view)), class_="hero")


def _one(view: RunView) -> list[Markup]:
    title, result = tag("h1", _title(view)), view.levels[0].result
    if result is None:
        return [title, tag("p", "–", class_="big"), tag("p", "No interval yet: the run is still finding the place.")]
    low, high = result.confidence_interval
    return [
        title,
        tag("p", significant(result.estimate, high - low), class_="big"),
        tag(
            "p",
            f"{100 * result.confidence_level:g}% interval ",
            tag("b", f"{significant(low, high - low)} … {significant(high, high - low)}"),
            class_="interval",
        ),
        tag("p", result.sentence, class_="sentence"),
    ]


def _several(view: RunView) -> list[Markup]:
    rows = []
    for level in view.levels:
        shown = ["–", "none yet"]
        if level.result is not None:
            low, high = level.result.confidence_interval
            texts = [significant(value, high - low) for value in (level.result.estimate, low, high)]
            shown = [texts[0], f"{texts[1]} … {texts[2]}"]
        name = short_title(level.level, "").removesuffix(" of ")
        cells = (tag("td", text, class_=kind) for text, kind in zip(shown, ("estimate", None), strict=True))
        rows.append(tag("tr", tag("th", name, scope="row"), *cells))
    percent = f"{100 * view.spec.confidence_level:g}%"
    heads = ("quantile", "estimate", f"{percent} interval")
    joint = f"all hold at once with {percent}" if view.spec.joint > 1 else f"each holds with {percent} by itself"
    result = view.levels[0].result
    of = view.spec.value if result is None else result.estimand.partition(" of ")[2]
    return [
        tag("h1", _title(view)),
        tag(
            "table",
            tag("thead", tag("tr", *(tag("th", head, scope="col") for head in heads))),
            tag("tbody", *rows),
            class_="answers",
        ),
        tag("p", f"All are of {of}. Of the intervals {joint}.", class_="sentence"),
    ]


def _tiles(view: RunView) -> Markup:
    first = view.levels[0]
    records = sum(int(level.history.records[-1]) for level in view.levels if len(level.history))
    epsilon = max(client.mechanism.epsilon for client in view.spec.clients)
    times = first.history.at
    took = float(times[-1] - view.created) if len(times) else 0.0
    tiles = [
        (f"{records:,}", "records answered, each once"),
        (f"{len(view.spec.clients):,}", "client" if len(view.spec.clients) == 1 else "clients"),
        (f"ε = {epsilon_text(epsilon)}", f"the most that any {'person' if view.spec.person else 'record'} spent"),
        (f"{view.done:,}" + ("" if view.done == view.planned else f" of {view.planned:,}"), "rounds"),
        (duration(took), "from first question to last answer"),
    ]
    return tag("ul", *(tag("li", tag("b", shown), tag("span", label)) for shown, label in tiles), class_="tiles")


def _chart(view: RunView, index: int, path: ThinPath) -> Markup:
    level = view.levels[index]
    name = f", level {level.level:g}" if len(view.levels) > 1 else ""
    where = f"chart-{index}"
    thinned = len(level.history) > len(path.rounds)
    result = level.result
    caption = join(
        [
            "Grey: where the question stood. Blue: the estimate, with the interval that the run would have reported "
            "had it ended there. ",
            "" if result is None else f"{way_there(level.history.burn_in, result)}{how_read(result)} ",
            f"{len(level.history):,} rounds are drawn as {len(path.rounds):,} steps that keep every extreme; the "
            f"interval was worked out after {len(level.snapshots):,} of them. "
            if thinned
            else "",
            looking(view.spec),
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


ORDER = {"worry": 0, "good": 1, "note": 2}


def _diagnostics(view: RunView) -> Markup:
    found = {level.level: findings(view, level) for level in view.levels}
    shared = [each for each in found[view.levels[0].level] if all(each in others for others in found.values())]
    parts = [_findings(shared)]
    for level, own in found.items():
        rest = [each for each in own if each not in shared]
        if rest:
            parts += [tag("h3", f"Level {level:g}"), _findings(rest)]
    return tag("section", tag("h2", "Is it sound?"), *parts)


def _findings(found: Sequence[Finding]) -> Markup:
    """What to look at first, then what is fine, then what to know."""
    return tag(
        "ul",
        *(
            tag("li", tag("span", MARKS[status], class_="mark"), tag("b", title), tag("p", words), class_=status)
            for status, title, words in sorted(found, key=lambda each: ORDER[each.status])
        ),
        class_="findings",
    )


def _details(view: RunView) -> Markup:
    """A row a fact, a column a level; what is the same for all is said once."""
    columns = [{row.key: row for row in level.result.shown_rows()} for level in view.levels if level.result is not None]
    if not columns:
        return Markup("")
    rows = []
    for key in dict.fromkeys(key for column in columns for key in column):
        label = next(column[key].label for column in columns if key in column)
        texts = [column[key].text if key in column else "–" for column in columns]
        cells = [tag("td", texts[0], colspan=len(texts) if len(texts) > 1 else None)]
        if len(set(texts)) > 1:
            cells = [tag("td", text) for text in texts]
        rows.append(tag("tr", tag("th", label, scope="row"), *cells))
    levels = [level.level for level in view.levels if level.result is not None]
    heads = [tag("td", ""), *(tag("th", f"level {level:g}", scope="col") for level in levels)]
    return tag(
        "section",
        tag("h2", "All the facts"),
        tag(
            "div",
            tag(
                "table",
                tag("thead", tag("tr", *heads)) if len(columns) > 1 else None,
                tag("tbody", *rows),
                class_="facts",
            ),
            class_="scroll",
            tabindex="0",
            role="region",
            aria_label="All the facts",
        ),
    )


def _citing(view: RunView) -> Markup:
    return tag(
        "section",
        tag("h2", "How to cite"),
        tag("p", f"This run: privatile {__version__}, run {view.run}, specification {view.spec.digest[:16]}…"),
        tag(
            "p",
            "The method:"
            if view.spec.design.startswith("paper-")
            else "The method it builds on (the design and the default interval are privatile's own):",
        ),
        tag("pre", CITATION, tabindex="0"),
        tag(
            "p",
            tag("button", "Save the data of this page as JSON", type="button", id="save-json", class_="screen"),
        ),
        tag("p", "The same data stand in this file, in the script element with the id “facts”."),
    )
