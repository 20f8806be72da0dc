"""Ctrl-C, remembered.

A module that is interrupted while it is imported may turn that into an error of its own: numpy's compiled parts
say "failed to import"; a query of a file says "Query interrupted". Whoever pressed Ctrl-C is told that it was an
interrupt, and pressing it again while the command ends changes nothing.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from privatile.cli.printing import echo


@contextmanager
def remembered_interrupts() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed since this block began; the first time it interrupts as it always does.

    >>> with remembered_interrupts() as interrupted:
    ...     interrupted()
    False
    """
    pressed = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        signal.default_int_handler(number, frame)

    usual = signal.getsignal(signal.SIGINT)
    if usual is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield lambda: False  # somebody else takes care of it
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield lambda: pressed
    finally:
        if signal.getsignal(signal.SIGINT) is note:
            signal.signal(signal.SIGINT, usual)


def tell_of_interrupt() -> None:
    """Say what an interrupt has left; from now on another one changes nothing, the command is ending."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    echo("\nprivatile: interrupted; what was answered is kept. The same command continues.", err=True)
