"""The report of one run: the answer, how it got there, who answered, what it cost, caveats, how to cite.

How estimate and interval were read from the answers, in words that are true for the run at hand.

Diagnostics in plain words: what went well, what to note, what to worry about. Each rule says its threshold.

When a run was made, from which data and with which options: what a reader needs to do it again.

The figure of a run for print: the estimate and its interval over the rounds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from privatile import __version__
from privatile.core.mechanism import IMPOSSIBLE
from privatile.core.text import STRATA, counted, duration, listed, moment, parts_of, percent_text
from privatile.estimator.spec import RunSpec
from privatile.report.charts import dots_chart, trajectory_chart
from privatile.report.pages import BLUE, CITATION, GREY, render_page, write_report
from privatile.report.path import ThinPath, most_points, shown_path
from privatile.report.survey_pages import one_in, shown_weeks, words_of
from privatile.result.caveats import MAX_TO_ACT_ON
from privatile.result.result import QuantileResult
from privatile.result.shown import (
    CONDITIONS,
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

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def short_title(level: float, value: str) -> str:
    """What was estimated, in a few words; the sentence beside it says the rest.

    >>> short_title(0.5, "income"), short_title(0.9, "income")
    ('The median of income', 'The 0.9 quantile of income')
    """
    return f"The {level_name(level)} of {value}"


def way_there(first_rounds: int, result: QuantileResult) -> str:
    """What the rounds before averaging were for."""
    if not first_rounds:
        return ""
    if result.design in ("straddle", "open"):
        return (
            f"The first {first_rounds:,} rounds searched for the quantile; from then on the questions lie on both "
            "sides of it, ever closer. "
        )
    if result.design == "tuned":
        return (
            f"The first {first_rounds:,} rounds searched for the quantile and asked around it, partly beyond what is "
            "drawn; from then on the step is fixed. "
        )
    return f"The first {first_rounds:,} rounds searched for the quantile (burn-in). "


OTHER_NAMES = {"any-shape": "whatever the distribution", "smooth": "if smooth", "anytime": "if smooth"}
"""The interval that stands beside the first one, in a few words."""


def how_read(result: QuantileResult) -> str:
    """Where estimate and interval come from."""
    method, any_shape = result.method, result.inference.is_any_shape
    if result.shown.is_so_far and not result.valid_at_every_look:
        method, any_shape = "anytime", result.anytime_condition == "any-shape"
    if any_shape and result.design in ("straddle", "open"):
        return (
            "The interval ends at the innermost questions that the answers place below and above the quantile: of the "
            "distribution it needs nothing, and it holds at every look. The estimate is where a curve through all "
            "answers so far crosses the level, moved into the interval."
        )
    if any_shape:
        return (
            "The estimate is where the curve through all answers so far crosses the level. The interval holds what "
            "that curve gives, and the questions between which the answers place the quantile."
        )
    if method.startswith("self-normalized"):
        since = " since then" if result.averaged_rounds < result.rounds else ""
        return (
            f"The estimate is the mean of the questions{since}, and the interval comes from how that mean moved on its "
            "way (self-normalised)."
        )
    curve = (
        "The estimate is where the curve through all answers so far crosses the level; how steep the curve is there "
        "and the noise of the answers, which is known by design, give the interval"
    )
    if method.startswith("smooth"):
        return f"{curve}. It needs continuous values whose distribution is smooth around the quantile."
    return f"{curve}, widened so that it holds at every look at once (anytime)."


def looking(spec: RunSpec, result: QuantileResult) -> str:
    """What watching the interval that is drawn means for its confidence."""
    if spec.until_width is not None:
        return (
            f"It stays valid however often one looks: the run stops by itself once it is at most "
            f"{spec.until_width:,.6g} wide."
        )
    if spec.design == "open":
        return "The interval stays valid however often one looks, and whenever the run is ended."
    if result.valid_at_every_look or result.shown.is_so_far:
        dashed = "; the dashed one holds at the planned end only" if result.other is not None else ""
        return f"The interval stays valid however often one looks{dashed}."
    return "Stopping a run because of what this interval shows voids its confidence."


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
    if not level.silent.any():
        text = f"Every {result.parts.one} answered in every round."
        found.append(Finding("good", "Everybody answered", text))
    found.append(_possible(view, level))
    if result.located and len(result.clients) > 1:
        found.append(_differences(level, result))
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
    return list(dict.fromkeys([*common, *worst]))[:MAX_TO_ACT_ON]


def caveat_findings(result: QuantileResult) -> list[Finding]:
    """What the result carries, the most important first, without standing remarks: those are in the documentation."""
    return [
        Finding(
            "note" if caveat.severity == "note" else "worry",
            caveat.kind.title.format(one=result.parts.one, many=result.parts.many),
            caveat.text,
        )
        for caveat in (*result.shown.act, *result.shown.rest)
    ]


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
    middle = (level.low + level.high) / 2.0
    averaged = middle[len(level) - result.averaged_rounds :]
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


def _possible(view: RunView, level: LevelView) -> Finding:
    parts = parts_of(view.spec.weighting)
    counts = zip(view.spec.clients, level.state.ones, level.state.asked, strict=True)
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


NAMED_CLIENTS = 8
"""Clients that are named; the table of clients has more."""


class Option(NamedTuple):
    """One row: what it is, and what was chosen."""

    label: str
    text: str


def data_and_options(view: RunView) -> list[Option]:
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
        ("values declared", spec.values),
        ("interval asked for", spec.interval),
        ("confidence", percent_text(spec.confidence_level) + (", for all levels at once" if spec.joint > 1 else "")),
        ("target", TARGETS[spec.target]),
        ("missing values", f"{spec.missing}: {MISSING[spec.missing]}"),
        ("design", f"{spec.design}, {spec.round_mode} mode"),
        ("dither", plain(spec.dither) if spec.dither else ""),
        ("stops at a width of", "" if spec.until_width is None else plain(spec.until_width)),
    ]
    return [Option(label, text) for label, text in rows if text]


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


LISTED_CLIENTS = 1000
"""Clients in the page's data: about 120 bytes each."""

SHOWN_CLIENTS, FEWEST_CLIENTS = 150, 12
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
        f"{len(levels)} quantiles of {view.spec.value}" if several else short_title(first.level, view.spec.value),
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
        way = way_there(level.burn_in, result)
        method = f"{way}{how_read(result)}"
        method += " The chart shows the interval without what was declared." if result.shown.undeclared else ""
    return {
        "name": f"The {level_name(level.level)}",
        "text": f"{level.level:g}",
        "result": result,
        "answer": answer,
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
    shown, other = result.shown, None
    if result.other is not None and shown.other is not None:
        (low, high), condition = shown.other.ends, shown.other.condition
        other = {
            "low": low,
            "high": high,
            "condition": condition,
            "method": result.other.method,
            "how": result.other.how,
        }
    return {
        "estimate": shown.headline,
        "interval": shown.listed,
        "name": shown.first_name,
        "condition": shown.first.condition,
        "undeclared": shown.undeclared,
        "other": other,
        "contradiction": result.contradiction,
        "warned": any(caveat.code in ("contradiction", "declaration") for caveat in result.caveats),
    }


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
