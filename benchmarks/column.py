"""A long column beside DuckDB: ten million rows of Parquet, 20 clients, the median by a private run and in the open.

    python benchmarks/column.py [--rows 10000000] [--clients 20] [--repeat 3] [--save NAME]

Each repetition runs both, one after the other, each in a process of its own, so that a busy machine slows both. Time
is taken from the call to the result, without the imports. A private run reads the file, shuffles every client's records
by the ledger's key, asks all of them with coins of the operating system and a ledger on the disk, and forms the result.
Memory is the process's peak, by the kernel's own account. `--save NAME` adds the figures to `results/column.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MAX_RATIO = 6.0
MAX_BYTES = 400e6
RESULTS = Path(__file__).parent / "results" / "column.json"


def peak_bytes() -> int:
    """Peak resident memory of this process; `ru_maxrss` would begin with the parent's peak."""
    return 1024 * int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])


def private(path: Path, folder: Path) -> dict[str, float]:
    """The median by a run of this program."""
    import privatile

    start, spent = time.perf_counter(), time.process_time()
    result = privatile.estimate(
        path, value="pay", client="region", q=0.5, epsilon=1.0, range=(100.0, 10_000_000.0), ledger=folder / "ledger.db"
    )
    seconds, cpu = time.perf_counter() - start, time.process_time() - spent
    return {"seconds": seconds, "cpu_s": cpu, "peak_bytes": peak_bytes(), "value": float(result.estimate)}


def plain(path: Path, folder: Path) -> dict[str, float]:
    """The median by DuckDB, with as many threads as it takes by itself."""
    import duckdb

    with duckdb.connect() as connection:
        start, spent = time.perf_counter(), time.process_time()
        ((value,),) = connection.execute("SELECT quantile_cont(pay, 0.5) FROM read_parquet(?)", [str(path)]).fetchall()
        seconds, cpu = time.perf_counter() - start, time.process_time() - spent
        return {"seconds": seconds, "cpu_s": cpu, "peak_bytes": peak_bytes(), "value": value}


def make_column(path: Path, rows: int, clients: int) -> None:
    """A column of made-up pay; who holds which row is drawn."""
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("SELECT setseed(0.5)")
        connection.execute(
            f"COPY (SELECT 40000 * exp(1.2 * (random() + random() + random() + random() - 2)) AS pay,"
            f" 'region ' || lpad(CAST(floor(random() * {clients}) AS INTEGER)::VARCHAR, 2, '0') AS region"
            f" FROM range({rows})) TO '{path}' (FORMAT parquet)"
        )


def in_process(kind: str, path: Path) -> dict[str, float]:
    """One measurement in a process of its own, with keys and state in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, XDG_CONFIG_HOME=folder, XDG_STATE_HOME=folder)
        command = [sys.executable, __file__, "--measure", kind, str(path), folder]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--save")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        kind, path, folder = options.measure
        print(json.dumps({"private": private, "plain": plain}[kind](Path(path), Path(folder))))
        return
    pairs = []
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "column.parquet"
        make_column(path, options.rows, options.clients)
        for _ in range(options.repeat):
            pairs.append({kind: in_process(kind, path) for kind in ("plain", "private")})
            print({kind: {key: round(value, 3) for key, value in found.items()} for kind, found in pairs[-1].items()})
    # The fastest of each: other work on the machine only adds.
    best = {kind: min(pair[kind]["seconds"] for pair in pairs) for kind in ("plain", "private")}
    ratio = best["private"] / best["plain"]
    peak = max(pair["private"]["peak_bytes"] for pair in pairs)
    figures = {
        "rows": options.rows,
        "clients": options.clients,
        "plain_s": round(best["plain"], 3),
        "private_s": round(best["private"], 3),
        "plain_cpu_s": round(min(pair["plain"]["cpu_s"] for pair in pairs), 3),
        "private_cpu_s": round(min(pair["private"]["cpu_s"] for pair in pairs), 3),
        "load": round(os.getloadavg()[0], 1),
        "ratio": round(ratio, 2),
        "ratios": [round(pair["private"]["seconds"] / pair["plain"]["seconds"], 2) for pair in pairs],
        "peak_mb": round(peak / 1e6),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
    }
    print(f"{ratio:.1f} times DuckDB (at most {MAX_RATIO:g}: {'met' if ratio <= MAX_RATIO else 'MISSED'}), ", end="")
    print(f"peak {peak / 1e6:.0f} MB (at most {MAX_BYTES / 1e6:.0f}: {'met' if peak <= MAX_BYTES else 'MISSED'})")
    if options.save:
        kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        RESULTS.write_text(json.dumps(kept | {options.save: figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
