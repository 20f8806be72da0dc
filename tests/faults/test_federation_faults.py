"""kill -9 of coordinator, broker and clients, and cut networks, at random moments of one run.

After every kill the ledgers and the run's file are compared with a plain model: who has answered what. The short form
has three kills, one of them the broker's; PRIVATILE_LONG=1 runs 300 rounds with 100 kills and 10 cuts, and 200 rounds
with 30 kills and three levels.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from privatile.estimator.plan import replay
from privatile.federation.setup.broker import free_port, running_broker
from privatile.run.coordinator import Coordinator
from privatile.run.run_file import RunStore, StoredRound
from tests.federation.kit import Federation, make_study

LONG = bool(os.environ.get("PRIVATILE_LONG"))
FORMS = [((0.5,), 300, 100, 10), ((0.1, 0.5, 0.9), 200, 30, 10)] if LONG else [((0.5,), 40, 3, 1)]
"""Levels, rounds, kills and cuts."""
DELAY = 0.01
"""Seconds each way: a round takes 20 ms at least, and a look at the run a few."""


class Network:
    """A proxy between the clients and the broker that can be cut.

    It takes its time with everything, so that no machine is fast enough to end the run before its troubles.
    """

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self._target = target
        self._down = False
        self._frozen = asyncio.Event()
        self._frozen.set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, OSError):
            while data := await reader.read(65536):
                await asyncio.sleep(DELAY)
                await self._frozen.wait()
                writer.write(data)
                await writer.drain()
        writer.close()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._down:
            writer.close()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, far_writer}
        try:
            await asyncio.gather(self._pump(reader, far_writer), self._pump(far_reader, writer))
        finally:
            self._writers -= {writer, far_writer}

    @contextlib.asynccontextmanager
    async def up(self) -> AsyncIterator[None]:
        async with await asyncio.start_server(self._handle, "127.0.0.1", self.port):
            yield

    async def cut(self, rng: random.Random) -> None:
        """Everything in flight is lost and nobody gets through for a while; or everything stands still."""
        seconds = rng.uniform(0.1, 0.6)
        if rng.random() < 0.3:
            self._frozen.clear()
            await asyncio.sleep(seconds)
            self._frozen.set()
            return
        self._down = True
        for writer in list(self._writers):
            writer.transport.abort()
        await asyncio.sleep(seconds)
        self._down = False


class Crew:
    """The processes of a federation, each started again when it dies."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.kills: list[str] = []

    def start(self, who: str) -> None:
        federation = self.federation
        self.processes[who] = federation.start_serve() if who == "serve" else federation.start_join(who)

    def kill(self, who: str) -> None:
        self.kills.append(who)
        if who == "broker":
            pid = running_broker(self.federation.directory.broker_files)
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
            return
        process = self.processes[who]
        process.kill()
        process.wait()
        self.start(who)

    def check(self) -> bool:
        """Whether the coordinator has finished; anything else that ended by itself is a failure."""
        for who, process in self.processes.items():
            status = process.poll()
            if status is not None and who != "serve":
                log = (self.federation.folder / f"{who}.log").read_text()[-3000:]
                assert status == 0, f"{who} ended with {status}:\n{log}"
                assert '"state": "finished"' in log
        status = self.processes["serve"].poll()
        if status not in (None, 0):
            raise AssertionError((self.federation.folder / "serve.log").read_text()[-3000:])
        return status == 0

    def stop(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        pid = running_broker(self.federation.directory.broker_files)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)


def rounds_done(federation: Federation) -> int:
    try:
        store = RunStore.open(federation.directory.store_file, read_only=True)
    except Exception:
        return 0
    try:
        rows = store.query("SELECT COUNT(*) FROM rounds WHERE level = 0")
        return int(rows[0][0]) if rows else 0
    finally:
        store.close()


class Model:
    """Who has answered what: a plain table that only grows."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.answered: dict[tuple[str, int, float], tuple[int, int, int]] = {}
        """First record, the one after the last, and ones, by client, round and level."""
        self.rounds = 0
        self.checks = 0

    def check(self) -> None:
        """Nothing that was there is gone or different, nobody has answered twice, and every count is the ledger's."""
        federation, study = self.federation, self.federation.study
        stored = stored_rounds(federation)  # before the ledgers: they may only be ahead
        for client in study.clients:
            if not federation.sites[client].ledger_file.exists():
                continue
            with federation.ledger(client) as ledger:
                rows = ledger.execute("SELECT round, level, start, stop, ones FROM answers ORDER BY start").fetchall()
            now = {(client, number, level): (start, stop, ones) for number, level, start, stop, ones in rows}
            before = {key: answer for key, answer in self.answered.items() if key[0] == client}
            assert {key: now.get(key) for key in before} == before, f"{client}: an answer is gone or another one"
            assert len(now) == len(rows), f"{client}: a round was answered twice"
            spans = [(start, stop) for _, _, start, stop, _ in rows]
            assert all(one[1] <= two[0] for one, two in itertools.pairwise(spans)), f"{client}: a record answered twice"
            self.answered |= now
        for one in stored:
            for client, ones in zip(study.clients, one.ones, strict=True):
                key = (client, one.round, study.asked_levels[one.level_index])
                assert self.answered[key][2] == ones, f"{key}: the run's file has another count than the ledger"
        assert len(stored) >= self.rounds, "rounds are gone"
        self.rounds = len(stored)
        self.checks += 1


def stored_rounds(federation: Federation) -> list[StoredRound]:
    if not federation.directory.store_file.exists():
        return []
    with RunStore.open(federation.directory.store_file, read_only=True) as store:
        return list(store.all_rounds())


async def storm(
    federation: Federation, crew: Crew, network: Network, model: Model, rng: random.Random, kills: int, cuts: int
) -> None:
    names, rounds = list(federation.study.clients), federation.study.rounds
    parties = ["serve", "broker", *names]
    # As many kinds as there are kills: the coordinator, the broker and a site at least; the rest as it falls.
    victims = (parties + rng.choices(parties, k=kills))[:kills]
    troubles: list[str | None] = [*victims, *([None] * cuts)]
    rng.shuffle(troubles)
    # The last quarter, a third of a second at least, is left for seeing that the last mark has come.
    marks = sorted(rng.randrange(1, rounds * 3 // 4) for _ in troubles)
    limit = time.monotonic() + 1500
    for who in ("serve", *names):
        crew.start(who)
    for trouble, mark in zip(troubles, marks, strict=True):
        while rounds_done(federation) < mark:
            assert not crew.check(), "the run ended before its troubles"
            assert time.monotonic() < limit, status_of(federation)
            await asyncio.sleep(0.02)
        await asyncio.sleep(rng.uniform(0.0, 0.03))  # any moment of a round
        if trouble is None:
            await network.cut(rng)
        else:
            await asyncio.to_thread(crew.kill, trouble)
        model.check()
    while not crew.check():
        assert time.monotonic() < limit, status_of(federation)
        await asyncio.sleep(0.1)


def status_of(federation: Federation) -> str:
    return "\n".join(path.name + "\n" + path.read_text()[-1500:] for path in federation.folder.glob("*.log"))


@pytest.mark.faults
@pytest.mark.parametrize(("levels", "rounds", "kills", "cuts"), FORMS)
def test_kills_and_cuts_lose_nothing_and_nobody_answers_twice(
    tmp_path: Path, levels: tuple[float, ...], rounds: int, kills: int, cuts: int
) -> None:
    study = make_study(3, rounds=rounds, length=3 * len(levels), levels=levels, deadline=300.0)
    federation = Federation(tmp_path, study)
    federation.write_data()
    rng = random.Random(41)
    crew, model = Crew(federation), Model(federation)

    async def scene() -> None:
        network = Network(federation.settings.port)
        federation.directory.invite((f"tls://localhost:{network.port}",))
        async with network.up():
            await storm(federation, crew, network, model, rng, kills, cuts)

    try:
        asyncio.run(scene())
    finally:
        crew.stop()
    assert len(crew.kills) == kills
    assert {"serve", "broker"} < set(crew.kills)
    model.check()
    assert model.checks == kills + cuts + 1
    assert len(model.answered) == 3 * rounds * len(levels)
    print(f"{kills} kills, {cuts} cuts, {model.checks} comparisons with the model: no difference")

    store = RunStore.open(federation.directory.store_file, read_only=True)
    coordinator = Coordinator(store)
    transcript = list(store.all_rounds())
    for level_index in range(len(levels)):
        mine = [one for one in transcript if one.level_index == level_index]
        assert [one.round for one in mine] == list(range(1, rounds + 1))
        # The transcript replays to the identical estimate.
        state = replay(study.spec.plan(level_index), [one.ones for one in mine])
        assert state.query == coordinator.tracks[level_index].state.query
        assert state.averages == coordinator.tracks[level_index].state.averages
    # No record has answered twice, and every count of the transcript is the ledger's own.
    for place, name in enumerate(study.clients):
        with federation.ledger(name) as ledger:
            assert ledger.verify() == rounds * len(levels)
            spans = ledger.execute("SELECT start, stop, length FROM answers ORDER BY start").fetchall()
            counts = {
                (number, level): ones
                for number, level, ones in ledger.execute("SELECT round, level, ones FROM answers").fetchall()
            }
        assert spans[0][0] == 0
        assert spans[-1][1] <= study.clients[name].records
        assert all(stop - start == length for start, stop, length in spans)
        assert all(one[1] == two[0] for one, two in itertools.pairwise(spans))
        for stored in transcript:
            assert stored.ones[place] == counts[stored.round, study.asked_levels[stored.level_index]]
    # Nothing that was logged holds a record's value.
    told = status_of(federation) + (federation.directory.broker_files.log).read_text()
    values = {f"{value:.6f}" for table in federation.values.values() for value in table}
    assert not any(value in told for value in values)
    for line in (tmp_path / "site0.log").read_text().splitlines():
        if line.startswith("{"):
            json.loads(line)
