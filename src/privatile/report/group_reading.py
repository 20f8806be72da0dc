"""The results of many runs side by side: of a folder of groups, or of several runs' files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from privatile.errors import InputError
from privatile.inference.inference import settings_of_each
from privatile.report.group_folder import INDEX, GroupFolder, is_group_folder
from privatile.report.view import RunRecord
from privatile.result.groups import GroupOutcome, GroupResults
from privatile.server.run_file import RunStore


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
    with RunStore.open(path, read_only=True) as store:
        found = tuple(RunRecord(store, store.spec.with_report(**report)).results())
        records = sum(client.records for client in store.spec.clients)
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
