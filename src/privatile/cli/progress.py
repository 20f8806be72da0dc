"""Progress on stderr: a bar with the time left on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from privatile.core.words import duration, printable

QUIET_SECONDS = 10.0
"""Between two lines where stderr is no terminal."""


@contextmanager
def rounds_bar(
    label: str, quiet: bool = False, unit: str = "rounds", each: int = 1
) -> Iterator[Callable[[int, int], None]]:
    """Gives a function of (rounds done, rounds planned), or of another unit, shown by the `each`."""
    label = printable(label)
    if quiet:
        yield lambda done, planned: None
        return
    with _bar(label, unit) if sys.stderr.isatty() else nullcontext(_lines(label, unit)) as update:
        yield lambda done, planned: update(done // each, planned // each)


@contextmanager
def _bar(label: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TextColumn(f"{unit}, left"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=None)

        def update(done: int, planned: int) -> None:
            progress.update(task, completed=done, total=planned)

        yield update


def _lines(label: str, unit: str) -> Callable[[int, int], None]:
    begun = last = time.monotonic()
    first: int | None = None

    def update(done: int, planned: int) -> None:
        nonlocal last, first
        first = done - 1 if first is None else first
        now = time.monotonic()
        if now - last >= QUIET_SECONDS:
            left = (now - begun) / (done - first) * (planned - done)
            print(f"{label}: {done} of {planned} {unit}, about {duration(left)} left", file=sys.stderr, flush=True)
            last = now

    return update
