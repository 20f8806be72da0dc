"""The auditor as coordinator of real client processes: a study, planted files, questions, counts and a kill."""

import asyncio
import contextlib
import os
import secrets
import shutil
import site as site_packages
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from privatile.core.messages import Question
from privatile.errors import PrivatileError, ProtocolError
from privatile.federation.audit.plan import PERSON, Sitting
from privatile.federation.connection import NatsCoordinator, connected
from privatile.federation.setup.broker import EmbeddedBroker, free_port
from privatile.federation.setup.folder import Directory, admit, initialize
from privatile.federation.setup.invitation import read_enrolment, read_invitation
from privatile.federation.setup.permissions import BrokerSettings
from privatile.federation.site.folder import Site, enroll
from privatile.federation.site.limits import limits_toml
from privatile.federation.wire import MAX_ANSWER, Hello, RoundAnswers, RoundQuestions, Welcome, read_message
from privatile.run.files import replace_file

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
            [*alone(), *command], stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=home, env=environment
        )


PATIENCE = 30.0
"""Seconds to wait for an answer. On one machine an honest client needs milliseconds."""

Given = Mapping[str, tuple[int, ...]]
"""The counts of one round by site, one per level; a silent site is left out."""


@dataclass(eq=False, repr=False)
class Client:
    """One client process, its folder and the key that its messages are signed with."""

    name: str
    folder: Path
    signer: str
    invitation: Path
    column: str
    people: bool
    command: Sequence[str]
    process: Running | None = None

    def start(self) -> None:
        """Start the process."""
        arguments = [str(self.invitation), "--site", str(self.folder), "--yes", "--verbose"]
        arguments += ["--source", str(self.folder / FILE), "--value", self.column]
        arguments += ["--person", PERSON] if self.people else []
        self.process = start_process(self.folder, [*self.command, *arguments])

    def end(self) -> None:
        """Kill the process (kill -9)."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    @property
    def runs(self) -> bool:
        """Whether the process has not ended."""
        return self.process is not None and self.process.poll() is None


@dataclass(eq=False, repr=False)
class Session:
    """One sitting with its client processes. `open_session` makes one."""

    directory: Directory
    clients: Mapping[str, Client]
    port: NatsCoordinator
    received: list[bytes] = field(default_factory=list)
    """Everything that the clients have sent."""
    _asked: Mapping[str, tuple[Question, ...]] = field(default_factory=dict)
    _answers: dict[str, asyncio.Future[tuple[int, ...]]] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._study, self._key = self.directory.study(), self.directory.key()

    async def open(self) -> None:
        """Listen, then start the clients and wait for their hellos: their ledgers exist then, and hold no answer."""
        await self.port.open(self._on_answer, self._on_hello)
        for client in self.clients.values():
            client.start()
        until = asyncio.get_running_loop().time() + PATIENCE
        while len(self._seen) < len(self.clients) and asyncio.get_running_loop().time() < until:
            if not all(client.runs for client in self.clients.values()):
                return
            await asyncio.sleep(0.02)

    async def restart(self, name: str) -> None:
        """Kill a client (kill -9) and start it again."""
        await asyncio.to_thread(self.clients[name].end)
        self.clients[name].start()

    async def ask(self, questions: Mapping[str, tuple[Question, ...]], patience: float = PATIENCE) -> Given:
        """Ask one round, all sites at once; a site that gives no answer is left out."""
        loop = asyncio.get_running_loop()
        self._asked = questions
        self._answers = {name: loop.create_future() for name in questions}
        waiting = set(self._answers.values())
        until = loop.time() + patience
        await self.port.ask(RoundQuestions.of(self._study.digest, questions).pack(self._key))
        # A client that has ended will not answer: no need to wait for it.
        while waiting and loop.time() < until and all(self.clients[name].runs for name in questions):
            _, waiting = await asyncio.wait(waiting, timeout=0.25)
        given = {name: answer.result() for name, answer in self._answers.items() if answer.done()}
        self._answers = {}
        return given

    def _on_answer(self, client: str, payload: bytes) -> None:
        self.received.append(payload)
        with contextlib.suppress(PrivatileError):
            message = read_message(payload, self.clients[client].signer, MAX_ANSWER)
            waiting, asked = self._answers.get(client), self._asked.get(client, ())
            if isinstance(message, RoundAnswers) and waiting is not None and not waiting.done():
                waiting.set_result(tuple(one.ones for one in message.answers_to(asked, open_ended=False)))

    async def _on_hello(self, client: str, payload: bytes) -> None:
        self.received.append(payload)
        with contextlib.suppress(ProtocolError):
            hello = read_message(payload, self.clients[client].signer, MAX_ANSWER)
            if isinstance(hello, Hello):
                self._seen.add(client)
                nonce, digest = secrets.token_hex(16), self._study.digest
                welcome = Welcome(digest, client, hello.instance, None, 0, 0, "", nonce, hello.nonce)
                await self.port.welcome(client, welcome.pack(self._key))


@contextlib.asynccontextmanager
async def open_session(
    folder: Path, sitting: Sitting, command: Sequence[str], *, organizer: Path | None = None, sites: Path | None = None
) -> AsyncIterator[Session]:
    """Hold a sitting in `folder`: at new sites, or at sites whose folders (under `sites`) were used before.

    `organizer` is the folder of an earlier sitting of the same study: the invitations are then the same to the last
    byte.
    """
    if organizer is None:
        directory = initialize(folder / "organizer", sitting.study, BrokerSettings(port=free_port()))
    else:
        directory = Directory(organizer)
    clients = {}
    for name, asks in sitting.asks.items():
        place = (sites or folder / "sites") / name
        invitation = directory.invitation_file(name)
        home = Site(place, name)
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(home.limits_file, limits_toml(sitting.study.clients[name].epsilon))
        enroll(read_invitation(invitation), place)
        enrolment = read_enrolment(home.enrolment_file)
        admit(directory, enrolment, enrolment.keys.fingerprint)
        if not (place / FILE).exists():
            (place / FILE).write_text(asks.file.text(sitting.column), encoding="ascii")
        clients[name] = Client(
            name, place, enrolment.keys.signer, invitation, sitting.column, bool(asks.file.people), command
        )
    broker = EmbeddedBroker(directory.broker_files, directory.settings())
    await asyncio.to_thread(broker.start)
    try:
        authority = directory.authority.read_text(encoding="ascii")
        async with connected("coordinator", [directory.settings().url], directory.key(), authority) as connection:
            session = Session(directory, clients, NatsCoordinator(connection, sitting.study.identity))
            try:
                await session.open()
                yield session
            finally:
                for client in clients.values():
                    client.end()
    finally:
        await asyncio.to_thread(broker.stop)
        shutil.rmtree(directory.broker_files.folder / "jetstream", ignore_errors=True)
