"""An estimate for every group: each group is a run of its own, with the group's records and nobody else's.

The file is read once and divided by the columns of `by`; a group's run is that of the same command with the group as
its condition (`only`). A group that cannot be asked, since it is too small or has answered before, gives the stated
range and the reason; the others are not held up by it.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from privatile.api.division import Division
from privatile.api.local_run import UNDECLARED, LocalRun, Progress, log, make_private, opened
from privatile.client.ledger.ledger import Ledger
from privatile.client.order.shuffle import HEAPS, check_column
from privatile.client.randomizer import Coins
from privatile.core.text import counted, listed, printable
from privatile.errors import AlreadyAnswered, InputError, PrivatileError, StoreError
from privatile.estimator.tuned import MIN_ROUNDS
from privatile.inference.inference import settings_of_each
from privatile.planning.options import Options
from privatile.planning.preview import preview
from privatile.report.groups import INDEX, GroupEntry, GroupFolder, file_names, report_groups
from privatile.result.groups import GroupOutcome, GroupResults
from privatile.result.result import QuantileResult

MAX_GROUPS = 1_000
"""Rows of a table that somebody reads; a column with more entries holds numbers, days or people."""


class Group(NamedTuple):
    """One group: its run, or why there is none."""

    name: str
    entries: tuple[str, ...]
    """One for each column of `by`."""
    records: int
    run: LocalRun | None = None
    refused: PrivatileError | None = None
    why: str = ""


def prepare_groups(data: object, options: Options, rng: np.random.Generator | None = None) -> "GroupRuns":
    """Read the data and work out the run of every group; asks no one. With `rng` everything is a simulation."""
    runs = GroupRuns(options, *opened(data, options, rng))
    if heaped := [group.name for group in runs.groups if group.run is not None and group.run.is_heaped]:
        log.warning(HEAPS, f"{counted(len(heaped), 'group')} ({printable(listed(heaped))})", UNDECLARED)
    return runs


@dataclass(eq=False, repr=False)
class GroupRuns:
    """The runs of many groups, nothing asked yet. `groups` are in the order of their names."""

    options: Options
    ledger: Ledger
    coins: Coins
    division: Division
    groups: list[Group] = field(init=False)
    ungrouped: int = field(init=False)
    """Records without a group, since the column is empty there. They are not asked."""
    _begun: GroupFolder | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Find the groups, what was begun here before, and the run of every group."""
        self.groups = self._found()
        self._begun = self._checked_list()
        self.groups = [self._prepared(group.entries) for group in self.groups]
        if all(group.run is None for group in self.groups):
            raise next(group.refused for group in self.groups if group.refused is not None)

    def _found(self) -> list[Group]:
        """The groups that the records belong to; refused where there are none, or too many for a table."""
        options, division = self.options, self.division
        named = ", ".join(map(repr, options.by_columns))
        columns = division.only(options)
        places = [division.keys.index(column) for column in options.by_columns]
        cells = {name: division.cells[column.content.holder] for name, column in columns.items()}
        entries = {name: tuple(cell[place] for place in places) for name, cell in cells.items()}
        known = sorted({tuple(map(str, entry)) for entry in entries.values() if None not in entry})
        if not known:
            raise InputError(f"no record has an entry in column {named}: there are no groups.")
        if len(known) > MAX_GROUPS:
            raise InputError(
                f"column {named} has {len(known):,} different entries, and a table may have {MAX_GROUPS:,} groups. "
                "Name a coarser column, or choose some of the records with only."
            )
        grouped = [columns[name] for name, entry in entries.items() if None not in entry]
        options.check_clients(sorted({division.holder(column) for column in grouped}), ("epsilon", "client_weights"))
        self.ungrouped = sum(columns[name].records for name, entry in entries.items() if None in entry)
        self._contents = sorted(column.content.digest for column in grouped)
        return [Group(", ".join(entry), entry, 0) for entry in known]

    # -- one group -----------------------------------------------------------------------------------------------

    def _prepared(self, entries: tuple[str, ...]) -> Group:
        """A group's run; what refuses this group refuses no other one."""
        options, more = self.options, dict[str, Any]()
        conditions = {**options.conditions, **dict(zip(options.by_columns, entries, strict=True))}
        columns = self.division.matching(conditions)
        group = Group(", ".join(entries), entries, sum(column.records for column in columns.values()))
        try:
            for column in columns.values():
                check_column(column, options.missing)
            holders = {self.division.holder(column) for column in columns.values()}
            for name in ("epsilon", "client_weights"):
                if isinstance(given := getattr(options, name), Mapping):
                    more[name] = {client: number for client, number in given.items() if client in holders}
            level = settings_of_each(options.confidence_level, len(self._files), simultaneous=options.simultaneous)
            save = None if options.save is None else Path(options.save) / self._files[group.name]
            own = replace(options, by=None, only=conditions, save=save, **level, **more)
            run = LocalRun(own, columns, self.division, self.ledger, self.coins, shared=True)
            small = run.store is None and preview(run.spec).says_nothing
        except AlreadyAnswered as error:
            why = "its records have answered before, so they are not asked again"
            return group._replace(refused=error, why=why)
        except InputError as error:  # wrong options refuse every group, and are then raised
            few = group.records < MIN_ROUNDS * max(1, len(options.levels))
            return group._replace(refused=error, why=TOO_SMALL if few else str(error).rstrip("."))
        if small:
            refused = InputError(f"group {group.name!r:.60}, of {group.records:,} records, is {TOO_SMALL}.")
            return group._replace(refused=refused, why=TOO_SMALL)
        return group._replace(run=run)

    # -- files ---------------------------------------------------------------------------------------------------

    @cached_property
    def _files(self) -> dict[str, str]:
        return file_names([group.name for group in self.groups])

    @cached_property
    def _list(self) -> Path | None:
        """Where the list of groups lies: in the folder, or with the files of unfinished runs; none of simulations."""
        options = self.options
        if options.save is not None:
            return Path(options.save) / INDEX
        if self.ledger.path is None:
            return None
        asked = (options.value_in_words, options.by, options.only, options.levels, options.epsilon, self._contents)
        name = hashlib.sha256(repr(asked).encode()).hexdigest()[:24]
        return self.ledger.path.parent / "runs" / f"{name}-{INDEX}"

    def _checked_list(self) -> GroupFolder | None:
        """What was begun here before, with the same groups; refused with others."""
        path, save = self._list, self.options.save
        if path is None or not path.is_file():
            return None
        begun = GroupFolder.read(path)
        elsewhere = "name another folder with save=FOLDER" + ("" if save is not None else ", which is another estimate")
        begun.check_same(self._described(), path, elsewhere)
        return begun

    def _described(self) -> GroupFolder:
        """The list, as far as it is known; how sure the intervals are to be is what was stated first."""
        options, first = self.options, self.options if self._begun is None else self._begun
        return GroupFolder(
            value=options.value_in_words,
            by=self.named,
            levels=options.levels,
            range=(options.working_scale.low, options.working_scale.high),
            confidence_level=first.confidence_level,
            simultaneous=first.simultaneous,
            ungrouped=self.ungrouped,
            groups=tuple(
                GroupEntry(group.name, "" if group.run is None else self._files[group.name], group.records, group.why)
                for group in self.groups
            ),
        )

    def _write_list(self) -> None:
        """What is asked here, before anybody is."""
        if self._list is None:
            return
        folder = self._list.parent
        if folder.exists() and not folder.is_dir():
            raise StoreError(f"{folder} is a file. With by, save names a folder: a file for every group goes there.")
        if self.options.save is None:
            make_private(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._described().write(self._list)

    @property
    def named(self) -> str:
        """What the groups are, in words."""
        return ", ".join(self.options.by_columns)

    @property
    def runs(self) -> list[LocalRun]:
        """All runs, in the order in which they are asked."""
        return [group.run for group in self.groups if group.run is not None]

    # -- asking --------------------------------------------------------------------------------------------------

    def complete(self, progress: Progress | None = None, *, keep: bool = False) -> GroupResults:
        """Ask every group until its run is over, or continue where it stopped; `progress` counts runs.

        `keep` leaves it to the caller to remove the files of runs that are not saved (`discard`).
        """
        self._write_list()
        count, done, outcomes = len(self.runs), 0, []
        for group in self.groups:
            results: tuple[QuantileResult, ...] = ()
            if group.run is not None:
                results = tuple(group.run.complete(keep=True))
                done += 1
                if progress is not None:
                    progress(done, count)
            outcomes.append(GroupOutcome(group.name, results, group.records, group.why))
        self.ledger.close()
        if not keep:
            self.discard()
        options = self.options
        return GroupResults(
            value=options.value_in_words,
            by=self.named,
            levels=options.levels,
            range=(options.working_scale.low, options.working_scale.high),
            groups=tuple(outcomes),
            confidence_level=options.confidence_level,
            simultaneous=options.simultaneous,
            ungrouped=self.ungrouped,
            chosen_later=""
            if self._begun is None
            else self._begun.chosen_later(options.confidence_level, simultaneous=options.simultaneous),
            reporter=report_groups,
        )

    def discard(self) -> None:
        """Remove the files of runs that are not to be saved."""
        for run in self.runs:
            run.discard()
        if self.options.save is None and self._list is not None:
            self._list.unlink(missing_ok=True)


TOO_SMALL = "too small at this ε to say anything, so nobody there is asked"
