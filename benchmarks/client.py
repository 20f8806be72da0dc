"""Two figures of the client side: how fast records answer, and what a long column costs in memory.

    python benchmarks/client.py [--rows 20000000] [--records 5000000]

1. Cohort answers from memory: records per second of one core (processor time, so that a busy machine does not matter;
   elapsed time beside it), against a bare numpy loop over the same operating-system coins in the same run (the floor
   that no ledger could beat).
2. A Parquet column of 20 million rows, made in a temporary folder, streamed in random order through a responder in a
   process of its own: peak memory and time, by the kernel's own account of that process.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from privatile.client.ledger.ledger import Ledger
from privatile.client.order.shuffle import shuffle
from privatile.client.randomizer import OperatingSystemCoins
from privatile.client.responder import CHUNK, Responder, answer_all
from privatile.client.sources.databases import open_source
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Question

TARGET_RATE = 5e6
TARGET_BYTES = 500e6


def peak_bytes() -> int:
    """Peak resident memory of this process.

    On Linux `ru_maxrss` begins with the parent's peak, so a child must ask for its own VmHWM.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * int(status.read_text().split("VmHWM:")[1].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def cohort_rate(records: int, folder: Path) -> tuple[float, float, float]:
    """Records a second of one core, and elapsed, through a responder with its ledger on disk; through bare numpy."""
    values = np.random.default_rng(0).normal(size=records)
    mechanism = RandomizedResponse.from_epsilon(1.0)
    with Ledger.open(folder / "rate.db") as ledger:
        column = shuffle(open_source(values), ledger, memory_rows=records)["all"]
        site = Responder("run", column, mechanism, ledger, OperatingSystemCoins())
        site.answer(Question(run="run", round=1, level=0.5, query=0.0, length=records // 50))  # sorts the column
        rounds, length = 40, records // 50
        start, clock = time.process_time(), time.perf_counter()
        for number in range(2, rounds + 2):
            site.answer(Question(run="run", round=number, level=0.5, query=0.0, length=length))
        rate = rounds * length / (time.process_time() - start)
        elapsed = rounds * length / (time.perf_counter() - clock)
    coins, threshold = OperatingSystemCoins(), np.uint64(mechanism.threshold)
    start, ones = time.process_time(), 0
    for place in range(0, records, CHUNK):
        part = values[place : place + CHUNK]
        ones += int(np.count_nonzero((part > 0.0) ^ (coins.draw(len(part)) >= threshold)))
    return rate, elapsed, records / (time.process_time() - start)


def round_rate(folder: Path, clients: int = 10, rounds: int = 1_000) -> float:
    """Rounds a second with one record a client, all clients in one durable commit."""
    with Ledger.open(folder / "rounds.db") as ledger:
        columns = shuffle(open_source({f"c{k}": np.arange(float(rounds)) for k in range(clients)}), ledger)
        mechanism = RandomizedResponse.from_epsilon(1.0)
        sites = [Responder("run", each, mechanism, ledger, OperatingSystemCoins()) for each in columns.values()]
        start = time.perf_counter()
        for number in range(1, rounds + 1):
            question = Question(run="run", round=number, level=0.5, query=0.0, length=1)
            answer_all((site, question) for site in sites)
        return rounds / (time.perf_counter() - start)


def stream(path: Path, folder: Path) -> None:
    """Run in a process of its own: ask every record of a Parquet column, 200 rounds."""
    before, start = peak_bytes(), time.perf_counter()
    with Ledger.open(folder / "stream.db") as ledger:
        column = shuffle(open_source(path, value="x"), ledger)["all"]
        scattered = time.perf_counter() - start
        site = Responder("run", column, RandomizedResponse.from_epsilon(1.0), ledger, OperatingSystemCoins())
        length = column.records // 200
        for number in range(1, 201):
            site.answer(Question(run="run", round=number, level=0.5, query=0.0, length=length))
        left = site.available()
    figures = {
        "records": 200 * length,
        "left": left,
        "scatter_s": scattered,
        "total_s": time.perf_counter() - start,
        "before_bytes": before,
        "peak_bytes": peak_bytes(),
    }
    print(json.dumps(figures))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--stream", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stream:
        stream(*options.stream)
        return
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, numpy {np.__version__}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rate, elapsed, bare = cohort_rate(options.records, folder)
        print(
            f"cohort answers from memory: {rate / 1e6:.1f} million records per second per core "
            f"({elapsed / 1e6:.1f} elapsed; {rate / bare:.2f} of bare numpy, {bare / 1e6:.1f}); "
            f"target 5: {'met' if rate >= TARGET_RATE else 'MISSED'}"
        )
        print(f"rounds of 10 clients, one record each, durable: {round_rate(folder):.0f} a second")
        import duckdb

        path = folder / "column.parquet"
        with duckdb.connect() as connection:
            sql = f"COPY (SELECT random() * 2 - 1 AS x FROM range({options.rows})) TO '{path}' (FORMAT parquet)"
            connection.execute(sql)
        command = [sys.executable, __file__, "--stream", str(path), str(folder)]
        figures = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        peak = figures["peak_bytes"]
        print(
            f"{options.rows:,} rows of Parquet ({path.stat().st_size / 1e6:.0f} MB): every record asked in "
            f"{figures['total_s']:.1f} s ({figures['scatter_s']:.1f} s to scatter), peak {peak / 1e6:.0f} MB "
            f"({figures['before_bytes'] / 1e6:.0f} MB before); target 500 MB: "
            f"{'met' if peak < TARGET_BYTES else 'MISSED'}"
        )


if __name__ == "__main__":
    main()
