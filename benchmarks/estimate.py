"""How long `estimate` of 20,000 values in memory takes, beside another checkout: python -m benchmarks.estimate OTHER

OTHER is the folder of another checkout, or of its `src`. Both take turns, each in a process of its own that is started
once; times are the median and the range over the turns, in seconds of the processor and of the clock. The result is
appended to benchmarks/results/estimate.json.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "estimate.json"
CHILD = """
import sys, time
import numpy as np
from privatile import estimate
values = np.random.default_rng(1).normal(50, 10, 20_000)
def once(seed):
    estimate(values, epsilon=1, range=(0, 100), simulate=True, rng=seed)
once(0)
for line in sys.stdin:
    wall, used = time.perf_counter(), time.process_time()
    once(int(line))
    print(time.process_time() - used, time.perf_counter() - wall, flush=True)
"""


def started(source: Path) -> "subprocess.Popen[str]":
    folder = source / "src" if (source / "src").is_dir() else source
    environment = {**os.environ, "PYTHONPATH": str(folder), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", CHILD]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def asked(child: "subprocess.Popen[str]", seed: int) -> tuple[float, float]:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(f"{seed}\n")
    child.stdin.flush()
    used, wall = map(float, child.stdout.readline().split())
    return used, wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path)
    parser.add_argument("--name", default="other", help="how the other checkout is called, such as its commit")
    parser.add_argument("--turns", type=int, default=40)
    given = parser.parse_args()
    children = {"here": started(HERE.parent), given.name: started(given.other)}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in children}
    for turn in range(given.turns):
        for name, child in children.items():
            found[name].append(asked(child, turn))
    rows = {}
    for name, times in found.items():
        children[name].communicate("")
        for kind, column in zip(("processor", "clock"), zip(*times, strict=True), strict=True):
            median = statistics.median(column)
            rows[f"{name}, {kind}"] = {"median": median, "least": min(column), "most": max(column)}
    ratio = rows["here, processor"]["median"] / rows[f"{given.name}, processor"]["median"]
    command = f"python -m benchmarks.estimate {given.name} --turns {given.turns}"
    result = {"date": time.strftime("%Y-%m-%d"), "command": command, "seconds": rows, "ratio": ratio}
    result["load_average"] = os.getloadavg()[0]
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    RESULTS.write_text(json.dumps([*kept, result], indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
