"""Facts on stdout for programs, and texts that every terminal can show."""

import codecs
import errno
import io
import json
import os
import re
import shlex
import sys
from functools import partial
from typing import Any

import click

from privatile.core.words import disarmed, disarmed_json

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
            if option == "--log":
                text = text.replace("--scale log", option).replace("scale='log'", option)
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
