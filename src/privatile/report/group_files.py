"""A folder with one run's file for every group, and what it says about them: `groups.json`.

The list is written before anybody is asked. Killed at any moment, the same command finds every run again.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from privatile.core.decoding import Document, parse_json, read_text
from privatile.errors import InputError, StoreError
from privatile.inference.inference import level_each
from privatile.report.view import RunRecord
from privatile.result.groups import GroupOutcome, GroupResults, with_partly_asked
from privatile.result.result import QuantileResult
from privatile.server.run_file import RunStore

INDEX = "groups.json"
FORMAT = 1

OVERALL = "overall.db"


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
    overall_share: float | None
    ungrouped: int
    groups: tuple[GroupEntry, ...]
    partly: tuple[str, ...]
    """Groups some people of which had answered before, where the overall value counts them with the others alone."""
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
        """Refuse to continue what was begun with other groups or another share: who is asked what follows from them.

        How sure the intervals are to be, each or all at once, is a matter of the report (`chosen_later`).
        """
        for name in ("overall_share", "by", "value", "levels", "range", "ungrouped"):
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
            f"{'all at once' if self.simultaneous else 'each by itself'} with {100 * self.confidence_level:.4g}% "
            "confidence. The confidence holds for a choice that does not follow from the answers."
        )


def _said(name: str, fact: object) -> str:
    """A fact of a list in an error.

    >>> _said("overall_share", None), _said("overall_share", 0.3), _said("range", (0.0, 100.0)), _said("by", "region")
    ('no overall_share', 'overall_share=0.3', 'range=(0, 100)', "by='region'")
    """
    if fact is None:
        return f"no {name}"
    if isinstance(fact, tuple):
        return f"{name}=({', '.join(f'{part:g}' for part in fact)})"
    return f"{name}={fact:g}" if isinstance(fact, float) else f"{name}={fact!r:.80}"


def is_group_folder(path: Path) -> bool:
    """Whether a folder holds the runs of groups."""
    return (path / INDEX).is_file()


def file_names(groups: Sequence[str]) -> dict[str, str]:
    """A file's name for every group: its own name without what file systems or shells stumble over.

    >>> file_names(["Far West", "far/west", "overall"])
    {'Far West': 'Far-West.db', 'far/west': 'far-west-2.db', 'overall': 'overall-2.db'}
    """
    taken, names = {OVERALL}, {}
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
    members = len(index.groups) + (index.overall_share is not None)
    report = {**report, **each(level, members, simultaneous=together)}
    groups = []
    for entry in index.groups:
        if not entry.file:
            groups.append(GroupOutcome(entry.name, (), entry.records, entry.why))
        elif not (path := folder / entry.file).is_file():
            groups.append(
                GroupOutcome(entry.name, (None,) * len(index.levels), entry.records, entry.why or "not asked yet")
            )
        else:
            groups.append(outcome(entry.name, path, report))
    overall: tuple[QuantileResult, ...] = ()
    if index.overall_share is not None and (folder / OVERALL).is_file():
        results = outcome("overall", folder / OVERALL, report).results
        overall = tuple(result for result in results if result is not None)
    return GroupResults(
        value=index.value,
        by=index.by,
        levels=index.levels,
        range=index.range,
        groups=tuple(groups),
        confidence_level=level,
        simultaneous=together,
        overall=with_partly_asked(overall, index.partly) if len(overall) == len(index.levels) else (),
        overall_share=index.overall_share,
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
    values = {spec.value.partition(" at ")[0] for spec in specs}
    return GroupResults(
        value=values.pop() if len(values) == 1 else "the values",
        by="",
        levels=levels.pop(),
        range=(min(spec.low for spec in specs), max(spec.high for spec in specs)),
        groups=tuple(outcome(name, path, report) for name, path in zip(names, paths, strict=True)),
        confidence_level=confidence_level,
        simultaneous=simultaneous,
    )


def each(confidence_level: float, members: int, *, simultaneous: bool) -> dict[str, Any]:
    """How each of several runs is reported, so that all intervals hold at once, or each by itself.

    >>> each(0.95, 3, simultaneous=True)["confidence_level"] ** 3
    0.95
    >>> each(0.95, 3, simultaneous=False)
    {'confidence_level': 0.95, 'simultaneous': False}
    """
    level = level_each(confidence_level, members) if simultaneous else confidence_level
    return {"confidence_level": level, "simultaneous": simultaneous}


def outcome(name: str, path: Path, report: Mapping[str, Any]) -> GroupOutcome:
    """One run's results as a group; none yet while it is still searching."""
    with RunStore.open(path, read_only=True) as store:
        found = tuple(RunRecord(store, store.spec.with_report(**report)).results())
    asked = sum(result.records for result in found if result is not None)
    return GroupOutcome(name, found, asked, "" if any(found) else "still searching for the quantile")


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
