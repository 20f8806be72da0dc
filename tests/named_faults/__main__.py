"""Run named faults: `python -m tests.named_faults [--sample N] [--seed N] [--jobs N] [WORD …]`."""

import argparse
import multiprocessing
import os
import random
import sys

from tests.named_faults import all_faults
from tests.named_faults._running import Outcome, run_safely

PRELOADED = [
    "duckdb",
    "numpy",
    "pytest",
    "scipy.stats",
    "privatile.api.estimate",
    "privatile.federation.site.responder",
]
"""What most tests import, and what is slow to import: done once, before the processes are made."""


def judged(before: Outcome, after: Outcome) -> Outcome:
    """Whether a fault dies, by the outcomes of its test without it and with it."""
    if before[0] != "passed":
        return "no good test", f"without the fault: {before[0]} {before[1]}"
    return ("SURVIVED", after[1]) if after[0] == "passed" else after


def main() -> int:
    """Run the faults that were asked for; the exit code is 0 if all of them die."""
    parser = argparse.ArgumentParser(prog="python -m tests.named_faults", description=__doc__)
    parser.add_argument("words", nargs="*", help="only faults whose name or file contains one of these")
    parser.add_argument("--sample", type=int, help="only so many, drawn at random")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    chosen = [
        each
        for each in all_faults()
        if not options.words or any(w in f"{each.file} {each.name}" for w in options.words)
    ]
    if options.sample:
        chosen = random.Random(options.seed).sample(chosen, min(options.sample, len(chosen)))
    # A server without threads makes the processes, one for each test: nothing of a fault is left for the next one.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    nodes = list(dict.fromkeys(each.noticed_by for each in chosen))
    tasks: list[tuple[str, str | None]] = [(node, None) for node in nodes]
    tasks += [(each.noticed_by, each.name) for each in chosen]
    alive = 0
    with context.Pool(options.jobs, maxtasksperchild=1) as pool:
        outcomes = pool.imap(run_safely, tasks, chunksize=1)
        before = {node: next(outcomes) for node in nodes}
        for each in chosen:
            outcome, what = judged(before[each.noticed_by], next(outcomes))
            alive += outcome != "killed"
            print(f"{outcome:12s} {each.file}: {each.name}  [{each.noticed_by}]", flush=True)
            if what:
                print("    " + what.replace("\n", "\n    "), flush=True)
    print(f"{len(chosen)} faults, {len(chosen) - alive} killed")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
