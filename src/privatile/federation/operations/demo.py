"""A federation on this machine to look at: made-up data, a coordinator with its broker, and sites, each a process."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import median

from privatile.core.sample_tables import MEDIANS, salaries
from privatile.errors import InputError, PrivatileError
from privatile.federation.operations.serve import Say
from privatile.federation.setup.broker import free_port
from privatile.federation.setup.folder import Directory, admit, initialize, new_identity
from privatile.federation.setup.invitation import read_enrolment, read_invitation
from privatile.federation.setup.permissions import BrokerSettings
from privatile.federation.site.folder import enroll
from privatile.federation.study import FederationStudy

NAMES = tuple(MEDIANS)
"""Of the sites. Their people are made up; their answers are as random as in earnest."""

STOP_SECONDS = 15.0


@dataclass
class Demo:
    """A federation that runs in processes of its own."""

    directory: Directory
    truth: float
    """The median of all made-up salaries together."""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def log(self, name: str) -> Path:
        """What one of the processes has said."""
        return self.directory.path.parent / f"{name}.log"

    def wait(self) -> str:
        """Wait for the end of the run and give what the coordinator printed; the error of a process that failed."""
        while (code := self.processes["coordinator"].poll()) is None:
            for name, process in self.processes.items():
                if process.poll() not in (None, 0, -15, -9):  # a site that somebody ends on purpose is part of the show
                    raise self._failed(name)
            time.sleep(0.2)
        if code:
            raise self._failed("coordinator")
        return self.log("result").read_text(encoding="utf-8")

    def _failed(self, name: str) -> PrivatileError:
        tail = "\n".join(self.log(name).read_text(errors="replace").splitlines()[-5:])
        return InputError(f"{name} ended with code {self.processes[name].returncode}; its last lines:\n{tail}")

    def stop(self) -> None:
        """End the processes that were started here, and no other: the sites, then the coordinator with its broker."""
        for process in reversed(self.processes.values()):
            process.terminate()
        until = time.monotonic() + STOP_SECONDS
        for process in self.processes.values():
            try:
                process.wait(max(until - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def running_demo(say: Say, *, sites: int = 3, rounds: int = 200, records: int = 8000) -> Iterator[Demo]:
    """Set a federation up in a temporary folder and start it; at the end its processes and the folder are gone."""
    if not 1 <= sites <= len(NAMES):
        raise InputError(f"the demo has 1 to {len(NAMES)} sites; got {sites}.")
    folder = Path(tempfile.mkdtemp(prefix="privatile-demo-"))
    try:
        demo = prepare(folder, NAMES[:sites], rounds, records)
        say(f"folder      {folder} (made-up data, keys, ledgers, logs; removed at the end)")
        try:
            start(demo, NAMES[:sites], say)
            yield demo
        finally:
            demo.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def prepare(folder: Path, names: tuple[str, ...], rounds: int, records: int) -> Demo:
    """Study, keys, invitations, enrolments, admissions and a table of made-up salaries per site."""
    plain = {
        "identity": new_identity(),
        "title": "A demo",
        "asked_by": "you",
        "value": "yearly salary in dollars",
        "levels": [0.5],
        "range": [1000.0, 1_000_000.0],
        "scale": "log",
        "rounds": rounds,
        "deadline": 15.0,
        "clients": {name: {"epsilon": 1.0, "weight": 1 / len(names), "records": records} for name in names},
    }
    settings = BrokerSettings(port=free_port())
    directory = initialize(folder / "study", FederationStudy.from_dict(plain), settings)
    columns = salaries(len(names), records)
    for name, column in columns.items():
        site = enroll(read_invitation(directory.invitation_file(name)), folder / f"site-{name}", max_epsilon=1.0)
        enrolment = read_enrolment(site.enrolment_file)
        admit(directory, enrolment, enrolment.keys.fingerprint)
        rows = [f"{salary:.0f}" for salary in column]
        (folder / f"{name}.csv").write_text("\n".join(["salary", *rows, ""]), encoding="utf-8")
    return Demo(directory, median(chain(*columns.values())))


def start(demo: Demo, names: tuple[str, ...], say: Say) -> None:
    """Start the coordinator, with its broker, and the sites, each as a process that logs to a file."""
    folder = demo.directory.path.parent
    # Keys of ledgers and state stay in the folder: the demo leaves nothing behind.
    homes = {"XDG_CONFIG_HOME": str(folder / "config"), "XDG_STATE_HOME": str(folder / "state")}
    commands = {"coordinator": ["serve", str(demo.directory.path), "--verbose"]}
    for name in names:
        invitation, site = str(demo.directory.invitation_file(name)), str(folder / f"site-{name}")
        source = str(folder / f"{name}.csv")
        commands[name] = ["join", invitation, "--site", site, "--source", source, "--value", "salary", "--yes"]
    for name, arguments in commands.items():
        with demo.log(name).open("wb") as log, demo.log("result").open("ab") as result:
            demo.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "privatile", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=result if name == "coordinator" else log,
                stderr=log,
                env={**os.environ, **homes},
                start_new_session=True,  # Ctrl-C is for the demo, which ends them in order
            )
        what = "coordinator" if name == "coordinator" else f"site {name}"
        say(f"{what:<12}process {demo.processes[name].pid}, log {demo.log(name)}")
