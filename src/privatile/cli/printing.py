"""Facts on stdout for programs, texts that every terminal can show, progress on stderr, Ctrl-C remembered.

On a terminal progress is a bar with the time left, elsewhere a line now and then.

A module that is interrupted while it is imported may turn that into an error of its own: numpy's compiled parts
say "failed to import"; a query of a file says "Query interrupted". Whoever pressed Ctrl-C is told that it was an
interrupt, and pressing it again while the command ends changes nothing.
"""

import codecs
import errno
import io
import json
import os
import re
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from types import FrameType
from typing import Any

import click

from privatile.core.text import disarmed, disarmed_json, duration, printable

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


PATHS = {
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EACCES, errno.EPERM, errno.EROFS),
    *(errno.ENAMETOOLONG, errno.ELOOP),
}
"""What is wrong with a path rather than with the machine."""


DISKS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def show_any_text() -> None:
    """Put a question mark for letters that stdout or stderr cannot write (an old locale): better than none at all."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def said_by_the_system(error: OSError) -> tuple[str, int]:
    """What the operating system refused, how to fix it, and the exit code: 2 where another path fixes it.

    >>> said_by_the_system(FileNotFoundError(2, "No such file or directory", "far/r.html"))
    ('far/r.html cannot be used: no such file or directory. Give another path, in a folder that is there.', 2)
    >>> said_by_the_system(OSError(28, "No space left on device"))[1]
    1
    """
    why = (error.strerror or type(error).__name__).lower()
    if error.filename is None and error.errno in DISKS:
        return f"the output could not be written: {why}. Give the same command again with an output that works.", 1
    if error.filename is not None and error.errno in PATHS:
        return f"{error.filename} cannot be used: {why}. Give another path, in a folder that is there.", 2
    what = "the operating system refused" if error.filename is None else f"{error.filename} cannot be used"
    return f"{what}: {why}. Give the same command again once that is fixed.", 1


def drop_what_cannot_be_written() -> None:
    """Give up what stdout still holds where it cannot take it: Python would try again, and end with 120."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def in_options(text: str, command: click.Command) -> str:
    """An error's text with the arguments of Python written as the options of a command.

    >>> command = click.Command("run", params=[click.Option(["--spend-again"]), click.Option(["--person"])])
    >>> in_options("Give person='id', or accept that with spend_again=True.", command)
    'Give --person id, or accept that with --spend-again.'
    >>> in_options("Give person='staff number'.", command)
    "Give --person 'staff number'."
    >>> command = click.Command("run", params=[click.Option(["--epsilon"]), click.Option(["--range"])])
    >>> in_options("State range=(LOW, HIGH) and epsilon={'north': 1, 'south': 0.5}.", command)
    'State --range LOW HIGH and --epsilon north=1 --epsilon south=0.5.'
    """
    for subcommand in command.commands.values() if isinstance(command, click.Group) else ():
        text = in_options(text, subcommand)
    for parameter in command.params:
        for option in parameter.opts:
            name = option.removeprefix("--").replace("-", "_")
            text = re.sub(rf"\b{name}=True\b", option, text)
            text = re.sub(rf"\b{name}=\((\S+), (\S+)\)", rf"{option} \1 \2", text)
            text = re.sub(rf"\b{name}={{([^}}]*)}}", partial(_for_each, option), text)
            text = re.sub(rf"\b{name}=(?:'([^']*)'|([A-Z]+\b|[\d.]*\d))", partial(_with_entry, option), text)
    return text


def _with_entry(option: str, found: re.Match[str]) -> str:
    """An argument as Python writes it, as an option."""
    return f"{option} {_typed(found[1] or found[2])}"


def _for_each(option: str, found: re.Match[str]) -> str:
    """A mapping as Python writes it, as a repeated option."""
    pairs = re.findall(r"'([^']*)': '?([^',]*)'?", found[1])
    return " ".join(f"{option} {_typed(f'{key}={value}')}" for key, value in pairs)


def _typed(entry: str) -> str:
    """An entry as it is typed: what holds a space is quoted."""
    return shlex.quote(entry) if " " in entry else entry


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Whatever this program says on a terminal: no name of a client, a column, a group or a file writes an escape."""
    click.echo(disarmed(text), err=err, nl=nl)


def echo_json(facts: object) -> None:
    """Facts as JSON, without NaN or infinity; in plain ASCII where stdout does not take every letter."""
    ascii_only = codecs.lookup(getattr(sys.stdout, "encoding", None) or "ascii").name != "utf-8"
    echo(disarmed_json(json.dumps(facts, indent=2, ensure_ascii=ascii_only, allow_nan=False)))


def echo_facts(facts: Any, as_json: bool) -> None:
    """Whatever has `to_text` for people and `to_dict` for programs."""
    if as_json:
        echo_json(facts.to_dict())
    else:
        echo(facts.to_text())


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
