"""The command lines of the runbook for federations without a coordinator, typed as they stand there, in one drill."""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from click.testing import CliRunner

from peers_kit import Peers, leaderless
from privatile.cli import main
from privatile_leaderless.entries import PeerAnswer, read_entry
from privatile_leaderless.service import PeerService, start_server
from tests.federation.kit import PATIENCE, REPOSITORY, until

pytestmark = [pytest.mark.network, pytest.mark.process]

RUNBOOK = REPOSITORY / "docs" / "runbook.md"


def command_lines() -> set[str]:
    """Those of the section, each as a reader sees it."""
    section = RUNBOOK.read_text(encoding="utf-8").partition("\n## Without a coordinator\n")[2].partition("\n## ")[0]
    return {" ".join(line.split()) for line in re.findall(r"`(privatile [^`]+)`", section)}


class Drill:
    """Three organizations that run as tasks, and somebody who types."""

    def __init__(self, folder: Path) -> None:
        self.peers = Peers(folder, leaderless(3, rounds=5000, length=1, deadline=0.5), servers=1)
        self.left = command_lines()
        self.services: dict[str, PeerService] = {}
        self._tasks: dict[str, asyncio.Task[str]] = {}

    def type(self, line: str, name: str, **words: object) -> str:
        """Type a line of the page at an organization, with these words in the place of its capitals."""
        self.left.discard(line)
        assert line in command_lines()
        words = {"DIR": self.peers.folders[name].path, **words}
        typed = [str(words.get(word.replace(".", "_"), word)) for word in shlex.split(line)[1:]]
        assert not [word for word in typed if word.isupper()]
        done = CliRunner().invoke(main, typed, input="y\n")
        assert done.exit_code == 0, (typed, done.output)
        return done.output

    def start(self, *names: str) -> None:
        for name in names:
            self.services[name] = self.peers.service(name)
            self._tasks[name] = asyncio.create_task(self.services[name].run())

    async def stop(self, *names: str) -> None:
        for name in names:
            self.services.pop(name).stop()
            assert await self._tasks.pop(name) == "stopped"
            self.peers.logs.pop(name).close()

    async def end(self) -> list[str]:
        return await asyncio.wait_for(asyncio.gather(*self._tasks.values()), PATIENCE)

    async def more(self, rounds: int = 3) -> None:
        """So many rounds more are committed at everybody who is there."""
        target = max(one.replica.committed for one in self.services.values()) + rounds
        await until(lambda: all(one.replica.committed >= target for one in self.services.values()))

    async def lie_twice(self, name: str) -> None:
        """Another answer to a round that is counted, with the same key: as from a second machine."""
        place = list(self.peers.study.clients).index(name)
        service, key = self.services[name], self.peers.folders[name].key()
        given = next(one.answers[place] for one in service.replica.closed_rounds()[::-1] if one.answers[place])
        entry = read_entry(str(given).encode(), key.public.signer)
        assert isinstance(entry, PeerAnswer)
        (count,) = entry.counts
        other = msgspec.structs.replace(entry, counts=(msgspec.structs.replace(count, ones=1 - count.ones),))
        assert service._port is not None
        await service._port.publish(other.pack(key))


def test_the_lines_of_the_runbook_do_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # They are typed at a terminal, where what cannot be taken back is asked before.
    monkeypatch.setattr("privatile.cli.options.sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    drill = Drill(tmp_path)
    first, second, third = names = tuple(drill.peers.study.clients)
    folders = drill.peers.folders

    async def away() -> None:
        await drill.stop(third)
        await drill.more()
        drill.type("privatile federation backup DIR NEW", first, NEW=tmp_path / "backup")
        assert (tmp_path / "backup" / "run.db").is_file()
        caught = drill.type("privatile peer catch-up DIR --from RUN.DB", third, RUN_DB=folders[first].store_file)
        assert int(re.findall(r"New here: (\d+)", caught)[0]) >= 1
        drill.start(third)
        await drill.more()

    async def quarantine() -> None:
        await drill.lie_twice(third)
        await until(lambda: all(third in one.replica.quarantined for one in drill.services.values()))
        await until(lambda: all(one.peer_log.journal.quarantined() for one in drill.services.values()))
        assert "two answers" in drill.type("privatile status DIR", second)
        closed = {one.replica.closed for one in drill.services.values()}
        drill.type("privatile peer vote DIR --abort", first)
        await until(lambda: not folders[first].vote_file.exists())
        assert {one.replica.closed for one in drill.services.values()} == closed  # nobody decides alone
        drill.type("privatile peer vote DIR --abort", second)
        assert await drill.end() == ["aborted"] * 3

    async def play() -> None:
        async with drill.peers.servers():
            drill.start(*names)
            await drill.more()
            await away()
            await drill.stop(*names)
        shutil.rmtree(folders[first].broker_files.folder / "jetstream")
        before = drill.peers.committed(first)
        server = await asyncio.to_thread(start_server, folders[first], lambda line: None)
        try:
            for name in names:
                assert "reads log 1" in drill.type("privatile peer recover DIR", name)
            drill.start(*names)
            await drill.more()
            await quarantine()
        finally:
            await asyncio.to_thread(server.stop)
        assert drill.peers.committed(first)[: len(before)] == before

    asyncio.run(play())
    for log in drill.peers.logs.values():
        log.close()
    assert "aborted" in drill.type("privatile status DIR", third)
    assert drill.left == set()  # every line of the section was typed
    assert drill.peers.check() > 0
