"""The auditor as operator of all peers of a run: folders, processes, a kill with a lost log, and what their files tell.

Every organization has a folder with all that is its own, so that a copy of it is a copy of the organization:

    PLACE/data.csv  the planted file
    PLACE/site      key, limits and ledger
    PLACE/peer      what `privatile peer enroll` makes, roster and run included
    PLACE/home      the home folder of its processes
"""

import contextlib
import shutil
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from privatile.errors import PrivatileError, ProtocolError, StoreError
from privatile.federation.audit.judgement import Finding
from privatile.federation.audit.peer_plan import PeerPlan
from privatile.federation.audit.processes import FILE, Running, alone, data_arguments, start_process
from privatile.federation.coordinator.round_rules import IMPOSSIBLE
from privatile.federation.peer.running import recover
from privatile.federation.record.history import follow_file
from privatile.federation.replica.entries import PeerAnswer, read_entry
from privatile.federation.setup.broker import EmbeddedBroker, free_port
from privatile.federation.setup.peer_folder import PeerFolder, ServerPlace, make_peer_folder
from privatile.federation.setup.peer_roster import PeerInvitation
from privatile.federation.site.folder import enroll
from privatile.server.folder import running_process
from privatile.server.run_file import RunStore, StoredRound
from privatile.server.sqlite_files import connect

PATIENCE, READ_PER_SECOND = 60.0, 10_000
"""Seconds to wait for the next round, or for a process to begin, besides those in which it reads its file, so many
records in each. On one machine honest peers need a few."""

NOWHERE = "tls://localhost:9"
"""A server that is not there: a peer that is told to use it makes its ledger, and is asked nothing."""

LINGER = 20.0
"""Seconds that a peer's server stays for those who are late; when all have signed the end, three suffice."""


class OpenRound(NamedTuple):
    """A round that lacks an answer, and the counts of those who have answered, one per level."""

    number: int = 0
    counts: Mapping[str, tuple[int, ...]] = MappingProxyType({})


class PeerFailure(Exception):
    """A run that did not come to its end, and why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.text)
        self.finding = finding


@dataclass(eq=False, repr=False)
class PeerSession:
    """All organizations of an audit, in folders under one folder."""

    folder: Path
    plan: PeerPlan
    command: Sequence[str]
    processes: dict[str, Running] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.places = {name: self.folder / name for name in self.plan.study.clients}
        records = sum(file.records for file in self.plan.files.values())
        self.patience = PATIENCE + records / READ_PER_SECOND

    def peer(self, name: str) -> PeerFolder:
        """The folder that `privatile peer enroll` makes."""
        return PeerFolder.open(self.places[name] / "peer")

    # -- folders and processes -----------------------------------------------------------------------------------

    def set_up(self) -> None:
        """Enrol all, write the planted files, and let everybody admit everybody."""
        study, made = self.plan.study, []
        for name, place in self.places.items():
            place.mkdir(parents=True, mode=0o700)
            text = self.plan.files[name].text(self.plan.column)
            (place / FILE).write_text(text, encoding="ascii")
            site = enroll(PeerInvitation(name, study), place / "site", max_epsilon=study.clients[name].epsilon)
            at = None if name == self.plan.whole else ServerPlace("localhost", free_port(), free_port())
            made.append(make_peer_folder(place / "peer", study, name, site.path, site.key(), at))
        for one in made:
            one.admit([other.enrolment_file for other in made])

    def start(self, name: str, *options: str) -> None:
        """Start an organization's process."""
        place = self.places[name]
        arguments = [str(place / "peer"), "--yes", "--verbose", "--linger", f"{LINGER:g}", *options]
        arguments += data_arguments(place, self.plan.column, people=bool(self.plan.files[name].people))
        self.processes[name] = start_process(place, [*self.command, *arguments])

    def end(self) -> None:
        """Kill all processes (kill -9), and their servers with them."""
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.processes = {}
        until = time.monotonic() + PATIENCE
        # Where a process has a number of its own, what was killed is the one that started it.
        while any(running_process(self.peer(name).pid_file) for name in self.places) and time.monotonic() < until:
            time.sleep(0.01)
        if not alone():  # else they have died with the process
            for name in self.places:
                folder = self.peer(name)
                if folder.server() is not None:
                    EmbeddedBroker(folder.broker_files, folder.settings()).stop()

    def make_ledgers(self) -> None:
        """Let every process begin, ask nothing, and kill it: the ledgers exist then, and hold no answer."""
        for name in self.places:
            self.start(name, "--broker", NOWHERE)
        self._wait(lambda: all(map(self._has_reserved, self.places)), "did not begin")
        self.end()

    def _has_reserved(self, name: str) -> bool:
        rows = _rows(self.peer(name).ledger_file, "SELECT count(*) FROM runs WHERE reserved IS NOT NULL")
        return bool(rows and rows[0][0])

    # -- a run ---------------------------------------------------------------------------------------------------

    def hold(self, *, kill: bool) -> OpenRound:
        """Hold a run to its end; with `kill`, all are killed in the middle and the log is lost.

        Gives the round that was open then, as it was in the lost log.
        """
        before = OpenRound()
        try:
            for name in self.places:
                self.start(name)
            if kill:
                before = self._lose_log()
                for name in self.places:
                    recover(self.peer(name))
                    self.start(name)
            self._wait(lambda: all(map(self._has_finished, self.places)), "did not finish", ends=True)
            if "end" in self.plan.parts:
                self._wait(self._have_ended, "did not end", ends=True)
        finally:
            self.end()
        return before

    def _lose_log(self) -> OpenRound:
        """Kill all in a round that one has not answered and the others have; gives that round."""
        study, silent = self.plan.study, self.plan.whole
        self._wait(lambda: self._committed(silent) >= study.rounds // 4, "stopped", ends=True)
        if any(map(self._has_finished, self.places)):
            raise PrivatileError("the run was over before anybody could be killed in it. Audit once more.")
        self.processes[silent].kill()
        self.processes.pop(silent).wait()
        others = [name for name in self.places if name != silent]
        self._wait(lambda: len(self._open_round(others[0]).counts) == len(others), "stopped")
        self.end()
        for name, place in self.places.items():
            streams = self.peer(name).broker_files.folder / "jetstream"
            if streams.exists():  # kept: what was sent is looked through
                streams.rename(place / "lost log")
        return self._open_round(others[0])

    def _open_round(self, name: str) -> OpenRound:
        """The last round that was answered, as the file of somebody who has read the log tells it."""
        folder = self.peer(name)
        keys = folder.peers().keys
        answers: dict[int, dict[str, tuple[int, ...]]] = {0: {}}
        for sender, payload in _rows(folder.store_file, "SELECT sender, payload FROM peer_entries ORDER BY place"):
            with contextlib.suppress(ProtocolError, KeyError):
                entry = read_entry(payload, keys[sender].signer)
                if isinstance(entry, PeerAnswer):
                    answers.setdefault(entry.round, {})[sender] = tuple(one.ones for one in entry.counts)
        last = max(answers)
        return OpenRound(last, answers[last])

    def _committed(self, name: str) -> int:
        rows = _rows(self.peer(name).store_file, "SELECT count(*) FROM peer_chain")
        return int(rows[0][0]) if rows else 0

    def _has_finished(self, name: str) -> bool:
        rows = _rows(self.peer(name).store_file, "SELECT finished FROM run")
        return bool(rows and rows[0][0] is not None)

    def _have_ended(self) -> bool:
        return all(process.poll() is not None for process in self.processes.values())

    def _wait(self, condition: Callable[[], bool], words: str, *, ends: bool = False) -> None:
        """Wait while there is progress; `ends`: processes may end by themselves, with the run.

        On one machine nothing is lost: a peer that stops has not answered, and silence may depend on the truth.
        """
        committed, until, looked = -1, time.monotonic() + self.patience, 0.0
        while not condition():
            time.sleep(0.005)
            if time.monotonic() < looked + 0.1:
                continue
            looked = time.monotonic()
            for name, process in self.processes.items():
                status = process.poll()
                if status is not None and not (ends and status == 0 and self._has_finished(name)):
                    text = f"the process of {name} ended before the run did, with status {status}"
                    raise PeerFailure(Finding("answers", False, text))
            self._check_quarantine()
            now = sum(map(self._committed, self.places))
            if now > committed:
                committed, until = now, time.monotonic() + self.patience
            elif time.monotonic() > until:
                rounds = ", ".join(f"{name} {self._committed(name)}" for name in self.places)
                raise PeerFailure(
                    Finding("answers", False, f"the peers {words} in {self.patience:.0f} s: rounds {rounds}")
                )

    def _check_quarantine(self) -> None:
        for name in self.places:
            for client, reason in _rows(self.peer(name).store_file, "SELECT * FROM quarantined"):
                found_by = "share" if reason == IMPOSSIBLE else "once"
                raise PeerFailure(Finding(found_by, False, f"{client} is in quarantine at {name}: {reason}"))

    # -- what the files tell -------------------------------------------------------------------------------------

    def read(self) -> list[StoredRound]:
        """The rounds of the run, in which everybody has answered; all files must tell the same, with signatures."""
        chains, found = {}, []
        for name in self.places:
            folder = self.peer(name)
            roster = folder.peers()
            try:
                with RunStore.frozen(folder.store_file) as store:
                    followed = follow_file(self.plan.study, roster.keys, roster.digest, store)
                    found = list(store.all_rounds())
            except PrivatileError as error:
                raise PeerFailure(Finding("answers", False, f"{name}'s file: {error}")) from None
            if followed.broken:
                raise PeerFailure(Finding("answers", False, f"{name}'s file does not follow: {followed.broken}"))
            if len(followed.finals) < self.plan.study.signing_quorum:
                raise PeerFailure(Finding("answers", False, f"{name}'s file lacks signatures of the end"))
            chains[name] = followed.history.chain
        if len(set(chains.values())) > 1:
            raise PeerFailure(Finding("answers", False, "the peers' files tell different histories"))
        for one in found:
            for name, ones in zip(self.plan.study.clients, one.ones, strict=True):
                if ones is None:
                    raise PeerFailure(Finding("answers", False, f"{name} did not answer round {one.round}"))
        return found


def copy_folders(place: Path, to: Path) -> None:
    """Copy all organizations, without what their processes have said."""
    shutil.copytree(place, to, ignore=shutil.ignore_patterns("*.log"))


def _rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    """Rows of a file that a process writes; none where it is not there yet, or is being made."""
    if not path.exists():
        return []
    with contextlib.suppress(sqlite3.Error, StoreError), contextlib.closing(connect(path, read_only=True)) as file:
        return file.execute(query).fetchall()
    return []
