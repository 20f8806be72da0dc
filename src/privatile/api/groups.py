"""An estimate for every group: each group is a run of its own, with the group's records and nobody else's.

The file is read once and divided by the columns of `by`; a group's run is that of the same command with the group as
its condition (`only`). A group that cannot be asked, since it is too small or has answered before, gives the stated
range and the reason; the others are not held up by it. Where a share of everybody is asked about all groups together,
that run comes first and takes the first records of every group's random order.
"""

import hashlib
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from privatile.api.division import Division
from privatile.api.local_run import UNDECLARED, LocalRun, Progress, log, make_private, new_run, opened
from privatile.api.specification import parts_of, specification
from privatile.client.coins import Coins
from privatile.client.ledger.ledger import Ledger
from privatile.client.order.column import HEAPS, ShuffledColumn
from privatile.client.order.shuffle import check_column
from privatile.client.order.weight_classes import MOST_ROUNDS
from privatile.core.words import counted, listed, printable
from privatile.errors import AlreadyAnswered, InputError, PrivatileError, StoreError
from privatile.estimator.auto import FEWEST_ROUNDS
from privatile.estimator.schedule import SELF_TUNING
from privatile.estimator.spec import FROM_RECORDS, RunSpec
from privatile.inference.inference import settings_of_each
from privatile.planning.options import Options
from privatile.planning.preview import preview
from privatile.report.group_folder import INDEX, OVERALL, GroupEntry, GroupFolder, file_names
from privatile.report.group_page import report_groups
from privatile.result.groups import GroupOutcome, GroupResults, with_partly_asked
from privatile.result.result import QuantileResult

MOST_GROUPS = 1_000
"""Rows of a table that somebody reads; a column with more entries holds numbers, days or people."""


DESIGNS = ("auto", *SELF_TUNING)
"""Those that choose the number of rounds themselves."""


class Group(NamedTuple):
    """One group: its run, or why there is none."""

    name: str
    entries: tuple[str, ...]
    """One for each column of `by`."""
    records: int
    run: LocalRun | None = None
    refused: PrivatileError | None = None
    why: str = ""
    left_out: bool = False
    """Whether its people are not asked about all groups together either."""


def prepare_groups(data: object, options: Options, rng: np.random.Generator | None = None) -> "GroupRuns":
    """Read the data and work out the run of every group; asks no one. With `rng` everything is a simulation."""
    ledger, coins, division = opened(data, options, rng)
    runs = GroupRuns(options, division, ledger, coins, *find_groups(options, division))
    runs.prepare()
    if heaped := [group.name for group in runs.groups if group.run is not None and group.run.is_heaped]:
        log.warning(HEAPS, f"{counted(len(heaped), 'group')} ({printable(listed(heaped))})", UNDECLARED)
    return runs


class GroupsFound(NamedTuple):
    """Which groups the data has."""

    known: list[tuple[str, ...]]
    """Their entries, one for each column of `by`, in order."""
    ungrouped: int
    """Records without a group, since the column is empty there. They are not asked."""
    contents: list[bytes]
    """Digests of the columns that belong to a group."""


def find_groups(options: Options, division: Division) -> GroupsFound:
    """The groups that the records of a division belong to; refused where there are none, or too many for a table."""
    by = options.by_columns
    named = ", ".join(map(repr, by))
    columns = division.only(options)
    places = [division.keys.index(column) for column in by]
    cells = {name: division.cells[column.content.holder] for name, column in columns.items()}
    entries = {name: tuple(cell[place] for place in places) for name, cell in cells.items()}
    known = sorted({tuple(map(str, entry)) for entry in entries.values() if None not in entry})
    if not known:
        raise InputError(f"no record has an entry in column {named}: there are no groups.")
    if len(known) > MOST_GROUPS:
        raise InputError(
            f"column {named} has {len(known):,} different entries, and a table may have {MOST_GROUPS:,} groups. "
            "Name a coarser column, or choose some of the records with only."
        )
    grouped = [columns[name] for name, entry in entries.items() if None not in entry]
    options.check_clients(sorted({division.holder(column) for column in grouped}), ("epsilon", "weights"))
    ungrouped = sum(columns[name].records for name, entry in entries.items() if None in entry)
    return GroupsFound(known, ungrouped, sorted(column.content.digest for column in grouped))


@dataclass(eq=False, repr=False)
class GroupRuns:
    """The runs of many groups, nothing asked yet. `groups` are in the order of their names."""

    options: Options
    division: Division
    ledger: Ledger
    coins: Coins
    known: list[tuple[str, ...]]
    ungrouped: int
    contents: list[bytes]
    groups: list[Group] = field(default_factory=list, init=False)
    overall: LocalRun | None = field(default=None, init=False)
    _begun: GroupFolder | None = field(default=None, init=False)
    _partly: tuple[str, ...] = field(default=(), init=False)

    def prepare(self) -> None:
        """Work out every run, after what was begun here before."""
        self.groups = [Group(", ".join(entry), entry, 0) for entry in self.known]
        self._begun = self._checked_list()
        self._prepare(self._taken)
        if (share := self.options.overall_share) is None:
            return
        begun = None if self.options.new_run else self._begun
        partly = self._partly_left() if begun is None else begun.partly
        # Where the run over all groups has begun, the groups have what it left; otherwise they are to have that.
        with suppress(InputError):  # it may be about groups that turn out to be too small
            self.overall = self._overall()
        if self.overall is None or self.overall.store is None:
            self._prepare(share)
            self.overall = self._overall()
        if self.overall.spec.weighting in FROM_RECORDS:
            self._partly = tuple(group.name for group in self.groups if group.run is not None and group.name in partly)

    @property
    def _taken(self) -> float:
        """Where all records may be asked again, those that answered about all groups still count as asked."""
        return (self.options.overall_share or 0.0) if self.options.spend_again else 0.0

    def _prepare(self, taken: float) -> None:
        self.groups = [self._prepared(entry, taken) for entry in self.known]
        if all(group.run is None for group in self.groups):
            raise next(group.refused for group in self.groups if group.refused is not None)

    # -- one group -----------------------------------------------------------------------------------------------

    def _conditions(self, entries: tuple[str, ...]) -> dict[str, str]:
        return {**self.options.conditions, **dict(zip(self.options.by_columns, entries, strict=True))}

    def _prepared(self, entries: tuple[str, ...], taken: float) -> Group:
        """A group's run, over what is left when a share is `taken`; what refuses this group refuses no other one."""
        columns = self.division.matching(self._conditions(entries))
        group = Group(", ".join(entries), entries, sum(column.records for column in columns.values()))
        try:
            for column in columns.values():
                check_column(column, self.options.missing)
            run = self._run(
                columns,
                taken=taken,
                tell=self.options.overall_share is None,  # otherwise the run over all groups tells it
                rounds=self._rounds(columns, 1.0 - (self.options.overall_share or 0.0)),
                only=self._conditions(entries),
                save=self._place(self._files[group.name]),
            )
            small = run.store is None and preview(self._judged(run)).says_nothing
        except AlreadyAnswered as error:
            why = "its records have answered before, so they are not asked again"
            return group._replace(refused=error, why=why, left_out=True)
        except InputError as error:  # wrong options refuse every group, and are then raised
            few = group.records < FEWEST_ROUNDS * max(1, len(self.options.levels))
            return group._replace(refused=error, why=TOO_SMALL if few else str(error).rstrip("."), left_out=True)
        if small:
            refused = InputError(f"group {group.name!r:.60}, of {group.records:,} records, is {TOO_SMALL}.")
            return group._replace(refused=refused, why=TOO_SMALL, left_out=True)
        return group._replace(run=run)

    def _judged(self, run: LocalRun) -> RunSpec:
        """What decides whether a group is too small. Beside a run over all groups it is what the file alone says, so
        that a command that goes on decides as it did before anybody was asked."""
        share = self.options.overall_share
        if share is None:
            return run.spec
        parts = parts_of(run.columns, run.holders)
        left = [part._replace(records=part.records - math.floor(share * part.records)) for part in parts]
        spec = specification(run.options, left, simulated=run.spec.simulated)
        for level_index in range(len(spec.levels)):
            spec.plan(level_index)  # refuses too few records
        return spec

    def _after_overall(self, group: Group) -> Group:
        """The same group when the run over all groups has asked its share; it was decided before who is asked."""
        if group.run is None:
            return group
        found = self._prepared(group.entries, self._taken)
        return found if found.run is not None else found._replace(why=SPENT, left_out=False)

    def _run(
        self,
        columns: Mapping[str, ShuffledColumn],
        *,
        share: float = 1.0,
        taken: float = 0.0,
        tell: bool = True,
        **more: Any,
    ) -> LocalRun:
        options = self.options
        members = len(self._files) + (options.overall_share is not None)
        level = settings_of_each(options.confidence_level, members, simultaneous=options.simultaneous)
        holders = {self.division.holder(column) for column in columns.values()}
        for name in ("epsilon", "weights"):
            if isinstance(given := getattr(options, name), Mapping):
                more[name] = {client: number for client, number in given.items() if client in holders}
        own = replace(options, by=None, overall_share=None, **level, **more)
        return new_run(
            own, columns, self.division, self.ledger, self.coins, shared=True, share=share, taken=taken, tell=tell
        )

    def _rounds(self, columns: Mapping[str, ShuffledColumn], share: float) -> int | None:
        """Of weighted records: no more rounds than a share of the smallest class has records for (`specification`)."""
        options = self.options
        if options.weight is None or options.rounds is not None or options.design not in DESIGNS or share == 1.0:
            return options.rounds
        smallest = math.floor(share * min(column.records for column in columns.values()))
        return max(1, min(MOST_ROUNDS, smallest // max(1, len(options.levels))))

    def _overall(self) -> LocalRun:
        """A share of every group that is asked, as clients that count with their numbers of records."""
        columns: dict[str, ShuffledColumn] = {}
        for group in self.groups:
            if group.run is not None:
                columns |= group.run.columns
        share = self.options.overall_share or 1.0
        try:
            return self._run(columns, share=share, rounds=self._rounds(columns, share), save=self._place(OVERALL))
        except InputError as error:
            raise InputError(f"with overall_share={share:g} the run over all groups cannot be: {error}") from None

    def _partly_left(self) -> tuple[str, ...]:
        """Groups some people of which have answered before, so that they count with less than their size."""
        if self.options.spend_again or self.options.weight is not None:  # all may be asked; or sums of weights count
            return ()
        return tuple(group.name for group in self.groups if group.run is not None and not _is_whole(group.run))

    # -- files ---------------------------------------------------------------------------------------------------

    def _place(self, file: str) -> Path | None:
        return None if self.options.save is None else Path(self.options.save) / file

    @cached_property
    def _files(self) -> dict[str, str]:
        return file_names([", ".join(entry) for entry in self.known])

    @cached_property
    def _list(self) -> Path | None:
        """Where the list of groups lies: in the folder, or with the files of unfinished runs; none of simulations."""
        options = self.options
        if options.save is not None:
            return Path(options.save) / INDEX
        if self.ledger.path is None:
            return None
        asked = (options.value_in_words, options.by, options.only, options.levels, options.epsilon, self.contents)
        name = hashlib.sha256(repr(asked).encode()).hexdigest()[:24]
        return self.ledger.path.parent / "runs" / f"{name}-{INDEX}"

    def _checked_list(self) -> GroupFolder | None:
        """What was begun here before, with the same groups and the same share; refused with others."""
        path, save = self._list, self.options.save
        if path is None:
            return None
        if not path.is_file():
            if save is not None and path.with_name(OVERALL).exists():
                raise StoreError(f"{save} has the run over all groups, and no {INDEX}. Name another one: save=FOLDER.")
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
            overall_share=options.overall_share,
            ungrouped=self.ungrouped,
            groups=tuple(
                GroupEntry(group.name, "" if group.left_out else self._files[group.name], group.records, group.why)
                for group in self.groups
            ),
            partly=self._partly,
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
        overall = [] if self.overall is None else [self.overall]
        return [*overall, *(group.run for group in self.groups if group.run is not None)]

    # -- asking --------------------------------------------------------------------------------------------------

    def complete(self, progress: Progress | None = None, *, keep: bool = False) -> GroupResults:
        """Ask every group until its run is over, or continue where it stopped; `progress` counts runs.

        `keep` leaves it to the caller to remove the files of runs that are not saved (`discard`).
        """
        self._write_list()
        overall: tuple[QuantileResult, ...] = ()
        count, done = len(self.runs), int(self.overall is not None)
        if self.overall is not None:
            overall = with_partly_asked(self.overall.complete(keep=True), self._partly)
            # Whom it asked is known by now: the groups have the others.
            self.groups = [self._after_overall(group) for group in self.groups]
            self._write_list()
        outcomes = []
        for group in self.groups:
            results: tuple[QuantileResult | None, ...] = () if group.left_out else (None,) * len(self.options.levels)
            if group.run is not None:
                found = group.run.complete(keep=True)
                results = tuple(found)
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
            overall=overall,
            overall_share=options.overall_share,
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


def _is_whole(run: LocalRun) -> bool:
    """Whether all records of a run's columns may be asked."""
    columns = run.columns.values()
    missing = sum(column.missing for column in columns) if run.spec.missing == "drop" else 0
    left = sum(client.records for client in run.spec.clients)
    return left == sum(column.records for column in columns) - missing


TOO_SMALL = "too small at this ε to say anything, so nobody there is asked"

SPENT = "too few of its people are left after those who answered about the overall value"
