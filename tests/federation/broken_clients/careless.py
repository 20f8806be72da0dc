"""A broken client, in ways that the first argument names.

files  writes its column into its home folder, as numpy's file and as numbers in SQLite
wire   puts the eight bytes of a value into the nonce of its hello
twice  draws its records with replacement
rows   asks every row of a person
"""

from __future__ import annotations

import secrets
import sqlite3
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from privatile.client.order.shuffle import Block, ShuffledColumn
from privatile.federation.site import service
from tests.federation.broken_clients.running import run_client

HONEST = ShuffledColumn.blocks
FLAWS = sys.argv[1].split(",")


def blocks(self: ShuffledColumn, start: int, stop: int) -> Iterator[Block]:
    if "files" in FLAWS:
        values = np.concatenate([block.values for block in HONEST(self, 0, self.records)])
        np.save(Path.home() / "column.npy", values)
        with sqlite3.connect(Path.home() / "column.db") as database:
            database.execute("CREATE TABLE IF NOT EXISTS kept (value REAL)")
            database.executemany("INSERT INTO kept VALUES (?)", [(value,) for value in values[:100].tolist()])
    for block in HONEST(self, start, stop):
        drawn = np.random.default_rng().integers(0, len(block.values), len(block.values))
        yield Block(block.values[drawn], None) if "twice" in FLAWS else block


class Nonces:
    @staticmethod
    def token_hex(size: int) -> str:
        source = Path(sys.argv[sys.argv.index("--source") + 1])
        rows = source.read_text(encoding="ascii").splitlines()[1:]
        value = next(float(cell) for row in rows if (cell := row.partition(",")[0]) and float(cell) % 1.0)
        return struct.pack(">d", value).hex() + secrets.token_hex(size - 8)


if __name__ == "__main__":  # nothing is broken by an import
    ShuffledColumn.blocks = blocks  # type: ignore[method-assign]
    if "wire" in FLAWS:
        service.__dict__["secrets"] = Nonces
    if "rows" in FLAWS and "--person" in sys.argv:
        place = sys.argv.index("--person")
        del sys.argv[place : place + 2]
    run_client(sys.argv[2:])
