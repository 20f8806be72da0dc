"""A long study in parts: every finished part is a file, and a second call goes on where the first one stopped.

A part is so many runs of one cell, with seeds of its own: whether a study is made in one go or in many, by one process
or by twelve, its runs are the same. Parts know their seed, not the program that made them: empty the folder first where
the program has changed.
"""

import argparse
import json
import math
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple


class Part(NamedTuple):
    """Some runs of a cell: those from `first` to before `last`."""

    cell: str
    seed: int
    first: int
    last: int

    @property
    def file_name(self) -> str:
        """One that every file system takes.

        >>> Part("poisson, τ = 0.5", 7, 20, 40).file_name
        'poisson-0.5-7-20-40.json'
        """
        return f"{re.sub('[^a-z0-9.]+', '-', self.cell)}-{self.seed}-{self.first}-{self.last}.json"


def options(description: str | None, results: Path, seed: int, runs: int) -> argparse.ArgumentParser:
    """The options that all of these studies have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=runs)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=seed)
    parser.add_argument("--results", type=Path, default=results)
    parser.add_argument("--parts", type=Path, help="folder of finished parts; without one they are not kept")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no further part after so long")
    return parser


def gathered(
    cells: Iterable[str], size: int, work: Callable[[Part], list[Any]], chosen: argparse.Namespace
) -> dict[str, list[list[Any]]]:
    """Rows of all cells that have any, made as the options say."""
    parts = parts_of(cells, chosen.runs, size, chosen.seed)
    with tempfile.TemporaryDirectory() as folder:
        kept = chosen.parts or Path(folder)
        if not make(parts, work, kept, chosen.jobs, chosen.seconds):
            print("Time is up; the same command goes on.", flush=True)
        return {name: rows for name, rows in finished(parts, kept).items() if rows}


def parts_of(cells: Iterable[str], runs: int, size: int, seed: int) -> list[Part]:
    """All parts: the first runs of every cell come before the next ones of any, so that a time limit is fair to all."""
    names = list(cells)
    return [Part(name, seed, first, min(first + size, runs)) for first in range(0, runs, size) for name in names]


def finished(parts: Sequence[Part], folder: Path) -> dict[str, list[list[Any]]]:
    """Rows of the parts that are there, by cell."""
    found: dict[str, list[list[Any]]] = {part.cell: [] for part in parts}
    for part in parts:
        path = folder / part.file_name
        if path.exists():
            found[part.cell] += json.loads(path.read_text(encoding="utf-8"))
    return found


def make(parts: Sequence[Part], work: Callable[[Part], list[Any]], folder: Path, jobs: int, seconds: float) -> bool:
    """Make the parts that are not there yet; whether all are. After so many seconds no further one is begun."""
    folder.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + seconds
    left = [part for part in parts if not (folder / part.file_name).exists()][::-1]
    if jobs == 1:
        while left and time.monotonic() < end:
            part = left.pop()
            _write(folder / part.file_name, work(part))
        return not left
    with ProcessPoolExecutor(jobs) as pool:
        running: dict[Future[list[Any]], Part] = {}
        while running or (left and time.monotonic() < end):
            while left and len(running) < jobs and time.monotonic() < end:
                part = left.pop()
                running[pool.submit(work, part)] = part
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                _write(folder / running.pop(done).file_name, done.result())
    return not left


def _write(path: Path, rows: list[Any]) -> None:
    """Whole or not at all."""
    half = path.with_suffix(".tmp")
    half.write_text(json.dumps(rows), encoding="utf-8")
    half.replace(path)
