"""Run named faults: `python -m tests.named_faults [--sample N] [--seed N] [--jobs N] [WORD …]`."""

import argparse
import multiprocessing
import os
import random
import sys

from tests.named_faults import all_faults
from tests.named_faults._running import good_tests, outcome_of

PRELOADED = [
    "tests.named_faults._running",
    "duckdb",
    "scipy.stats",
    "privatile.api.estimate",
    "privatile.federation.site.responder",
]
"""What most tests import, and what is slow to import: done once, before the processes are made."""


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
    if not chosen:
        parser.error(f"no fault has a name or a file with {' or '.join(options.words)}")
    if options.sample:
        chosen = random.Random(options.seed).sample(chosen, min(options.sample, len(chosen)))
    # A server without threads makes the processes, one for each test: nothing of a fault is left for the next one.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    nodes = sorted({each.noticed_by for each in chosen})
    alive = 0
    with context.Pool(options.jobs, maxtasksperchild=1) as pool:
        found = pool.map_async(
            good_tests, [part for k in range(options.jobs) if (part := nodes[k :: options.jobs])], chunksize=1
        )
        outcomes = pool.imap(outcome_of, [each.name for each in chosen])
        good = set().union(*found.get())
        for each, (outcome, what) in zip(chosen, outcomes, strict=True):
            if each.noticed_by not in good:
                outcome, what = "no good test", "it does not pass without the fault"
            alive += outcome != "killed"
            print(f"{outcome:12s} {each.file}: {each.name}  [{each.noticed_by}]", flush=True)
            if what:
                print("    " + what.replace("\n", "\n    "), flush=True)
    print(f"{len(chosen)} faults, {len(chosen) - alive} killed")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
