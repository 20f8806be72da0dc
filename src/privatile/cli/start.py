"""`privatile demo`, `doctor` and `completion`: a first result, what is installed, help for the shell."""

import importlib.metadata
import os
import platform
import re
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from privatile import __version__
from privatile.cli.options import json_flag
from privatile.cli.printing import echo, echo_json
from privatile.core.private_files import default_person_key, state_folder
from privatile.errors import InputError, how_to_install

SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command()
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """A completion script for SHELL, to be loaded at its start.

    \b
    bash   eval "$(privatile completion bash)"            in ~/.bashrc
    zsh    eval "$(privatile completion zsh)"             in ~/.zshrc
    fish   privatile completion fish | source             in ~/.config/fish/config.fish
    """
    root = ctx.find_root().command
    echo(SHELLS[shell](root, {}, "privatile", "_PRIVATILE_COMPLETE").source())


NEXT = """
Next, from this table or from yours (one row per person), as a page:

  privatile estimate salaries.csv --value salary --client region --q 0.5 \\
      --epsilon 1 --range 1000 1000000 --scale log \\
      --ledger trial.db --save run.db
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
    echo(f"  estimate       {result.shown.own.estimate}")
    echo(f"  95% interval   {result.shown.own.text}, {verdict(interval, truth)}")
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


Verdict = Literal["fine", "absent", "wrong"]

RELEASED = 1_767_225_600.0
"""2026-01-01: no clock that is right shows an earlier time to this version."""

LITTLE_SPACE = 100_000_000
"""Bytes: a run of 100,000 rounds takes about 10 MB, a ledger of a million people about 40 MB."""


BASE = ["numpy", "scipy", "msgspec", "click", "rich", "jinja2", "duckdb", "pyarrow"]


class Check(NamedTuple):
    """One thing looked at."""

    what: str
    verdict: Verdict
    text: str


@click.command()
@json_flag("The findings")
def doctor(as_json: bool) -> None:
    """What is installed, which extras, and whether the clock, the randomness and the disk are fine.

    Ends with 1 if something that every run needs is wrong; an extra that is not installed is no fault.
    """
    checks = list(examine())
    if as_json:
        echo_json([check._asdict() for check in checks])
    else:
        gap = max(len(check.what) for check in checks)
        marks = {"fine": "✓", "absent": "·", "wrong": "✗"}
        for check in checks:
            echo(f"{marks[check.verdict]} {check.what:<{gap}}  {check.text}")
    if any(check.verdict == "wrong" for check in checks):
        sys.exit(1)


def examine() -> Iterator[Check]:
    """All checks, in the order people want them."""
    yield Check("privatile", "fine", f"{__version__} on Python {platform.python_version()}, {platform.system()}")
    yield from _packages()
    yield _broker()
    yield _randomness(os.urandom)
    yield _clock(time.time)
    for what, folder in (("state folder", state_folder()), ("key folder", default_person_key().parent)):
        yield _disk(what, folder)


def _broker() -> Check:
    from privatile.federation.setup.broker import find_binary

    try:
        binary = find_binary()
    except InputError as error:
        return Check("nats-server", "absent", f"the broker of a federation: {error}")
    beside = f"; {'; '.join(binary.passed_over)}" if binary.passed_over else ""
    return Check("nats-server", "fine", f"{binary.path} ({binary.version}){beside}")


def _packages() -> Iterator[Check]:
    wanted: dict[str, list[str]] = {}
    try:
        lines = importlib.metadata.requires("privatile") or []
    except importlib.metadata.PackageNotFoundError:
        yield Check("installed", "absent", "no: run from its source, so its extras are not known. pip install -e .")
        lines = BASE
    for line in lines:
        name = re.split(r"[\s;<>=!~\[(]", line, maxsplit=1)[0]
        marker = re.search(r"""extra\s*==\s*['"]([^'"]+)['"]""", line)
        wanted.setdefault(marker.group(1) if marker else "", []).append(name)
    for extra, names in wanted.items():
        if extra in ("test", "docs", "all"):
            continue
        found = {name: _version(name) for name in names}
        missing = [name for name, version in found.items() if version is None]
        text = ", ".join(f"{name} {version}" for name, version in found.items() if version)
        if not missing:
            yield Check(f"extra {extra}" if extra else "base", "fine", text)
        elif extra:
            missing_text = f"not installed ({', '.join(missing)}): {how_to_install(extra)}"
            yield Check(f"extra {extra}", "absent", missing_text)
        else:
            yield Check("base", "wrong", f"missing: {', '.join(missing)}. Install privatile again.")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _randomness(draw: Callable[[int], bytes]) -> Check:
    """A broken source repeats itself or is lopsided: 8192 bits, the share of ones within 8 standard errors of ½."""
    first, second = draw(512), draw(512)
    ones = sum(byte.bit_count() for byte in first + second)
    if first == second or abs(ones - 4096) > 8 * 45.3:
        text = "the operating system's source repeats itself or is lopsided: answer no one"
        return Check("randomness", "wrong", text)
    return Check("randomness", "fine", "the operating system's source gives fresh, balanced bits")


def _clock(now: Callable[[], float]) -> Check:
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now()))
    if now() < RELEASED:
        return Check("clock", "wrong", f"shows {shown}, before this version was made: set it")
    with tempfile.NamedTemporaryFile() as file:
        apart = abs(Path(file.name).stat().st_mtime - now())
    if apart > 5:
        return Check("clock", "wrong", f"shows {shown}; the disk's differs by {apart:.0f} s: set it")
    return Check("clock", "fine", shown)


def _disk(what: str, folder: Path) -> Check:
    """Whether a folder, or the nearest one above it, takes a durable transaction and has space."""
    place = folder
    while not place.exists():
        place = place.parent
    try:
        with tempfile.TemporaryDirectory(prefix="privatile-doctor-", dir=place) as scratch:
            connection = sqlite3.connect(Path(scratch) / "trial.db")
            connection.execute("PRAGMA synchronous=FULL")
            mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
            with connection:
                connection.execute("CREATE TABLE trial (one INTEGER)")
                connection.execute("INSERT INTO trial VALUES (1)")
            connection.close()
    except (OSError, sqlite3.Error) as error:
        return Check(what, "wrong", f"{folder} cannot be written ({type(error).__name__})")
    free = shutil.disk_usage(place).free
    if mode != "wal":
        return Check(what, "wrong", f"{folder} is on a disk that readers and writers cannot share (a network disk?)")
    if free < LITTLE_SPACE:
        return Check(what, "wrong", f"{folder}: only {free / 1e6:.0f} MB free")
    return Check(what, "fine", f"{folder}, {free / 1e9:.1f} GB free" + ("" if folder.exists() else ", not made yet"))
