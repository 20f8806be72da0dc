"""A dashboard in a process of its own, so that viewers never slow the run down."""

import asyncio
import contextlib
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privatile.errors import InputError, require
from privatile.run import web as web
from privatile.run.web import address, is_loopback

TOKEN_VARIABLE = "PRIVATILE_DASHBOARD_TOKEN"
"""Hands the token to the dashboard's own process: a command line can be read by everyone on a machine."""


GOODBYE_SECONDS = 2.0
"""How long the last state may take to be read and sent."""


@dataclass(frozen=True)
class DashboardAddress:
    """Where a dashboard listens. Beyond this machine it needs a token and a certificate."""

    host: str = "127.0.0.1"
    port: int = 0
    certificate: Path | None = None
    key: Path | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise InputError(f"the dashboard's port must lie in 0 … 65535; got {self.port}. 0 takes any free one.")
        if (self.certificate is None) != (self.key is None):
            raise InputError("a certificate and its key go together: give both, or neither.")
        if not is_loopback(self.host) and self.certificate is None:
            raise InputError(
                f"the dashboard would be open to other machines at {self.host}: that needs TLS. Give a certificate "
                "and its key, or leave the host out and use an SSH tunnel."
            )

    @property
    def needs_token(self) -> bool:
        """Everywhere but on this machine."""
        return not is_loopback(self.host)

    def url(self, bound: socket.socket, token: str | None) -> str:
        """What to open in a browser, with the token where there is one."""
        scheme = "http" if self.certificate is None else "https"
        return f"{scheme}://{address(self.host, bound.getsockname()[1])}/" + (f"?token={token}" if token else "")


def listen(address: DashboardAddress, patience: float = 0.0) -> socket.socket:
    """A bound socket for the dashboard's own process; `patience` is how long, in seconds, to wait for a taken port."""
    bound = web.listen(address.host, address.port, page="the dashboard", patience=patience)
    bound.set_inheritable(True)
    return bound


def run_server(
    paths: Sequence[Path],
    bound: socket.socket,
    address: DashboardAddress,
    token: str | None,
    *,
    with_parent: bool = False,
) -> None:
    """Serve until the process is told to end. No access log: addresses may hold a token.

    `with_parent`: the process ends when its standard input closes, and tells the viewers so.
    """
    require("starlette", "dashboard")
    from privatile.report.dashboard.app import make_app

    app = make_app(*paths, token=token, host=address.host)
    server = web.make_server(
        app,
        "dashboard",
        ssl_certfile=None if address.certificate is None else str(address.certificate),
        ssl_keyfile=None if address.key is None else str(address.key),
        lifespan="on",
    )
    if with_parent:
        end_with_parent(lambda: _say_goodbye(app))
    server.run(sockets=[bound])


def _say_goodbye(app: Any) -> None:
    """Tell those who look, from another thread; nobody is waited for where nobody looks."""
    watched = [feed for feed in getattr(app.state, "feeds", ()) if feed.viewers]
    for feed in watched:
        asyncio.run_coroutine_threadsafe(feed.say_goodbye(), app.state.loop).result(GOODBYE_SECONDS)
    if watched:
        time.sleep(0.2)  # until it is sent


@dataclass(frozen=True)
class DashboardProcess:
    """A dashboard that runs in another process."""

    url: str
    """With the token where there is one: for the person who started it, not for a log."""
    process: subprocess.Popen[bytes]


def show_runs(paths: Sequence[Path], address: DashboardAddress, say: Callable[[str], None]) -> None:
    """Serve the dashboard of these runs in this process, until it is told to end; `say` is given its address."""
    bound = listen(address, patience=5.0)
    token = secrets.token_urlsafe(24) if address.needs_token else None
    say(address.url(bound, token))
    run_server(paths, bound, address, token)


@contextlib.contextmanager
def run_dashboard(path: Path, address: DashboardAddress | None = None) -> Iterator[DashboardProcess]:
    """Run a dashboard of `path` in a process of its own; it ends with this block, or with this process."""
    require("starlette", "dashboard")
    require("uvicorn", "dashboard")
    address = address or DashboardAddress()
    bound = listen(address, patience=5.0)
    token = secrets.token_urlsafe(24) if address.needs_token else None
    environment = {**os.environ, **({TOKEN_VARIABLE: token} if token else {})}
    command = [sys.executable, "-m", "privatile.report.dashboard", str(path)]
    command += ["--fd", str(bound.fileno()), "--host", address.host]
    if address.certificate is not None and address.key is not None:
        command += ["--certificate", str(address.certificate), "--key", str(address.key)]
    # Its standard input is a pipe from here: however this process ends, the pipe closes and the dashboard ends.
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=(bound.fileno(),), env=environment
    )
    url = address.url(bound, token)
    bound.close()
    try:
        yield DashboardProcess(url, process)
    finally:
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def end_with_parent(last: Callable[[], None] = lambda: None) -> None:
    """End this process when its standard input closes; `last` is called before."""

    def wait() -> None:
        with contextlib.suppress(OSError):
            while sys.stdin.buffer.read(4096):
                pass
        with contextlib.suppress(Exception):
            last()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
