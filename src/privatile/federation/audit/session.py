"""The auditor as coordinator of one client process: a study of its own, planted data, questions and counts."""

import asyncio
import contextlib
import os
import secrets
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from privatile.core.messages import Question
from privatile.errors import PrivatileError, ProtocolError
from privatile.federation.coordinator.port import CoordinatorPort
from privatile.federation.setup.broker import EmbeddedBroker, free_port
from privatile.federation.setup.broker_configuration import BrokerSettings
from privatile.federation.setup.directory import Directory, admit, initialize, new_identity
from privatile.federation.setup.files import replace_file
from privatile.federation.setup.invitation import read_enrolment, read_invitation
from privatile.federation.site.folder import Site, enroll
from privatile.federation.site.limits import limits_toml
from privatile.federation.study.study import ClientAgreement, FederationStudy
from privatile.federation.wire.connection import connected
from privatile.federation.wire.messages import LARGEST_ANSWER, AnswerMessage, AskMessage, Hello, Welcome, read_message

LOW, HIGH = 31415.9265, 73190.4242
"""The two planted values; half of the records each. Their digits occur nowhere else."""

TRACES = ("31415.9", "31415,9", "3.14159265e", "73190.4", "73190,4", "7.31904", "314159265", "731904242")
"""The planted values as a file or a message could hold them."""

CLIENT = "audited"


@dataclass(eq=False, repr=False)
class Session:
    """One client process under test. `open_session` makes one."""

    command: Sequence[str]
    directory: Directory
    site: Path
    port: CoordinatorPort
    signer: str
    received: list[bytes] = field(default_factory=list)
    """Everything that the client has sent."""
    reports: int = 0
    """Records that have answered."""
    _round: int = 0
    _last: Question | None = None
    _answer: asyncio.Future[int] | None = None
    _process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self._study, self._key = self.directory.study(), self.directory.key()

    async def open(self) -> None:
        """Listen, then start the client."""
        await self.port.open(self._on_answer, self._on_hello)
        self._start()

    def _start(self) -> None:
        arguments = [str(self.directory.invitation_file(CLIENT)), "--site", str(self.site), "--yes", "--verbose"]
        arguments += ["--source", str(self.site / "data.csv"), "--value", "planted"]
        # The client gets only what a process needs to start.
        names = ("PATH", "PYTHONPATH", "HOME", "LANG", "TMPDIR")
        environment = {name: os.environ[name] for name in names if name in os.environ}
        with (self.site / "output.log").open("ab") as file:
            self._process = subprocess.Popen(
                [*self.command, *arguments], stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment
            )

    def end(self) -> None:
        """Kill the client."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    async def restart(self) -> None:
        """Kill the client (kill -9) and start it again."""
        await asyncio.to_thread(self.end)
        self._start()

    async def count(self, query: float, length: int, patience: float = 60.0) -> int | None:
        """Ask a new round; None where no answer comes."""
        self._round += 1
        self._last = Question(self._study.run, self._round, 0.5, query, length)
        count = await self._ask(self._last, patience)
        self.reports += length if count is not None else 0
        return count

    async def counts(self, query: float, length: int, rounds: int) -> list[int]:
        """Ask several rounds; empty where one of them gets no answer."""
        found = []
        for _ in range(rounds):
            count = await self.count(query, length)
            if count is None:
                return []
            found.append(count)
        return found

    async def repeat(self, query: float | None = None, patience: float = 60.0) -> int | None:
        """Ask the last round again, unchanged or with another threshold."""
        if self._last is None:
            return None
        return await self._ask(self._last if query is None else replace(self._last, query=query), patience)

    async def _ask(self, question: Question, patience: float) -> int | None:
        loop = asyncio.get_running_loop()
        self._answer = loop.create_future()
        until = loop.time() + patience
        try:
            await self.port.ask(AskMessage.of(self._study.digest, {CLIENT: (question,)}).pack(self._key))
            # A client that has ended will not answer: no need to wait for it.
            while loop.time() < until and self._process is not None and self._process.poll() is None:
                await asyncio.wait([self._answer], timeout=0.25)
                if self._answer.done():
                    return self._answer.result()
            return None
        finally:
            self._answer = None

    def _on_answer(self, client: str, payload: bytes) -> None:
        self.received.append(payload)
        with contextlib.suppress(PrivatileError):
            message = read_message(payload, self.signer, LARGEST_ANSWER)
            waiting, asked = self._answer, self._last
            if isinstance(message, AnswerMessage) and waiting is not None and asked is not None and not waiting.done():
                waiting.set_result(message.answers[0].check(asked).ones)

    async def _on_hello(self, port: CoordinatorPort, client: str, payload: bytes) -> None:
        self.received.append(payload)
        with contextlib.suppress(ProtocolError):
            hello = read_message(payload, self.signer, LARGEST_ANSWER)
            if isinstance(hello, Hello):
                welcome = Welcome(
                    self._study.digest, CLIENT, hello.instance, None, 0, 0, "", secrets.token_hex(16), hello.nonce
                )
                await port.welcome(CLIENT, welcome.pack(self._key))


@contextlib.asynccontextmanager
async def open_session(
    folder: Path, command: Sequence[str], epsilon: float, records: int, site: Path | None = None
) -> AsyncIterator[Session]:
    """A study of its own in `folder`, at a new site or at an existing one with its data and its ledger."""
    study = FederationStudy(
        new_identity(),
        "A privacy audit",
        "the auditor",
        "planted",
        (0.5,),
        (0.0, 100_000.0),
        2000,
        clients={CLIENT: ClientAgreement(epsilon, 1.0, records)},
        allow_weak=True,
    )
    directory = initialize(folder / "auditor", study, BrokerSettings(port=free_port()))
    home = Site(site or folder / "site", CLIENT)
    home.path.mkdir(parents=True, exist_ok=True, mode=0o700)
    replace_file(home.limits_file, limits_toml(epsilon))
    enroll(read_invitation(directory.invitation_file(CLIENT)), home.path)
    enrolment = read_enrolment(home.enrolment_file)
    admit(directory, enrolment, enrolment.keys.fingerprint)
    if site is None:
        planted = "planted\n" + f"{LOW}\n{HIGH}\n" * (records // 2) + f"{LOW}\n" * (records % 2)
        (home.path / "data.csv").write_text(planted, encoding="ascii")
    broker = EmbeddedBroker(directory.broker_files, directory.settings())
    await asyncio.to_thread(broker.start)
    try:
        authority = directory.authority.read_text(encoding="ascii")
        async with connected("coordinator", [directory.settings().url], directory.key(), authority) as connection:
            port = CoordinatorPort(connection, study.identity)
            session = Session(command, directory, home.path, port, enrolment.keys.signer)
            await session.open()
            try:
                yield session
            finally:
                session.end()
    finally:
        await asyncio.to_thread(broker.stop)
        shutil.rmtree(directory.broker_files.folder / "jetstream", ignore_errors=True)
