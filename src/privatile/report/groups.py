"""Many groups or runs on one page: the folder, its results, the table and the figure.

A folder holds one run's file for every group, and its list of them: `groups.json`. The list is written before anybody
is asked. Killed at any moment, the same command finds every run again. Pages and figures show dots and whiskers: one
row per group, the largest estimate on top; or one per difference.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privatile.core.decoding import Document, parse_json, read_text
from privatile.core.text import counted, percent_text
from privatile.errors import InputError, StoreError
from privatile.inference.inference import settings_of_each
from privatile.report.charts import Chart, dots_axis, dots_chart
from privatile.report.pages import BLUE, GREY, render_page, write_report
from privatile.result.compare import Comparisons
from privatile.result.groups import GroupOutcome, GroupResults
from privatile.result.shown import plain
from privatile.result.tables import Table
from privatile.run.run_file import RunStore
from privatile.run.view import RunView

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


INDEX = "groups.json"
FORMAT = 2


@dataclass(frozen=True)
class GroupEntry:
    """One group of a folder: its file, empty where nobody was asked, and why."""

    name: str
    file: str
    records: int
    why: str

    def __post_init__(self) -> None:
        if Path(self.file).name != self.file:
            raise InputError(f"a group's file lies in the same folder; got {self.file!r:.60}.")


@dataclass(frozen=True)
class GroupFolder:
    """What `groups.json` says."""

    value: str
    by: str
    levels: tuple[float, ...]
    range: tuple[float, float]
    confidence_level: float
    simultaneous: bool
    ungrouped: int
    groups: tuple[GroupEntry, ...]
    format: int = FORMAT

    def write(self, path: Path) -> None:
        """Write it, whole or not at all; for its owner alone, as the runs' files are: it has the groups' sizes."""
        new = path.with_name(f"{path.name}.new")
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
            file.write(json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n")
        new.replace(path)

    @classmethod
    def read(cls, path: Path) -> "GroupFolder":
        """Read it; every field is checked."""
        plain = parse_json(read_text(path), str(path))
        if not isinstance(plain, dict) or plain.get("format") != FORMAT:
            raise StoreError(
                f"{path} is no list of groups that this version reads. Read it with the one that wrote it."
            )
        document = Document(plain, str(path))
        return document.finish(document.decode(cls))

    def check_same(self, now: "GroupFolder", path: Path, go_on: str) -> None:
        """Refuse to continue what was begun with other groups: who is asked what follows from them.

        How sure the intervals are to be, each or all at once, is a matter of the report (`chosen_later`).
        """
        for name in ("by", "value", "levels", "range", "ungrouped"):
            begun, wanted = getattr(self, name), getattr(now, name)
            if begun != wanted:
                break
        else:
            name = "groups"
            begun, wanted = (", ".join(entry.name for entry in each.groups) for each in (self, now))
            if begun == wanted:
                return
        raise StoreError(
            f"{path} belongs to estimates that began with {_said(name, begun)}; got {_said(name, wanted)}. Who is "
            f"asked about what was decided by it, so it cannot be changed. Give the same as then, or {go_on}."
        )

    def chosen_later(self, confidence_level: float, *, simultaneous: bool) -> str:
        """That the confidence is not the one that was stated before the answers came; empty where it is."""
        if (confidence_level, simultaneous) == (self.confidence_level, self.simultaneous):
            return ""
        return (
            f"Chosen after the answers had come: the groups were asked for intervals that hold "
            f"{'all at once' if self.simultaneous else 'each by itself'} with {percent_text(self.confidence_level, 4)} "
            "confidence. The confidence holds for a choice that does not follow from the answers."
        )


def _said(name: str, fact: object) -> str:
    """A fact of a list in an error.

    >>> _said("range", (0.0, 100.0)), _said("by", "region")
    ('range=(0, 100)', "by='region'")
    """
    if isinstance(fact, tuple):
        return f"{name}=({', '.join(f'{part:g}' for part in fact)})"
    return f"{name}={fact!r:.80}"


def is_group_folder(path: Path) -> bool:
    """Whether a folder holds the runs of groups."""
    return (path / INDEX).is_file()


def file_names(groups: Sequence[str]) -> dict[str, str]:
    """A file's name for every group: its own name without what file systems or shells stumble over.

    >>> file_names(["Far West", "far/west"])
    {'Far West': 'Far-West.db', 'far/west': 'far-west-2.db'}
    """
    taken: set[str] = set()
    names = {}
    for group in groups:
        plain = re.sub(r"[^\w.]+", "-", group).strip("-.")[:60] or "group"
        name, number = f"{plain}.db", 1
        while name.lower() in taken:
            number += 1
            name = f"{plain}-{number}.db"
        taken.add(name.lower())
        names[group] = name
    return names


def results_of(sources: Sequence[Path], **report: Any) -> GroupResults:
    """The results of a folder of groups, or of several runs' files, reported as `report` says."""
    if len(sources) == 1 and is_group_folder(sources[0]):
        return read_groups(sources[0], **report)
    return read_runs([path / "run.db" if path.is_dir() else path for path in sources], **report)


def read_groups(
    folder: Path, *, simultaneous: bool | None = None, confidence_level: float | None = None, **report: Any
) -> GroupResults:
    """The results of a folder of groups, reported as asked for or as they were asked."""
    index = GroupFolder.read(folder / INDEX)
    level = index.confidence_level if confidence_level is None else confidence_level
    together = index.simultaneous if simultaneous is None else simultaneous
    report = {**report, **settings_of_each(level, len(index.groups), simultaneous=together)}
    groups = []
    for entry in index.groups:
        if not entry.file:
            groups.append(GroupOutcome(entry.name, (), entry.records, entry.why))
        elif not (path := folder / entry.file).is_file():
            groups.append(
                GroupOutcome(entry.name, (None,) * len(index.levels), entry.records, entry.why or "not asked yet")
            )
        else:
            groups.append(outcome(entry.name, path, report)._replace(records=entry.records))
    return GroupResults(
        value=index.value,
        by=index.by,
        levels=index.levels,
        range=index.range,
        groups=tuple(groups),
        confidence_level=level,
        simultaneous=together,
        ungrouped=index.ungrouped,
        chosen_later=index.chosen_later(level, simultaneous=together),
    )


def read_runs(
    paths: Sequence[Path], *, simultaneous: bool = False, confidence_level: float = 0.95, **report: Any
) -> GroupResults:
    """The results of several runs' files side by side, each under its file's name."""
    names = labels(paths)
    # Nothing says that they have no person in common, so their errors may depend on each other: Bonferroni.
    level = 1.0 - (1.0 - confidence_level) / len(paths) if simultaneous else confidence_level
    report = {**report, "confidence_level": level, "simultaneous": simultaneous}
    specs = []
    for path in paths:
        with RunStore.open(path, read_only=True) as store:
            specs.append(store.spec)
    levels = {spec.levels for spec in specs}
    if len(levels) > 1:
        raise InputError(f"{paths[0]} and the others have different levels. Put runs of the same levels side by side.")
    return GroupResults(
        value=common_value([spec.value for spec in specs]),
        by="",
        levels=levels.pop(),
        range=(min(spec.low for spec in specs), max(spec.high for spec in specs)),
        groups=tuple(outcome(name, path, report) for name, path in zip(names, paths, strict=True)),
        confidence_level=confidence_level,
        simultaneous=simultaneous,
    )


def common_value(values: Sequence[str]) -> str:
    """What the numbers of several runs are: the same words, or the column before " at GROUP".

    >>> common_value(["pay at work", "pay at work"]), common_value(["pay at work at north", "pay at work at south"])
    ('pay at work', 'pay at work')
    >>> common_value(["pay", "age"])
    'the values'
    """
    columns = {value.rpartition(" at ")[0] or value for value in values}
    alike = set(values) if len(set(values)) == 1 else columns
    return alike.pop() if len(alike) == 1 else "the values"


def outcome(name: str, path: Path, report: Mapping[str, Any]) -> GroupOutcome:
    """One run's results as a group; none yet while it is still searching."""
    view = RunView.read(path, **report)
    found, records = view.results(), sum(client.records for client in view.spec.clients)
    return GroupOutcome(name, found, records, "" if any(found) else "still searching for the quantile")


def labels(paths: Sequence[Path]) -> list[str]:
    """What each run is called: its file's name, with the folder where two are alike.

    >>> labels([Path("a/north.db"), Path("south.db")]), labels([Path("a/run.db"), Path("b/run.db")])
    (['north', 'south'], ['a/run', 'b/run'])
    """
    stems = [path.stem for path in paths]
    if len(set(stems)) == len(stems):
        return stems
    named = [str(path.with_suffix("")) for path in paths]
    if len(set(named)) < len(named):
        raise InputError("a run is named twice. Name each file once.")
    return named


ROW = 0.24
"""Height of a row, in inches."""


def figure_of(results: GroupResults | Comparisons) -> "Figure":
    """Every estimate or difference with its interval, one panel per table."""
    from matplotlib.figure import Figure

    tables = results.tables()
    figure = Figure(figsize=(6.4, (0.8 + ROW * len(tables[0].lines)) * len(tables)), layout="constrained")
    for table, panel in zip(tables, figure.subplots(len(tables), 1, squeeze=False)[:, 0], strict=True):
        _draw(panel, table)
        panel.set_xlabel(table.axis)
    return figure


def _draw(panel: "Axes", table: Table) -> None:
    ends = table.ends
    if table.rule is not None:
        panel.axvline(table.rule, color=GREY, linestyle="--", linewidth=0.9, zorder=0)
    for row, line in enumerate(table.lines):
        if line.is_located:
            low, high = (min(max(end, ends[0]), ends[1]) for end in line.ends)
            panel.plot([low, high], [row, row], color=BLUE, linewidth=1.4, solid_capstyle="butt")
            panel.plot([line.place], [row], color=BLUE, marker="o", markersize=5)
        else:
            why = line.why or line.p_value
            panel.text(ends[0], row, f" {why.partition(',')[0]}", color=GREY, va="center", fontsize=7.5)
    panel.set_yticks(range(len(table.lines)), [line.name for line in table.lines])
    panel.set_ylim(len(table.lines) - 0.5, -0.5)
    panel.set_xlim(*ends)
    panel.xaxis.set_major_formatter("{x:,.6g}")
    panel.grid(axis="y", visible=False)
    panel.tick_params(axis="y", length=0)


def page_of(results: GroupResults | Comparisons) -> str:
    """The whole page about groups, runs or differences."""
    tables = results.tables()
    title = tables[0].title
    if isinstance(results, GroupResults) and len(tables) > 1:
        where = f"by {results.by}" if results.by else f"in {len(results.groups)} runs"
        title = f"{len(tables)} quantiles of {results.value} {where}"
    return render_page(
        "groups.html.j2",
        title,
        results.to_dict(),
        ("save.js",),
        summary=_summary(results),
        begun=_begun(results) if isinstance(results, GroupResults) else (),
        tables=[
            {"table": table, "charts": _charts(table), "axis": dots_axis(table.ends, ",.10g", 4)} for table in tables
        ],
        notes=results.notes(),
        rule="The dashed line is no difference." if isinstance(results, Comparisons) else "",
        act=results.to_act_on() if isinstance(results, GroupResults) else [],
    )


def _charts(table: Table) -> list[Chart]:
    lines = ([[(line.place, *line.ends)] if line.is_located else []] for line in table.lines)
    return [dots_chart(line, table.ends, table.rule) for line in lines]


def _summary(results: GroupResults | Comparisons) -> str:
    """How many were asked, and what each spent."""
    if isinstance(results, Comparisons):
        return f"{counted(len(results.pairs), 'difference')} of {len(results.names):,} runs"
    epsilons = {result.epsilon for _, result in results.results}
    summary = f"{counted(len(results.groups), 'group' if results.by else 'run')}, "
    summary += f"{counted(sum(result.records for _, result in results.results), 'record')} asked"
    if epsilons:
        summary += f", each once in its run with ε {'up to ' if len(epsilons) > 1 else '= '}{max(epsilons):.4g}"
    if results.by:
        summary += f"; stated range {plain(results.range[0])} to {plain(results.range[1])}"
    return summary


def _begun(results: GroupResults) -> tuple[str, ...]:
    """The first and the last day on which a run began."""
    dates = sorted({result.date[:10] for _, result in results.results if result.date is not None})
    return tuple(dict.fromkeys((dates[0], dates[-1]))) if dates else ()


def report_groups(results: GroupResults | Comparisons, path: str | Path) -> Path:
    """A page for .html; a figure for .svg, .pdf and .png."""
    return write_report(path, lambda: page_of(results), lambda: figure_of(results))
