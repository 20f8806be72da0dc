"""The audited program as a process: its folder, its environment, its output."""

import contextlib
import os
import site as site_packages
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from privatile.federation.audit.planted import PERSON

FILE = "data.csv"
"""The planted file in a site's folder."""

Running = subprocess.Popen[bytes]
"""A process that was started."""


@lru_cache(maxsize=1)
def alone() -> tuple[str, ...]:
    """A prefix that gives every client process the same process number, where this system allows it.

    Coins that are seeded with the process number are then the same in two sittings.
    """
    for options in (("--pid",), ("--user", "--map-root-user", "--pid")):
        prefix = ("unshare", *options, "--fork", "--kill-child")
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run([*prefix, "true"], capture_output=True, timeout=5, check=True)
            return prefix
    return ()


def data_arguments(folder: Path, column: str, *, people: bool) -> list[str]:
    """The arguments that name the planted file, its column, and the column of people where the client is told so."""
    found = ["--source", str(folder / FILE), "--value", column]
    return [*found, "--person", PERSON] if people else found


def start_process(folder: Path, command: Sequence[str]) -> Running:
    """Start a process, with what a process needs to start and nothing else of this one's environment."""
    home = folder / "home"
    home.mkdir(exist_ok=True, mode=0o700)
    environment = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    # What it writes where programs usually write is looked through; what it imports is found as from here.
    environment |= {"HOME": str(home), "TMPDIR": str(home), "PYTHONUSERBASE": str(site_packages.getuserbase())}
    environment["PYTHONPATH"] = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(Path.cwd())])
    with (folder / "output.log").open("ab") as file:
        return subprocess.Popen(
            [*alone(), *command],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            cwd=home,
            env=environment,
        )
