"""The records of a file as a run sees them: divided among clients, and by the columns of groups and conditions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from privatile.client.ledger.integrity import PersonKey
from privatile.client.ledger.ledger import Ledger
from privatile.client.order.shuffle import ShuffledColumn, shuffle
from privatile.client.order.weights import ClassRule
from privatile.client.sources.csv import TextFormat
from privatile.client.sources.databases import open_source
from privatile.client.sources.source import NO_ENTRY, Cell
from privatile.core.text import listed
from privatile.errors import InputError
from privatile.planning.options import Options


@dataclass(frozen=True, eq=False)
class Division:
    """All columns of a file, read once, and what each of them is."""

    columns: Mapping[str, ShuffledColumn]
    keys: tuple[str, ...]
    """The columns that divide the file, in the order of a cell's entries."""
    cells: Mapping[str, Cell]
    naming: tuple[str, ...]
    """The columns whose entries name a client: the client's own; else those of the groups; else all that divide."""
    how_read: str = ""
    """What the holder should know about how the data is read."""

    @classmethod
    def read(cls, data: object, options: Options, ledger: Ledger, person_key: PersonKey | None) -> "Division":
        """Read the data. A client that cannot be asked is refused; a cell that nobody may ask about is not."""
        source = open_source(
            data,
            value=options.value,
            client=options.client,
            person=options.person,
            sql=options.sql,
            weight=options.weight,
            groups=options.groups,
            text_format=TextFormat(options.delimiter, options.decimal, options.thousands, options.unit),
        )
        columns = shuffle(
            source,
            ledger,
            missing=options.missing,
            person_key=person_key,
            classes=ClassRule(levels=max(1, len(options.levels)), rounds=options.rounds),
            checked=not (options.groups or options.leave_out),
        )
        naming = (options.client,) if options.client is not None else options.by_columns or source.keys
        return cls(columns, source.keys, source.cells, naming, source.how_read)._without(options.leave_out)

    def _without(self, left_out: Iterable[str]) -> "Division":
        """The same without some clients; every other client stays."""
        holders = {name: self.holder(column) for name, column in self.columns.items()}
        known = sorted(set(holders.values()))
        for name in left_out:
            if name not in known:
                raise InputError(f"leave_out names {name!r:.60}, which is no client. The clients: {_shown(known)}.")
        left = {name: column for name, column in self.columns.items() if holders[name] not in left_out}
        if not left:
            raise InputError(f"leave_out names every client, so nobody is left: {_shown(known)}. Leave out fewer.")
        return replace(self, columns=left)

    def holder(self, column: ShuffledColumn) -> str:
        """Whose records these are: by the client column, or by the groups where there is none."""
        name = column.content.holder
        if not self.cells:
            return name
        entries = (self.cells[name][self.keys.index(column)] for column in self.naming)
        return ", ".join(NO_ENTRY if entry is None else entry for entry in entries)

    def holders(self) -> dict[str, str]:
        """The clients by the names of their cells."""
        return {column.content.holder: self.holder(column) for column in self.columns.values()}

    def entries(self, column: str) -> list[str]:
        """What a dividing column holds, without what is missing, in the order of the names."""
        place = self.keys.index(column)
        return sorted({entry for cell in self.cells.values() if (entry := cell[place]) is not None})

    def matching(self, conditions: Mapping[str, str]) -> dict[str, ShuffledColumn]:
        """The columns whose records have all these entries; those of every other cell are not asked."""
        places = [(self.keys.index(column), entry) for column, entry in conditions.items()]
        found = {name for name, cell in self.cells.items() if all(cell[place] == entry for place, entry in places)}
        return {name: column for name, column in self.columns.items() if not places or column.content.holder in found}

    def only(self, options: Options) -> dict[str, ShuffledColumn]:
        """The columns that a run with these options asks; an error lists what there is instead."""
        if isinstance(options.only, str):
            own = {name: column for name, column in self.columns.items() if column.content.holder == options.only}
            if not own:
                known = sorted(self.holders())
                raise InputError(f"only names {options.only!r}, which is no client. The clients: {_shown(known)}.")
            return own
        for column, entry in options.conditions.items():
            known = self.entries(column)
            if entry not in known:
                raise InputError(f"only names {column}={entry!r:.60}, which no record has. There is: {_shown(known)}.")
        own = self.matching(options.conditions)
        if not own:
            words = " and ".join(f"{column} {entry!r:.60}" for column, entry in options.conditions.items())
            raise InputError(f"no record has {words}. Leave out one of the conditions.")
        return own


MAX_SHOWN = 20
"""Entries of a column that an error lists; a column with more may hold numbers, days or people."""


def _shown(entries: Sequence[str]) -> str:
    """The entries where they are few, else their number.

    >>> _shown(["north", "south"]), _shown([str(number) for number in range(21)])
    ('north, south', '21 different entries')
    """
    return listed(entries, MAX_SHOWN) if len(entries) <= MAX_SHOWN else f"{len(entries):,} different entries"
