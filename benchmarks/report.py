"""How long the page of a long run takes, and how large it is.

python benchmarks/report.py [rounds]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.made_runs import long_run

from privatile.report.run_page import write_run_page
from privatile.run.view import RunView


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for clients in (3, 30):
            path = long_run(folder / f"run-{clients}.db", rounds=rounds, clients=clients)
            wall, processor = time.perf_counter(), time.process_time()
            page = write_run_page(RunView.read(path, drawn=True), folder / "page.html")
            print(
                f"{rounds:,} rounds, {clients} clients: {time.perf_counter() - wall:.2f} s "
                f"({time.process_time() - processor:.2f} s of processor), {page.stat().st_size / 1000:.0f} kB"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
