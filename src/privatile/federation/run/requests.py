"""What can be asked of a run from outside: stop, abort, end an open one, readmit a client."""

import os
import signal

from privatile.errors import InputError
from privatile.federation.coordinator.control import Control
from privatile.federation.run.serve import open_run
from privatile.federation.setup.directory import Directory
from privatile.server.folder import running_process


def stop_coordinator(directory: Directory) -> str:
    """Ask the running coordinator to stop; the round that is being asked is asked again at the next start."""
    process = running_process(directory.pid_file)
    if process is None:
        raise InputError("no coordinator is running for this folder.")
    os.kill(process, signal.SIGTERM)
    return f"process {process} was asked to stop."


def abort_run(directory: Directory) -> str:
    """End a run for good, through the running coordinator or, when none runs, in the file."""
    if running_process(directory.pid_file) is not None:
        Control(directory.path / "control").request("abort")
        return "the coordinator was asked to abort; the clients will hear of it."
    run = open_run(directory)
    with run.store:
        run.journal.note("aborted", "the run was aborted while no coordinator ran; what was answered stays spent")
    return "the run is marked as aborted. The clients hear of it from the next `privatile serve`."


def close_run(directory: Directory) -> str:
    """End an open run after the round in hand: the coordinator does it, the next one where none runs."""
    if not directory.study().is_open:
        raise InputError("only an open study is ended by command; this one ends after its rounds, or with `abort`.")
    Control(directory.path / "control").request("close")
    if running_process(directory.pid_file) is not None:
        return "the coordinator was asked to end the run; the clients will hear of it."
    return "no coordinator runs: the next `privatile serve` counts what has come, ends the run and tells the clients."


def readmit(directory: Directory, client: str) -> str:
    """Let a quarantined client's answers count again."""
    if client not in directory.study().clients:
        raise InputError(f"the study has no client {client!r}.")
    if running_process(directory.pid_file) is not None:
        Control(directory.path / "control").request("readmit", client)
        return f"the coordinator was asked to readmit {client}."
    run = open_run(directory)
    with run.store:
        run.journal.readmit(client)
        run.journal.note("readmitted", "the organizer has decided that its answers count again", client)
    return f"{client} is readmitted."
