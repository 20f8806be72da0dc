"""How often an audit finds each broken client of the tests' table, each in an audit of its own.

python -m studies.audit.broken 100 [NAME …]
"""

import sys
from collections import Counter
from multiprocessing import Pool

import numpy as np
from tests.federation.broken_clients.simulated import Honest, failures
from tests.federation.broken_clients.table import TABLE

from privatile.federation.audit.plan import make_plan

KINDS: dict[str, type[Honest]] = {"Honest": Honest, **TABLE}


def audit_all(work: tuple[int, tuple[str, ...]]) -> list[tuple[str, tuple[str, ...]]]:
    """One plan, every client: the checks that each fails."""
    seed, names = work
    rng = np.random.default_rng(seed)
    plan = make_plan(1.0, rng)
    return [(name, tuple(failures(plan, KINDS[name], rng))) for name in names]


def main(audits: int, names: tuple[str, ...]) -> None:
    """A table: how often each client is found, and by which checks in at least half of its audits."""
    caught: Counter[str] = Counter()
    checks: dict[str, Counter[str]] = {name: Counter() for name in names}
    with Pool() as pool:
        for rows in pool.imap_unordered(audit_all, [(seed, names) for seed in range(1000, 1000 + audits)]):
            for name, failed in rows:
                caught[name] += bool(failed)
                checks[name].update(failed)
    print("| client | found | by |\n|---|---|---|")
    for name in names:
        by = ", ".join(check for check, count in checks[name].items() if 2 * count >= audits)
        print(f"| {name}: {(KINDS[name].__doc__ or '').splitlines()[0]} | {caught[name]} of {audits} | {by} |")


if __name__ == "__main__":
    main(int(sys.argv[1]), tuple(sys.argv[2:]) or tuple(KINDS))
