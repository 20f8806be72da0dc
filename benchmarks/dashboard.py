"""What watching costs: first paint of a long run, and how much fifty viewers slow a run down.

    python benchmarks/dashboard.py [viewers]

The run is written to its file as fast as it goes, with and without a dashboard and its viewers, in turns; the ratio of
the medians is printed, beside that of the processor time of the run's own process.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

from privatile.core.mechanism import RandomizedResponse
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.report.dashboard.serving import run_dashboard
from privatile.run.coordinator import Coordinator
from privatile.run.run_file import RunStore

ROUNDS, CLIENTS, TURNS = 4000, 10, 5


def run(path: Path, rounds: int = ROUNDS) -> None:
    """A run of `rounds` rounds, each persisted; prints wall and processor seconds."""
    threshold = RandomizedResponse.from_epsilon(1.0).threshold
    clients = tuple(ClientSpec(f"client {k}", threshold, 1 / CLIENTS, rounds * 10) for k in range(CLIENTS))
    spec = RunSpec("value", (0.5,), clients, "linear", 0.0, 100.0, design="rounds", rounds=rounds, simulated=True)
    coordinator = Coordinator(RunStore.create(path, "run-benchmark", spec, durable=True))
    wall, processor = time.perf_counter(), time.process_time()
    while (asked := coordinator.rounds()) is not None:
        coordinator.accept([[5 + (coordinator.done + k) % 2 - (question.query > 55) for k, question in
                             enumerate(each.questions)] for each in asked])  # fmt: skip
    print(time.perf_counter() - wall, time.process_time() - processor)
    coordinator.finish()


async def view(url: str) -> None:
    """One viewer: reads the stream for ever."""
    place = urlsplit(url)
    while True:
        try:
            reader, writer = await asyncio.open_connection(place.hostname, place.port)
            break
        except OSError:
            await asyncio.sleep(0.1)
    writer.write(f"GET /events HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode())
    while await reader.read(1 << 16):
        pass


async def view_all(url: str, viewers: int) -> None:
    await asyncio.gather(*(view(url) for _ in range(viewers)))


def timed(folder: Path, name: str, viewers: int) -> tuple[float, float]:
    """Wall and processor time of one run in a process of its own, watched or not."""
    path = folder / f"{name}.db"
    command = [sys.executable, __file__, "--run", str(path)]
    if not viewers:
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    else:
        with run_dashboard(path) as page:
            crowd = subprocess.Popen([sys.executable, __file__, "--view", page.url, str(viewers)])
            time.sleep(3)  # everybody is there before the run begins
            printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            crowd.kill()
            crowd.wait()
    wall, processor = map(float, printed.split())
    return wall, processor


def first_paint(folder: Path) -> list[float]:
    """Milliseconds to the first contentful paint of the page of 100,000 rounds, as the browser tells."""
    from playwright.sync_api import sync_playwright

    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.made_runs import long_run

    path = long_run(folder / "long.db", rounds=100_000)
    times = []
    with run_dashboard(path) as page, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for _ in range(5):
            tab = browser.new_page()
            while True:
                try:
                    tab.goto(page.url)
                    break
                except Exception:  # it is still starting
                    time.sleep(0.2)
            tab.locator("figure[data-ready]").wait_for(timeout=60_000)
            times.append(
                tab.evaluate("performance.getEntriesByName('first-contentful-paint').map(entry => entry.startTime)[0]")
            )
            tab.close()
        browser.close()
    return times


def main(viewers: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paints = first_paint(folder)
        print(f"first paint of 100,000 rounds: {statistics.median(paints):.0f} ms (median of {len(paints)})")
        alone, watched = [], []
        for turn in range(TURNS):
            alone.append(timed(folder, f"alone-{turn}", 0))
            watched.append(timed(folder, f"watched-{turn}", viewers))
        for index, kind in enumerate(("wall", "processor")):
            ratio = statistics.median(run[index] for run in watched) / statistics.median(run[index] for run in alone)
            print(f"{viewers} viewers: {kind} time of a run of {ROUNDS} rounds × {ratio:.3f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["--view"]:
        asyncio.run(view_all(sys.argv[2], int(sys.argv[3])))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
