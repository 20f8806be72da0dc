"""Damaged inputs: bytes, JSON and TOML texts, tables and SQLite files that are nearly what they should be.

Everything is drawn from one generator, so that an input can be made again from its number.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

from tests.federation.mutations import DROPPED, places, with_value

LONG_NUMBER = "9" * 400
RAW = "raw JSON, not a text: "
"""Marks a text that stands for itself in JSON: a number that Python would not write."""

EVIL: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**53, 2**63, 2**64, -(2**63), 10**400, -(10**400), 0.5, -0.0, 1e-320, 1e308),
    *("", " ", "x", "0", "NaN", "\x00", "\x1b[2J", "\u202e", "a\nb", "é" * 50, "x" * 100_000, "../../etc", "%s%n", "'"),
    *([], {}, [[]], [None], [0] * 1000, {"": {}}, {"a": 1}, [1, "a", None]),
    *(f"{RAW}NaN", f"{RAW}Infinity", f"{RAW}-1e999", f"{RAW}{'9' * 5000}", f"{RAW}0.{'1' * 5000}"),
    *(f"{RAW}{'[' * 50}{']' * 50}", f"{RAW}{'[' * 3000}{']' * 3000}", f"{RAW}" + '{"a":' * 60 + "1" + "}" * 60),
)
"""Values of every kind that a field may be given instead of its own."""

PIECES = (
    *(
        b"\x00",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\r\n",
        b"\n\n",
        b'"',
        b"'",
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"=",
    ),
    *(b"\x1b[2J", "\u202e".encode(), b"\xed\xa0\x80", b"NaN", b"1e999", LONG_NUMBER.encode(), b"9" * 5000, b"[" * 500),
    *(b" " * 3000, b"a" * 30_000, b"#", b'"""', b"null", b"true", b"-0", b"1_0", b"0x1"),
)


def damaged_bytes(rng: Random, data: bytes) -> bytes:
    """One to three small damages: flipped bits, cuts, insertions, repeats."""
    for _ in range(rng.randint(1, 3)):
        start = rng.randrange(len(data) + 1)
        stop = min(len(data), start + rng.choice((1, 1, 2, 8, 64)))
        kind = rng.randrange(7)
        if kind == 0 and start < len(data):
            data = data[:start] + bytes([data[start] ^ (1 << rng.randrange(8))]) + data[start + 1 :]
        elif kind == 1:
            data = data[:start]
        elif kind == 2:
            data = data[:start] + data[stop:]
        elif kind == 3:
            data = data[:start] + rng.choice(PIECES) + data[start:]
        elif kind == 4:
            data = data[:stop] + data[start:stop] * rng.choice((1, 2, 100)) + data[stop:]
        elif kind == 5:
            data = data[:start] + rng.randbytes(rng.choice((1, 4, 32))) + data[stop:]
        else:
            data = _other_number(rng, data)
    return data


def _other_number(rng: Random, data: bytes) -> bytes:
    """Another number in the place of one."""
    found = list(re.finditer(rb"-?[0-9]+(\.[0-9]+)?", data))
    if not found:
        return data
    place = rng.choice(found)
    other = rng.choice((b"0", b"-1", b"1e400", b"nan", b"inf", LONG_NUMBER.encode(), b"1.5", b"true", b'"x"', b"[]"))
    return data[: place.start()] + other + data[place.end() :]


def damaged_json(rng: Random, text: str) -> bytes:
    """A JSON text with other values, fields left out, added or written twice; or damaged bytes."""
    if rng.random() < 0.3:
        return damaged_bytes(rng, text.encode())
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        everywhere = list(places(json.loads(text)))
        if not everywhere:
            break
        path = rng.choice(everywhere)
        kind = rng.randrange(6)
        if kind == 0:
            text = with_value(text, path, DROPPED)
        elif kind == 1:
            text = (
                with_value(text, (*path[:-1], rng.choice(("", "colour", "kind", "x" * 500, "\x00"))), 1)
                if isinstance(path[-1], str)
                else with_value(text, path, rng.choice(EVIL))
            )
        elif kind == 2:
            text = with_value(text, path, _value_at(text, rng.choice(everywhere)))
        else:
            text = with_value(text, path, rng.choice(EVIL))
    if rng.random() < 0.1:  # a key that is there twice
        text = re.sub(r'("[a-z_]+": )', r"\g<1>0, \g<1>", text, count=1)
    raw = re.compile(f'"{RAW}([^"\\\\]*(?:\\\\.[^"\\\\]*)*)"')
    return raw.sub(lambda found: found[1].replace('\\"', '"'), text).encode()


def _value_at(text: str, path: tuple[str | int, ...]) -> Any:
    value = json.loads(text)
    for key in path:
        value = value[key]
    return value


TOML_VALUES = (
    *("true", "-1", "0", "1.5", "nan", "inf", "1e400", LONG_NUMBER, "9" * 5000, "0xffffffffffffffffffff", '""', '"x"'),
    *("[]", "{}", "[[]]", "[1, 'a']", "1979-05-27", "07:32:00", "'''\n[" + " " * 3000 + "'''", "[" * 60 + "]" * 60),
    *("[" * 3000, f'"{"x" * 100_000}"', '"\\u0000"', '"\\u001b[2J"', "{a = {b = 1}}", "'auto'", '"list:1,2,3"'),
)


def damaged_toml(rng: Random, text: str) -> bytes:
    """A TOML text with other values, lines left out, repeated or exchanged; or damaged bytes."""
    if rng.random() < 0.3:
        return damaged_bytes(rng, text.encode())
    lines = text.splitlines()
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        place = rng.randrange(len(lines))
        key, equals, _ = lines[place].partition("=")
        kind = rng.randrange(7)
        if kind == 0:
            del lines[place]
        elif kind == 1:
            lines.insert(rng.randrange(len(lines)), lines[place])
        elif kind == 2:
            lines.insert(
                place, rng.choice(("colour = 1", "[clients]", "[[x]]", "a.b.c.d = 1", "=", "[a" + ".a" * 400 + "]"))
            )
        elif equals:
            lines[place] = f"{key}= {rng.choice(TOML_VALUES)}"
        if not lines:
            lines = [""]
    return "\n".join(lines).encode()


CELLS = (
    *(
        "",
        "x",
        "NaN",
        "inf",
        "-inf",
        "1e400",
        LONG_NUMBER,
        "-",
        '"',
        '""',
        '"a',
        "a\tb",
        "a\x00b",
        "1;2",
        "1,2",
        "1 000",
    ),
    *("٧", "é", "\u202e", "0x10", "true", "null", "9" * 5000, "y" * 100_000, "1" + "," * 20_000, "'", "\r", "=1+1"),
)


def damaged_csv(rng: Random, text: str) -> bytes:
    """A CSV text with other cells, more or fewer of them, a line that is very long; or damaged bytes."""
    if rng.random() < 0.3:
        return damaged_bytes(rng, text.encode())
    rows = [line.split(",") for line in text.splitlines()]
    for _ in range(rng.choice((1, 1, 2, 5))):
        row = rng.choice(rows)
        kind = rng.randrange(6)
        if kind == 0 and row:
            del row[rng.randrange(len(row))]
        elif kind == 1:
            row.insert(rng.randrange(len(row) + 1), rng.choice(CELLS))
        elif kind == 2:
            rows.insert(rng.randrange(len(rows) + 1), [rng.choice(CELLS)])
        elif kind == 3:
            del rows[rng.randrange(len(rows))]
            rows = rows or [[""]]
        elif row:
            row[rng.randrange(len(row))] = rng.choice(CELLS)
    return rng.choice(("\n", "\n", "\r\n", "\r")).join(",".join(row) for row in rows).encode()


SQL_VALUES: tuple[Any, ...] = (
    *(
        None,
        0,
        -1,
        1,
        2**31,
        2**53,
        2**63 - 1,
        -(2**63),
        0.5,
        -0.5,
        1e308,
        float("inf"),
        "",
        "x",
        "0",
        "[]",
        "{}",
        "null",
    ),
    *(
        "[1",
        "[1, null]",
        '["a"]',
        "[1e999]",
        f"[{LONG_NUMBER}]",
        f"[{'9' * 5000}]",
        "NaN",
        "\x00",
        "\x1b[2J",
        "x" * 100_000,
    ),
    *(b"", b"\x00", b"\xff" * 16, b"\xff" * 32, b"x" * 100_000, "[" * 3000, "{" * 50),
)


def damage_sqlite(rng: Random, path: Path) -> None:
    """Damage a database in its place: its pages, or, well-formed but wrong, its rows and tables."""
    if rng.random() < 0.4:
        _damage_pages(rng, path)
        return
    with closing(sqlite3.connect(path, isolation_level=None)) as database, suppress(sqlite3.Error):
        database.execute("PRAGMA ignore_check_constraints = ON")
        database.execute("PRAGMA foreign_keys = OFF")
        database.execute("PRAGMA journal_mode = DELETE")
        for _ in range(rng.choice((1, 1, 1, 2, 4))):
            _damage_rows(rng, database)


def _damage_pages(rng: Random, path: Path) -> None:
    data = bytearray(path.read_bytes())
    page = 4096
    kind = rng.randrange(6)
    if kind == 0:
        del data[rng.randrange(len(data)) :]
    elif kind == 1:
        start = page * rng.randrange(max(1, len(data) // page))
        data[start : start + page] = bytes(page)
    elif kind == 2:
        one, two = (page * rng.randrange(max(1, len(data) // page)) for _ in range(2))
        data[one : one + page], data[two : two + page] = data[two : two + page], data[one : one + page]
    elif kind == 3:
        data = bytearray(damaged_bytes(rng, bytes(data)))
    else:
        for _ in range(rng.choice((1, 4, 32))):
            # Often in the header, where every byte means something.
            data[rng.randrange(100) if rng.random() < 0.3 else rng.randrange(len(data))] = rng.randrange(256)
    path.write_bytes(bytes(data))


def _damage_rows(rng: Random, database: sqlite3.Connection) -> None:
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    tables = [name for name in tables if not name.startswith("sqlite_")]
    if not tables:
        return
    table = rng.choice(tables)
    columns = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
    column, value = rng.choice(columns), rng.choice(SQL_VALUES)
    one = f"{column} IN (SELECT {column} FROM {table} LIMIT 1 OFFSET {rng.randrange(20)})"
    where = one if rng.random() < 0.5 else "1"
    steps: tuple[Callable[[], object], ...] = (
        lambda: database.execute(f"UPDATE OR IGNORE {table} SET {column} = ? WHERE {where}", (value,)),
        lambda: database.execute(f"UPDATE OR REPLACE {table} SET {column} = ? WHERE {where}", (value,)),
        lambda: database.execute(f"UPDATE OR IGNORE {table} SET {column} = {column} + 1 WHERE {where}"),
        lambda: database.execute(f"DELETE FROM {table} WHERE {where}"),
        lambda: database.execute(
            f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(columns))})",
            [rng.choice(SQL_VALUES) for _ in columns],
        ),
        lambda: database.execute(f"INSERT INTO {table} SELECT * FROM {table}"),
        lambda: database.execute(f"DROP TABLE {table}"),
        lambda: database.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO other"),
        lambda: database.execute(f"ALTER TABLE {table} RENAME TO other"),
        lambda: database.execute(f"PRAGMA user_version = {rng.choice((0, 1, 2, 3, 4, 99, -1))}"),
        lambda: database.execute(f"PRAGMA application_id = {rng.choice((0, 1, -1))}"),
        lambda: database.execute(f"CREATE VIEW IF NOT EXISTS view_{rng.randrange(9)} AS SELECT * FROM {table}"),
        lambda: database.execute(f"CREATE TRIGGER again AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END"),
    )
    with suppress(sqlite3.Error):
        rng.choice((*steps[:3], *steps))()
