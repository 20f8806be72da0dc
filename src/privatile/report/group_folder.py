"""A folder with one run's file for every group, and its list of them: `groups.json`.

The list is written before anybody is asked. Killed at any moment, the same command finds every run again.
"""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from privatile.core.decoding import Document, parse_json, read_text
from privatile.errors import InputError, StoreError

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
            f"{'all at once' if self.simultaneous else 'each by itself'} with {100 * self.confidence_level:.4g}% "
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
