"""The report of one run: the answer, how it got there, who answered, what it cost, caveats, how to cite."""

import math
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from privatile import __version__
from privatile.core.words import moment
from privatile.errors import InputError
from privatile.report.charts import dots_chart, trajectory_chart
from privatile.report.findings import Finding, findings, to_look_at_first
from privatile.report.method_words import OTHER_NAMES, how_read, looking, short_title, way_there
from privatile.report.options_table import data_and_options, day
from privatile.report.pages import CITATION, render_page
from privatile.report.print_style import FIGURE_FORMATS, write_figure
from privatile.report.survey_words import words_of
from privatile.report.view import LevelView, RunRecord, RunView, ThinPath
from privatile.report.weeks import shown_weeks
from privatile.result.number_words import share_text
from privatile.result.part_words import parts_of
from privatile.result.result import ConfidenceInterval, QuantileResult
from privatile.result.sentence import LISTED, grid_text
from privatile.server.run_file import RunStore

LISTED_CLIENTS = 1000
"""Clients in the page's data: about 120 bytes each."""

SHOWN_CLIENTS, FEWEST_CLIENTS = 150, 12
"""Rows in the tables of clients: of all levels together, and at least of each level."""

CHART_SCRIPTS = ("uplot/uPlot.iife.min.js", "chart.js", "report.js", "save.js")


def run_page(view: RunView) -> str:
    """The whole page."""
    paths = [level.shown_path(view.points) for level in view.levels]
    found = [findings(view, level) for level in view.levels]
    first_of_all = to_look_at_first(found)
    rest = [[each for each in own if each not in first_of_all] for own in found]
    shared = [each for each in rest[0] if all(each in others for others in rest)]
    levels = [
        {**_level(view, level, path), "findings": [each for each in own if each not in shared]}
        for level, path, own in zip(view.levels, paths, rest, strict=True)
    ]
    first = view.levels[0]
    result = first.result
    clients = view.spec.clients
    several = len(levels) > 1
    return render_page(
        "run.html.j2",
        f"{len(levels)} quantiles of {view.spec.value}" if several else short_title(first.level, view.spec.value),
        facts(view, paths),
        CHART_SCRIPTS,
        t=words_of("en"),
        several=several,
        levels=levels,
        finished_levels=[level for level in levels if level["result"] is not None],
        shared_findings=shared,
        act_on=[(each, _whose(each, found, view)) for each in first_of_all],
        percent=f"{100 * view.spec.confidence_level:g}%",
        mixture=view.spec.value if result is None else result.estimand.partition(" of ")[2],
        joint=view.spec.joint > 1,
        conditions=_conditions(levels),
        over=view.finished is not None,
        records=view.records,
        clients=len({client.holder or client.name for client in clients}),
        parts=parts_of(view.spec.weighting),
        epsilon=max(client.mechanism.epsilon for client in clients),
        unit="person" if view.spec.person else "record",
        day=day(view.created),
        options=data_and_options(view),
        looking="" if result is None else looking(view.spec, result),
        own_levels=result is not None and len({client.level for client in result.clients}) > 1,
        budgets=_budgets(view),
        fact_rows=_fact_rows(view),
        from_paper=view.spec.design.startswith("paper-"),
    )


def _whose(finding: Finding, found: list[list[Finding]], view: RunView) -> str:
    """Of several levels, those that a finding is about."""
    about = [f"{level.level:g}" for level, own in zip(view.levels, found, strict=True) if finding in own]
    return "" if len(about) == len(view.levels) else f"level {', '.join(about)}"


def write_run_page(view: RunView, path: str | Path) -> Path:
    """Write the page; returns where."""
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"a page must end in .html, a figure in {', '.join(FIGURE_FORMATS)}; got {target.name!r}.")
    target.write_text(run_page(view), encoding="utf-8")
    return target


@dataclass(frozen=True)
class RunReporter:
    """Makes the report of a run that is over, wherever its file may be by then.

    The copy of the file is replayed when a report is asked for: most runs are never looked at.
    """

    copy: bytes
    results: tuple[QuantileResult, ...]

    def __call__(self, path: str | Path) -> Path:
        """A page for .html; a figure of the trajectory for .svg, .pdf and .png."""
        with closing(RunStore.from_bytes(self.copy)) as store:
            view = RunRecord(store).view(self.results)
        if Path(path).suffix.lower() in FIGURE_FORMATS:
            from privatile.report.run_figures import trajectory_figure

            return write_figure(path, lambda: trajectory_figure(view))
        return write_run_page(view, path)


def facts(view: RunView, paths: list[ThinPath]) -> dict[str, Any]:
    """Everything on the page, for programs."""
    results = [level.result.facts() for level in view.levels if level.result is not None]
    history = view.levels[0].history
    counts = zip(view.spec.clients, history.answered.tolist(), history.silent.tolist(), strict=True)
    return {
        "kind": "privatile run",
        "format": 1,
        "privatile": __version__,
        "run": view.run,
        "value": view.spec.value,
        "specification": view.spec.digest,
        "created": moment(view.created),
        "finished": None if view.finished is None else moment(view.finished),
        "rounds": view.done,
        "planned_rounds": view.planned or None,
        "confidence_level": view.spec.confidence_level,
        "options": dict(data_and_options(view)),
        "results": [{**result, "clients": result["clients"][:LISTED_CLIENTS]} for result in results],
        "answered": {client.name: [answered, silent] for client, answered, silent in list(counts)[:LISTED_CLIENTS]},
        "trajectories": [path.to_dict() for path in paths],
        "citation": CITATION,
    }


def _level(view: RunView, level: LevelView, path: ThinPath) -> dict[str, Any]:
    result, answer, way, method, weeks = level.result, None, "", "", []
    if result is not None:
        weeks = shown_weeks(result.facts().get("series") or (), (level.scale.low, level.scale.high), words_of("en"))
        answer = _answer(result)
        way = way_there(level.history.burn_in, result)
        method = f"{way}{how_read(result)}"
        method += " The chart shows the interval without what was declared." if result.first_is_declared else ""
    return {
        "name": short_title(level.level, "").removesuffix(" of "),
        "text": f"{level.level:g}",
        "result": result,
        "answer": answer,
        "method": method,
        "way": way,
        "chart": trajectory_chart(path, view.spec.value),
        "weeks": weeks,
        "beside": "" if result is None or result.other is None else OTHER_NAMES[result.other.method],
        "straddles": level.history.straddles,
        "gaps": bool((np.isnan(path.estimate) & ~np.isnan(path.low)).any()),
        "rounds": len(level.history),
        "steps": len(path.rounds),
        "snapshots": len(level.snapshots),
        "client_rows": _client_rows(level, max(FEWEST_CLIENTS, SHOWN_CLIENTS // len(view.levels))),
    }


def _conditions(levels: list[dict[str, Any]]) -> list[str]:
    """What the intervals of several levels need, each kind said once."""
    answers = [level["answer"] for level in levels if level["answer"] is not None]
    first = dict.fromkeys(answer["condition"] for answer in answers if answer["condition"])
    others = dict.fromkeys(
        (OTHER_NAMES[answer["other"]["method"]], answer["other"]["condition"], answer["other"]["how"])
        for answer in answers
        if answer["other"] is not None
    )
    return [
        *(f"The interval holds {condition}." for condition in first),
        *(f"“{name}”: it holds {condition}; {how}." for name, condition, how in others),
    ]


def _answer(result: QuantileResult) -> dict[str, Any]:
    """What stands first on the page, in words: the estimate or the values left, and both intervals."""
    interval = result.first_interval
    other = None
    if result.other is not None:
        ends = dict(zip(("low", "high"), result.ends_shown(result.other.interval), strict=True))
        other = {**ends, **{name: getattr(result.other, name) for name in ("method", "condition", "how")}}
    return {
        "estimate": result.headline,
        "interval": _interval_text(result, interval),
        "name": "anytime interval" if result.interval_so_far else "interval",
        "condition": result.first_condition,
        "undeclared": result.undeclared if result.first_is_declared else "",
        "other": other,
        "contradiction": result.contradiction,
        "warned": any(caveat.code in ("contradiction", "declaration") for caveat in result.caveats),
    }


def _interval_text(result: QuantileResult, interval: ConfidenceInterval) -> str:
    """The interval; of a declared grid the values that it leaves, where they are few."""
    left = result.grid_values if result.located and interval == result.confidence_interval else None
    return grid_text(left) if left and len(left) <= LISTED else result.interval_shown(interval)


def _client_rows(level: LevelView, most: int) -> list[dict[str, Any]]:
    """The first clients: weight, share of answers, and the rank with the result's own interval."""
    if level.result is None:
        return []
    clients = level.result.clients
    heaviest = max(client.weight for client in clients)
    rows = []
    # The weight classes of a client are asked together.
    rounds = dict(
        zip((client.held_by for client in level.history.plan.clients), level.history.answered.tolist(), strict=True)
    )
    for client in clients[:most]:
        rank, interval = client.local_rank, client.local_rank_interval
        known = level.result.located and all(math.isfinite(value) for value in (rank, *interval))
        rows.append(
            {
                "facts": client,
                "bar": round(60 * max(client.weight / heaviest, 0.02), 1),
                "answered": rounds[client.name] / max(len(level.history), 1),
                "rank_chart": dots_chart([[(rank, *interval)] if known else []], (0.0, 1.0), client.level, width=228),
                "rank_text": share_text(rank if level.result.located else math.nan),
            }
        )
    return rows


def _budgets(view: RunView) -> list[dict[str, Any]]:
    """What was spent, by budget: who, how many records, and what it means."""
    budgets: dict[float, dict[str, Any]] = {}
    for k, client in enumerate(view.spec.clients):
        epsilon, truth_rate = client.mechanism.epsilon, client.mechanism.truth_rate
        odds = f"× {math.exp(epsilon):.3g}" if math.isfinite(epsilon) else "no bound"
        first = {"epsilon": epsilon, "truth": (1.0 + truth_rate) / 2.0, "odds": odds, "names": [], "asked": 0}
        budget = budgets.setdefault(epsilon, first)
        budget["names"].append(client.name)
        budget["asked"] += sum(level.history.state.asked[k] for level in view.levels)
    return [budgets[epsilon] for epsilon in sorted(budgets)]


def _fact_rows(view: RunView) -> list[tuple[str, list[str]]]:
    """A row per fact, a text per level that has a result."""
    columns = [{row.key: row for row in level.result.shown_rows()} for level in view.levels if level.result is not None]
    labels = {key: row.label for column in reversed(columns) for key, row in column.items()}
    keys = dict.fromkeys(key for column in columns for key in column)
    return [(labels[key], [column[key].text if key in column else "–" for column in columns]) for key in keys]
