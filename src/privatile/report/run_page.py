"""The report of one run: the answer, how it got there, who answered, what it cost, caveats, how to cite.

Its sentences lie in `run_words.toml`; each rule for a remark says its threshold here.
"""

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from privatile import __version__
from privatile.core.mechanism import IMPOSSIBLE
from privatile.core.text import CLIENTS, STRATA, PartWords, counted, duration, listed, moment, parts_of, percent_text
from privatile.estimator.spec import RunSpec
from privatile.report.charts import OTHER_NAMES, dots_chart, trajectory_chart, trajectory_figure
from privatile.report.pages import CITATION, render_page, write_report
from privatile.report.path import ThinPath, most_points, shown_path
from privatile.report.survey_pages import one_in, shown_weeks, words_of
from privatile.result.caveats import MAX_TO_ACT_ON
from privatile.result.result import QuantileResult
from privatile.result.shown import (
    MISSING,
    TARGETS,
    epsilon_text,
    level_name,
    plain,
    share_text,
    significant,
)
from privatile.run.coordinator import StoredRun
from privatile.run.view import LevelView, RunView

WORDS: dict[str, Any] = tomllib.loads(
    (resources.files("privatile.report") / "run_words.toml").read_text(encoding="utf-8")
)


def way_there(first_rounds: int, result: QuantileResult) -> str:
    """What the rounds before averaging were for."""
    kind = {"straddle": "straddle", "open": "straddle", "tuned": "tuned"}.get(result.design, "other")
    text: str = WORDS["search"][kind]
    return text.format(rounds=first_rounds) if first_rounds else ""


def how_read(result: QuantileResult) -> str:
    """Where estimate and interval come from."""
    kind, any_shape = result.method, result.inference.is_any_shape
    if result.shown.is_so_far and not result.valid_at_every_look:
        kind, any_shape = "anytime", result.anytime_condition == "any-shape"
    if any_shape:
        kind = "questions" if result.design in ("straddle", "open") else "any-shape"
    elif kind.startswith("self-normalized"):
        kind = "mean"
    else:
        kind = "smooth" if kind.startswith("smooth") else "anytime"
    text: str = WORDS["method"][kind]
    return text.format(since=" since then" if result.averaged_rounds < result.rounds else "")


def looking(spec: RunSpec, result: QuantileResult) -> str:
    """What watching the interval that is drawn means for its confidence."""
    kind = "fixed"
    if spec.until_width is not None:
        kind = "width"
    elif spec.design == "open":
        kind = "open"
    elif result.valid_at_every_look or result.shown.is_so_far:
        kind = "always" if result.other is None else "beside"
    text: str = WORDS["looking"][kind]
    return text.format(width=spec.until_width)


class Finding(NamedTuple):
    """One remark: a caveat of the result, or of what the page itself sees."""

    code: str
    status: Literal["good", "note", "worry"]
    title: str
    text: str


def _finding(code: str, variant: str = "", *, parts: PartWords = CLIENTS, **values: object) -> Finding:
    kind = WORDS["findings"][code]
    text: str = kind["texts"][variant] if variant else kind["text"]
    named = parts._asdict()
    return Finding(code, kind["status"], kind["title"].format(**named), text.format(**named, **values))


def findings(view: RunView, level: LevelView) -> list[Finding]:
    """All remarks about one level of a run."""
    result = level.result
    if result is None:
        return [_complete(view), _finding("no-interval-yet" if view.finished is None else "no-interval")]
    # Silence, and that a run goes on, are told by the result's own caveats.
    found = caveat_findings(result) + ([_complete(view)] if view.finished is not None else [])
    # An interval that is valid at every look does not wait for the questions to settle; where the quantile was not
    # located, nothing has settled, and ranks at the estimate mean nothing.
    if result.located and not result.valid_at_every_look:
        found.append(_settled(level, result))
    if not level.silent.any():
        found.append(_finding("everybody", parts=result.parts))
    found.append(_possible(view, level))
    if result.located and len(result.clients) > 1:
        found.append(_differences(level, result))
    return [*found, _finding("simulated")] if result.simulated else found


def to_look_at_first(found: Sequence[Sequence[Finding]]) -> list[Finding]:
    """The few worries of all levels that a reader must act on: those of all levels, then each level's worst.

    >>> trouble, other = Finding("a", "worry", "", ""), Finding("b", "worry", "", "")
    >>> fine = Finding("c", "good", "", "")
    >>> [one.code for one in to_look_at_first([[other, trouble, fine], [trouble]])]
    ['a', 'b']
    """
    worries = [[each for each in own if each.status == "worry"] for own in found]
    common = [each for each in worries[0] if all(each in own for own in worries)]
    worst = [each for rank in zip_longest(*worries) for each in rank if each is not None]
    return list(dict.fromkeys([*common, *worst]))[:MAX_TO_ACT_ON]


def caveat_findings(result: QuantileResult) -> list[Finding]:
    """What the result carries, the most important first, without standing remarks: those are in the documentation."""
    return [
        Finding(
            caveat.code,
            "note" if caveat.severity == "note" else "worry",
            caveat.kind.title.format(one=result.parts.one, many=result.parts.many),
            caveat.text,
        )
        for caveat in (*result.shown.act, *result.shown.rest)
    ]


def _complete(view: RunView) -> Finding:
    code, variant = "complete", "stopped" if view.done < view.planned else "all"
    if view.finished is None:
        code, variant = "unfinished", "planned"
    if view.spec.design == "open":
        variant = "open"
    return _finding(code, variant, done=view.done, planned=view.planned, rounds=counted(view.done, "round"))


def _settled(level: LevelView, result: QuantileResult) -> Finding:
    middle = (level.low + level.high) / 2.0
    averaged = middle[len(level) - result.averaged_rounds :]
    half = len(averaged) // 2
    moved = abs(float(averaged[half:].mean() - averaged[:half].mean()))
    _, last = level.snapshots[-1]
    width = result.confidence_interval.high - result.confidence_interval.low
    return _finding("settled" if moved <= last.high - last.low else "moving", width=significant(width, width))


def _possible(view: RunView, level: LevelView) -> Finding:
    counts = zip(view.spec.clients, level.state.ones, level.state.asked, strict=True)
    liars = [client.name for client, ones, asked in counts if client.mechanism.impossible(ones, asked)]
    if not liars:
        return _finding("possible", parts=parts_of(view.spec.weighting))
    names = ", ".join(liars[:5]) + (" and others" if len(liars) > 5 else "")
    return _finding("impossible", names=names, errors=IMPOSSIBLE)


def _differences(level: LevelView, result: QuantileResult) -> Finding:
    # Debiased shares of few records may leave [0, 1].
    ranks = [(min(max(c.local_rank, 0.0), 1.0), c.name) for c in result.clients if math.isfinite(c.local_rank)]
    excess, noise = 0.0, dict.fromkeys((client.name for client in result.clients), 0.0)
    parts = zip(level.plan.clients, result.classes or result.clients, level.state.window_asked, strict=True)
    for client, facts, asked in parts:
        if asked:
            variance = client.mechanism.variance(min(max(facts.local_rank, 0.0), 1.0)) / asked
            noise[client.held_by] += client.weight**2 * variance
    for facts in result.clients:
        variance = noise[facts.name] / facts.weight**2
        excess += (facts.local_rank - facts.level) ** 2 / variance if variance else 0.0
    freedom = len(ranks) - 1
    low, high = (f"{rank:.2f} ({name})" for rank, name in (min(ranks), max(ranks)))
    # A χ² with d degrees of freedom has mean d and standard deviation √(2d).
    differ = excess > freedom + 4.0 * math.sqrt(2.0 * freedom)
    return _finding("differ" if differ else "agree", parts=result.parts, low=low, high=high)


NAMED_CLIENTS = 8
"""Clients that are named; the table of clients has more."""


def data_and_options(view: RunView) -> dict[str, str]:
    """The date, the data and every option of a run, the options that were left at their defaults included."""
    spec = view.spec
    epsilons = sorted({client.mechanism.epsilon for client in spec.clients})
    rows = [
        ("date", _date(view)),
        ("column", spec.value),
        ("data", _data(spec)),
        ("stated range", f"{plain(spec.low)} to {plain(spec.high)}, {spec.scale} scale"),
        ("levels" if len(spec.levels) > 1 else "level", ", ".join(f"{level:g}" for level in spec.levels)),
        ("ε", " to ".join(dict.fromkeys(epsilon_text(end) for end in (epsilons[0], epsilons[-1])))),
        ("unit of privacy", "person" if spec.person else "record"),
        (f"weights of the {parts_of(spec.weighting).many}", "given" if spec.weighting == STRATA else spec.weighting),
        ("values declared", spec.value_kind),
        ("interval asked for", spec.interval),
        ("confidence", percent_text(spec.confidence_level) + (", for all levels at once" if spec.joint > 1 else "")),
        ("target", TARGETS[spec.target]),
        ("missing values", f"{spec.missing}: {MISSING[spec.missing]}"),
        ("design", f"{spec.design}, {spec.round_mode} mode"),
        ("dither", plain(spec.dither) if spec.dither else ""),
        ("stops at a width of", "" if spec.until_width is None else plain(spec.until_width)),
    ]
    return {label: text for label, text in rows if text}


def day(seconds: float) -> str:
    """The day of a time, for a headline.

    >>> day(0.0), day(1e300)
    ('1970-01-01', 'unknown')
    """
    return (moment(seconds) or "unknown")[:10]


def _date(view: RunView) -> str:
    times = view.levels[0].at
    begun = (moment(view.created) or "unknown").replace("T", " ").replace("Z", " UTC")
    took = duration(float(times[-1] - view.created)) if len(times) else ""
    return begun + (f"; {took} from the first question to the last answer" if took else "")


def _data(spec: RunSpec) -> str:
    """Whose records, and how many may be asked."""
    if spec.design == "open":
        return f"whoever comes, of {listed([client.name for client in spec.clients])}"
    records: dict[str, int] = {}
    for client in spec.clients:
        name = client.holder or client.name
        records[name] = records.get(name, 0) + client.records
    named = listed([f"{name} ({count:,})" for name, count in records.items()], NAMED_CLIENTS)
    return f"{sum(records.values()):,} records: {named}"


LISTED_CLIENTS = 1000
"""Clients in the page's data: about 120 bytes each."""

SHOWN_CLIENTS, MIN_CLIENTS = 150, 12
"""Rows in the tables of clients: of all levels together, and at least of each level."""

CHART_SCRIPTS = ("uplot/uPlot.iife.min.js", "chart.js", "report.js", "save.js")


def run_page(view: RunView) -> str:
    """The whole page."""
    paths = [shown_path(level, most_points(view)) for level in view.levels]
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
        f"{len(levels)} quantiles of {view.spec.value}" if several else f"{levels[0]['name']} of {view.spec.value}",
        facts(view, paths),
        CHART_SCRIPTS,
        t=words_of("en"),
        several=several,
        levels=levels,
        finished_levels=[level for level in levels if level["result"] is not None],
        shared_findings=shared,
        act_on=[(each, _whose(each, found, view)) for each in first_of_all],
        percent=percent_text(view.spec.confidence_level),
        one_in=one_in(view.spec.confidence_level),
        mixture=view.spec.value if result is None else result.estimand.partition(" of ")[2],
        joint=view.spec.joint > 1,
        conditions=_conditions([level.result for level in view.levels if level.result is not None]),
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
    """Write the page, or for .svg, .pdf and .png a figure of the trajectory; returns where."""
    return write_report(path, lambda: run_page(view), lambda: trajectory_figure(view))


@dataclass(frozen=True)
class RunReporter:
    """Makes the report of a run that is over, wherever its file may be by then.

    Its rounds are replayed when a report is asked for: most runs are never looked at.
    """

    stored: StoredRun
    spec: RunSpec
    """As reported."""

    def __call__(self, path: str | Path) -> Path:
        """A page for .html; a figure of the trajectory for .svg, .pdf and .png."""
        view = RunView(self.stored, self.spec, drawn=True)
        return write_run_page(view, path)


def facts(view: RunView, paths: list[ThinPath]) -> dict[str, Any]:
    """Everything on the page, for programs."""
    results = [level.result.facts() for level in view.levels if level.result is not None]
    first = view.levels[0]
    counts = zip(view.spec.clients, first.answered.tolist(), first.silent.tolist(), strict=True)
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
        "options": data_and_options(view),
        "results": [{**result, "clients": result["clients"][:LISTED_CLIENTS]} for result in results],
        "answered": {client.name: [answered, silent] for client, answered, silent in list(counts)[:LISTED_CLIENTS]},
        "trajectories": [path.to_dict() for path in paths],
        "citation": CITATION,
    }


def _level(view: RunView, level: LevelView, path: ThinPath) -> dict[str, Any]:
    """What the template needs of one level beside its result."""
    result, way, method, weeks = level.result, "", "", []
    if result is not None:
        weeks = shown_weeks(result.facts().get("series") or (), (level.scale.low, level.scale.high), words_of("en"))
        way = way_there(level.burn_in, result)
        method = f"{way}{how_read(result)}"
        method += " The chart shows the interval without what was declared." if result.shown.undeclared else ""
    return {
        "name": f"The {level_name(level.level)}",
        "text": f"{level.level:g}",
        "result": result,
        "shown": None if result is None else result.shown,
        "method": method,
        "way": way,
        "chart": trajectory_chart(path, view.spec.value),
        "weeks": weeks,
        "beside": "" if result is None or result.other is None else OTHER_NAMES[result.other.method],
        "straddles": level.straddles,
        "gaps": bool((np.isnan(path.estimate) & ~np.isnan(path.low)).any()),
        "rounds": len(level),
        "steps": len(path.rounds),
        "snapshots": len(level.snapshots),
        "client_rows": _client_rows(level, max(MIN_CLIENTS, SHOWN_CLIENTS // len(view.levels))),
    }


def _conditions(results: Sequence[QuantileResult]) -> list[str]:
    """What the intervals of several levels need, each kind said once."""
    others = dict.fromkeys(
        (OTHER_NAMES[one.other.method], one.shown.other.condition, one.other.how)
        for one in results
        if one.other is not None and one.shown.other is not None
    )
    return [
        *(
            f"The interval holds {condition}."
            for condition in dict.fromkeys(one.shown.first.condition for one in results)
        ),
        *(f"“{name}”: it holds {condition}; {how}." for name, condition, how in others),
    ]


def _client_rows(level: LevelView, most: int) -> list[dict[str, Any]]:
    """The first clients: weight, share of answers, and the rank with the result's own interval."""
    if level.result is None:
        return []
    clients = level.result.clients
    heaviest = max(client.weight for client in clients)
    rows = []
    # The weight classes of a client are asked together.
    rounds = dict(zip((client.held_by for client in level.plan.clients), level.answered.tolist(), strict=True))
    for client in clients[:most]:
        rank, interval = client.local_rank, client.local_rank_interval
        known = level.result.located and all(math.isfinite(value) for value in (rank, *interval))
        rows.append(
            {
                "facts": client,
                "bar": round(60 * max(client.weight / heaviest, 0.02), 1),
                "answered": rounds[client.name] / max(len(level), 1),
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
        budget["asked"] += sum(level.state.asked[k] for level in view.levels)
    return [budgets[epsilon] for epsilon in sorted(budgets)]


def _fact_rows(view: RunView) -> list[tuple[str, list[str]]]:
    """A row per fact, a text per level that has a result."""
    columns = [{row.key: row for row in level.result.shown_rows()} for level in view.levels if level.result is not None]
    labels = {key: row.label for column in reversed(columns) for key, row in column.items()}
    keys = dict.fromkeys(key for column in columns for key in column)
    return [(labels[key], [column[key].text if key in column else "–" for column in columns]) for key in keys]
