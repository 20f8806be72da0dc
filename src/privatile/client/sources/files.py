"""Files: CSV, Parquet and JSON, also gzipped, read by duckdb in pieces.

duckdb's own messages quote the line they stumble over, so none of them is passed on: only the kind of failure and,
where there is one, the number of the line. It may not fetch extensions, and has no folder to spill to (its spill
files would be plain text with names).
"""

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from privatile.client.sources.csv import (
    DELIMITERS,
    NOTHING_FOUND,
    SOMETHING_ELSE,
    Evidence,
    NumberMarks,
    TextFormat,
    decimal_mark,
    in_words,
    kind_of_entry,
    names_in,
    read_header,
    refuse_headless,
)
from privatile.client.sources.numbers import from_arrow, not_numeric
from privatile.client.sources.people import MISSING_IDENTIFIERS
from privatile.client.sources.source import (
    Batch,
    Columns,
    Source,
    Texts,
    copied,
    unknown_column,
)
from privatile.errors import DataError, InputError

MOST_COLUMNS = 5_000
"""Columns of a CSV file, all of which are read; ten times as many take 5 s and 600 MB."""

KINDS = {
    **dict.fromkeys((".csv", ".tsv", ".txt"), "csv"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".json", ".ndjson", ".jsonl"), "json"),
}

NUMERIC = re.compile(r'U?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)|FLOAT|DOUBLE|DECIMAL\(.*\)|"?NULL"?')

MISSING_TEXTS = ", ".join(f"'{text}'" for text in sorted(MISSING_IDENTIFIERS))

# Matched at the start of a message only: further on it quotes records.
LINE = re.compile(
    r"(?:Invalid Input Error: )?(?:CSV Error on Line: |(?:JSON transform error|Malformed JSON) in file \".*?\", "
    r"(?:at byte \d+ )?in line )(\d+)"
)


class FileSource(Source):
    """A column of a file. Rows keep the order of the file."""

    def __init__(self, path: Path, columns: Columns, text_format: TextFormat | None = None) -> None:
        super().__init__(columns)
        self._wanted = columns.wanted
        self._path = path
        self._format = text_format or TextFormat()
        kind = kind_of(path)
        if kind != "csv" and self._format.given:
            raise InputError(
                f"{' and '.join(self._format.given)} are for CSV files, whose numbers are texts; {path} is none."
            )
        self._connection = connect()
        self._is_csv = kind == "csv"
        # What to read from, as SQL with its parameters, and each column's expression and type.
        self._parameters: dict[str, object] = {"path": _without_wildcards(path)}
        self._columns: dict[str, tuple[str, str]] = {}
        self._sql = self._csv_table() if self._is_csv else self._described_table(kind)
        columns.check(list(self._columns))
        for name in (self.column, self.weight):
            if name is not None and not self._is_csv and not NUMERIC.fullmatch(self._columns[name][1]):
                raise not_numeric(name, self._columns[name][1])

    def _described_table(self, kind: str) -> str:
        sql = f"read_{kind}($path)"
        relation = self._run(f"SELECT * FROM {sql}")
        for name, column_type in zip(relation.columns, relation.types, strict=True):
            self._columns[name] = (_quoted(name), str(column_type))
        return self._json_table() if kind == "json" else sql

    def _json_table(self) -> str:
        """A JSON file, its names of people and clients read as the texts they are.

        duckdb reads a text as a date, a time or a UUID where all texts of a column look like one, so 10-11-12 would be
        another person from another file.
        """
        for name in (*self.keys, self.person):
            if name in self._columns and not _is_no_text(self._columns[name][1]):
                self._columns[name] = (_quoted(name), "VARCHAR")
        kinds = {name: self._columns[name][1] for name in self._wanted if name in self._columns}
        listed = ", ".join(
            f"{_quoted(name, mark=chr(39))}: {_quoted('JSON' if 'NULL' in kind else kind, mark=chr(39))}"
            for name, kind in kinds.items()
        )
        return f"read_json($path, columns = {{{listed}}})" if kinds else "read_json($path)"

    def _csv_table(self) -> str:
        """A CSV file, its delimiter the one given, or the one that shows the wanted names in the first line.

        duckdb's sniffer would rather change its mind about the delimiter than call a line broken.
        """
        header = read_header(self._path)
        delimiters = [self._format.delimiter] if self._format.delimiter else DELIMITERS.values()
        readings = {mark: names_in(header, mark) for mark in delimiters}
        fitting = [mark for mark, names in readings.items() if set(self._wanted) <= set(names)]
        if not fitting:
            names = max(readings.values(), key=len)
            refuse_headless(self._path, names)
            raise unknown_column(next(name for name in self._wanted if name not in names), names)
        delimiter = max(fitting, key=lambda mark: len(readings[mark]))
        names = readings[delimiter]
        if len(names) > MOST_COLUMNS:
            raise DataError(
                f"{self._path} has {len(names)} columns, and a CSV file may have {MOST_COLUMNS}. Write it as Parquet, "
                "or without the columns that are not asked for."
            )
        for name in self._wanted:
            if names.count(name) > 1:
                raise DataError(f"{self._path} has {names.count(name)} columns named {name!r}. Rename all but one.")
        self._parameters["delimiter"] = delimiter
        self._columns = {name: (f"c{place}", "VARCHAR") for place, name in enumerate(names)}
        kinds = ", ".join(f"'c{place}': 'VARCHAR'" for place in range(len(names)))
        return (
            "read_csv($path, auto_detect = false, header = true, delim = $delimiter, quote = '\"', escape = '\"',"
            f" nullstr = '', columns = {{{kinds}}})"
        )

    @cached_property
    def _evidence(self) -> Evidence:
        """What the numbers of the file show about their marks; of the whole file, since later rows may tell."""
        marks = NumberMarks(thousands=self._format.thousands or "none", unit=self._format.unit)
        columns = [self._columns[name][0] for name in (self.column, self.weight) if name is not None]
        if self._parameters["delimiter"] == ",":  # nearly always there is nothing to tell, and that is quickly seen
            any_comma = " OR ".join(f"contains({column}, ',')" for column in columns)
            if not self._finds(any_comma):
                return NOTHING_FOUND
        relation = self._run(f"SELECT {', '.join(marks.evidence(column) for column in columns)} FROM {self._sql}")
        shown = self._safely(relation.fetchall)[0]
        each = len(shown) // len(columns)
        return Evidence(*(any(shown[place::each]) for place in range(each)))

    @cached_property
    def _marks(self) -> NumberMarks:
        """How the numbers of a CSV file are written: one way for the whole file."""
        said, delimiter = self._format, str(self._parameters["delimiter"])
        columns = f"column {self.column!r}" if self.weight is None else f"columns {self.column!r} and {self.weight!r}"
        decimal = said.decimal or decimal_mark(self._evidence, delimiter, columns, said.thousands)
        return NumberMarks(decimal, said.thousands or ("point" if decimal == "comma" else "comma"), said.unit)

    @property
    def how_read(self) -> str:
        """How the file is read where that was found out and is not the usual; without a word of its content."""
        if not self._is_csv or (self._format.delimiter and self._format.decimal):
            return ""
        usual = [
            in_words(",", NumberMarks(), NOTHING_FOUND._replace(point_is_decimal=shown)) for shown in (False, True)
        ]
        found = in_words(str(self._parameters["delimiter"]), self._marks, self._evidence)
        return "" if found in usual else f"{self._path} is read with {found}."

    def batches(self) -> Iterator[Batch]:
        """All rows, in the order of the file."""
        self._refuse_copied_columns()
        columns = [name for name in (self.column, self.weight) if name is not None]
        selected = [self._number(self.column), *(self._text(name) for name in self.keys)]
        selected += [] if self.person is None else [self._identifier(self.person)]
        selected += [self._number(name) for name in columns[1:]]
        if self._is_csv:
            # A text that is no number is found here rather than by an error that would quote it.
            selected += [f"CAST({self._marks.is_bad(self._columns[name][0])} AS INTEGER)" for name in columns]
            selected += [self._columns[self.column][0]]
        rows = 0
        for values, *names in self._stream(f"SELECT {', '.join(selected)} FROM {self._sql}"):
            texts = weights = None
            if self._is_csv:
                texts = _texts(names.pop())
                if self.weight is not None:
                    self._refuse_bad(self.weight, from_arrow(names.pop()), rows)
                self._refuse_bad(self.column, from_arrow(names.pop()), rows)
            if self.weight is not None:
                weights = names.pop()
            rows += len(values)
            batch = self.batch(values, people=None if self.person is None else names.pop(), weights=weights)
            batch = batch._replace(texts=texts)
            if self.keys:
                batch = batch._replace(codes=self._codes_of(names))
            yield batch

    def _codes_of(self, columns: Sequence[Any]) -> np.ndarray[Any, Any]:
        """The number of each row's client; every combination of names is looked up once per batch, not once per row."""
        cells: list[tuple[str | None, ...]] = []
        for column in columns:
            encoded = column.dictionary_encode(null_encoding="encode")
            names, places = encoded.dictionary.to_pylist(), from_arrow(encoded.indices)
            if not cells:
                cells, rows = [(name,) for name in names], places
                continue
            found, rows = np.unique(rows.astype(np.int64) * len(names) + places, return_inverse=True)
            cells = [(*cells[pair // len(names)], names[pair % len(names)]) for pair in found.tolist()]
        codes: np.ndarray[Any, Any] = np.array([self.code(cell) for cell in cells], dtype=np.uint16)[rows]
        return codes

    def _number(self, name: str) -> str:
        """A column as a number, NaN where it is missing."""
        expression, _ = self._columns[name]
        number = self._marks.number(expression) if self._is_csv else f"CAST({expression} AS DOUBLE)"
        return f"coalesce({number}, CAST('NaN' AS DOUBLE))"

    def _refuse_bad(self, name: str, bad: np.ndarray[Any, Any], rows: int) -> None:
        if bad.any():
            place = int(np.flatnonzero(bad)[0])
            kind = kind_of_entry(self._columns[name][0])
            sql = f"SELECT {kind} FROM {self._sql} LIMIT 1 OFFSET {rows + place}"
            # Beside the stream, which is still open; only for this one entry, since most files have none.
            found = self._safely(lambda: self._connection.cursor().sql(sql, params=self._parameters).fetchall())
            what, advice = self._marks.explain(found[0][0] if found else SOMETHING_ELSE)
            raise DataError(
                f"column {name!r} of {self._path} must hold numbers; record {rows + place + 1} after the header holds "
                f"{what}. {advice}"
            )

    def _refuse_copied_columns(self) -> None:
        """Refuse a column that names clients, groups or people, and holds the values, before a name is read."""

        def read(name: str) -> tuple[str, str]:
            """The text of a column and, as the values are read, its number."""
            expression, kind = self._columns[name]
            if self._is_csv:
                return expression, self._marks.number(expression)
            text = f"{expression} ->> '$'" if kind == "JSON" else f"CAST({expression} AS VARCHAR)"
            return text, f"TRY_CAST({text} AS DOUBLE)"

        _, value = read(self.column)
        for name in dict.fromkeys((*self.keys, *filter(None, (self.person,)))):
            text, number = read(name)
            other = f"{number} IS NULL AND lower(trim({text})) NOT IN ({MISSING_TEXTS})"
            differs = f"coalesce({number}, 'nan') IS DISTINCT FROM coalesce({value}, 'nan') OR coalesce({other}, false)"
            if not self._finds(differs) and self._finds(f"{value} IS NOT NULL"):
                raise copied(name, self.column)

    def _finds(self, condition: str) -> bool:
        """Whether a row meets a condition; the search stops at the first one."""
        relation = self._run(f"SELECT 1 FROM {self._sql} WHERE {condition} LIMIT 1")
        return bool(self._safely(relation.fetchall))

    def _text(self, name: str) -> str:
        """A client's column as text; whole floats read as integers, as everywhere."""
        expression, kind = self._columns[name]
        if kind in ("FLOAT", "DOUBLE"):
            whole = f"{expression} = floor({expression}) AND abs({expression}) < 1e18"
            integer = f"CAST(CAST({expression} AS BIGINT) AS VARCHAR)"
            expression = f"CASE WHEN {whole} THEN {integer} ELSE CAST({expression} AS VARCHAR) END"
        return f"trim(CAST({expression} AS VARCHAR))"

    def _identifier(self, name: str) -> str:
        """A person's column: as it is where its kind decides what it means (`person_text`), otherwise as text."""
        expression, kind = self._columns[name]
        if kind.endswith("]") or kind.startswith(("STRUCT", "MAP", "UNION")):
            raise DataError(
                f"the person column holds entries of the kind {kind:.40}. An identifier is a text or a number."
            )
        if kind == "JSON":  # texts and numbers mixed; as text it would keep its quotation marks
            return f"{expression} ->> '$'"
        if kind.startswith(("FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN", "BLOB", "TIMESTAMP")):
            return expression
        return f"CAST({expression} AS VARCHAR)"

    def _run(self, sql: str) -> Any:
        return self._safely(lambda: self._connection.sql(sql, params=self._parameters))

    def _stream(self, sql: str) -> Iterator[list[Any]]:
        """The columns of each piece of a result, as arrays of Arrow."""
        import pyarrow  # type: ignore[import-untyped]

        relation = self._run(sql)
        stream = self._safely(lambda: pyarrow.RecordBatchReader.from_stream(relation))
        with ThreadPoolExecutor(1) as aside:  # the next piece is read while this one is looked at
            reading = aside.submit(next, stream, None)
            while (batch := self._safely(reading.result)) is not None:
                reading = aside.submit(next, stream, None)
                yield batch.columns

    def _safely(self, call: Any) -> Any:
        """Call duckdb; on failure say what kind and which line, never what the line holds."""
        import duckdb
        import pyarrow

        try:
            return call()
        except (duckdb.Error, pyarrow.ArrowException, OSError, UnicodeError) as error:
            found = LINE.match(str(error))
            memory = isinstance(error, duckdb.OutOfMemoryException)
        where = f", line {found[1]}" if found else ""
        if memory:
            raise DataError(
                f"{self._path}{where} does not fit into memory. Write it as Parquet with smaller row groups."
            )
        raise DataError(
            f"{self._path}{where} cannot be read: it is damaged, half-written, or not the kind of file its name says. "
            "(The reader's own words are withheld, since they quote records.)"
        )


def missing_file(path: Path, why: str) -> DataError:
    """The error for a file that is not there or not readable."""
    return DataError(f"{path} {why}. Give the path of a CSV, Parquet or JSON file (also .gz).")


def kind_of(path: Path) -> str:
    """How to read a file, from its name."""
    if not path.exists():
        raise missing_file(path, "does not exist")
    if not path.is_file():
        raise missing_file(path, "is not a file")
    *_, inner, last = ("", "", *(suffix.lower() for suffix in path.suffixes))
    zipped = last == ".gz"
    kind = KINDS.get(inner if zipped else last)
    if kind is None or (zipped and kind == "parquet"):
        raise missing_file(path, f"must end in {', '.join(KINDS)} (also .gz, except Parquet)")
    if not os.access(path, os.R_OK):
        raise missing_file(path, "cannot be read: you may not")
    return kind


def connect(path: Path | None = None) -> Any:
    """A connection of duckdb: to nothing, or to a database of its own that is only read."""
    import duckdb

    connection = duckdb.connect(
        ":memory:" if path is None else str(path),
        read_only=path is not None,
        config={
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "temp_directory": "",
            "preserve_insertion_order": True,
            # A scan of one column waits for nothing; more threads cost memory and gain no time.
            "threads": 1,
        },
    )
    # Prefetching holds whole row groups: 20 million rows in one group took 434 MB with it and 281 MB without. Versions
    # that do not know the setting do without.
    with suppress(duckdb.Error):
        connection.execute("SET disable_parquet_prefetching = true")
    return connection


def _texts(column: Any) -> Texts:
    """A column of texts of Arrow; what is missing is empty."""
    _, places, written = column.buffers()
    ends = np.frombuffer(places, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    return Texts(np.diff(ends), b"" if written is None else bytes(memoryview(written)[ends[0] : ends[-1]]))


def _quoted(name: str, mark: str = '"') -> str:
    return mark + name.replace(mark, mark * 2) + mark


def _is_no_text(kind: str) -> bool:
    """Whether a JSON column of this kind, as duckdb has read it, holds something else than texts.

    >>> [_is_no_text(kind) for kind in ("BIGINT", "JSON", "STRUCT(a BIGINT)", "DATE", "UUID", '"NULL"')]
    [True, True, True, False, False, False]
    """
    nested = kind.endswith("]") or kind.startswith(("STRUCT", "MAP", "UNION"))
    return nested or kind in ("BOOLEAN", "JSON") or ("NULL" not in kind and bool(NUMERIC.fullmatch(kind)))


def _without_wildcards(path: Path) -> str:
    """A path without its glob characters: each becomes a class of one."""
    return re.sub(r"([*?\[])", r"[\1]", str(path))
