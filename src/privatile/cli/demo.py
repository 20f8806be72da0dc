"""`privatile demo`: the median of made-up salaries, privately, beside the truth."""

import time
from pathlib import Path

import click

from privatile.cli.printing import echo

NEXT = """
Next, from this table or from yours (one row per person), as a page:

  privatile estimate salaries.csv --value salary --client region --q 0.5 \\
      --epsilon 1 --range 1000 1000000 --log --ledger trial.db --save run.db
  privatile report run.db

--range is where the median can lie, from what you know beforehand; --client may
be left out. For your own table leave out --ledger trial.db, too: it keeps
made-up people apart from the real ones in your ledger."""


@click.command()
def demo() -> None:
    """Estimate the median of made-up salaries privately and show it beside the truth.

    Writes the tables that the documentation uses, salaries.csv and waiting.csv, into this folder. The run is a
    simulation: no ledger is opened.
    """
    from statistics import median

    import numpy as np

    from privatile.api.estimate import estimate
    from privatile.core.sample_tables import salaries, write_tables

    write_tables(Path())
    columns = salaries()
    everybody = [salary for column in columns.values() for salary in column]
    echo(
        f"{len(everybody):,} made-up salaries in {len(columns)} regions are in salaries.csv. Each of these people\n"
        'answers one question, "is your salary above q?", once, by a randomized bit\n'
        "(ε = 1: the truth 73% of the time, its opposite otherwise).\n"
    )
    began = time.perf_counter()
    # Fresh answers every time. The people are made up, so that nobody is harmed by a simulation's generator.
    result = estimate(
        columns,
        epsilon=1,
        range=(1000, 1_000_000),
        scale="log",
        value="salary",
        simulate=True,
        rng=np.random.default_rng(),
    )
    took, truth, interval = time.perf_counter() - began, median(everybody), result.confidence_interval
    echo(f"  true median    {truth:,.0f}")
    echo(f"  estimate       {result.estimate_shown(interval)}")
    echo(f"  95% interval   {result.interval_shown(interval)}, {verdict(interval, truth)}")
    echo(f"  time           {took:.1f} s")
    echo(NEXT)


def verdict(interval: tuple[float, float], truth: float) -> str:
    """Whether an interval holds the truth, in words.

    >>> verdict((40_200.0, 46_600.0), 43_255.0)
    'holds the truth'
    >>> verdict((43_300.0, 46_600.0), 43_255.0)
    'misses the truth, as up to 1 in 20 do'
    """
    return "holds the truth" if interval[0] <= truth <= interval[1] else "misses the truth, as up to 1 in 20 do"
