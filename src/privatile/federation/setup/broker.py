"""The embedded broker: one nats-server process, for organizers without a broker of their own."""

import contextlib
import itertools
import logging
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from privatile.errors import BrokerError
from privatile.federation.setup.broker_binary import does_not_run, find_binary
from privatile.federation.setup.broker_configuration import BrokerFiles, BrokerSettings

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
