"""What the dashboard and the operations page share: which names mean this machine, a bound socket, server settings."""

import errno
import ipaddress
import socket
import time
from typing import Any

from privatile.errors import InputError, require


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("::1"), is_loopback("192.0.2.1")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(header: str) -> str:
    """The name in a Host header, without its port.

    >>> host_name("localhost:8080"), host_name("[::1]:8080"), host_name("example.org")
    ('localhost', '::1', 'example.org')
    """
    return header.partition("]")[0].removeprefix("[") if header.startswith("[") else header.partition(":")[0]


def listen(host: str, port: int, *, page: str, patience: float = 0.0) -> socket.socket:
    """A bound socket; port 0 takes any free one. `page` names the page in the error for a port that is taken.

    `patience` is how long, in seconds, to wait for the port: the server of a process that was just killed takes a
    moment to notice.
    """
    give_up = time.monotonic() + patience
    while True:
        bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((host, port))
            bound.listen(256)
        except OSError as error:
            bound.close()
            if error.errno == errno.EADDRINUSE and time.monotonic() < give_up:
                time.sleep(0.1)
                continue
            raise InputError(
                f"{page} cannot listen on {host}:{port} ({error.strerror}). Take another port; 0 takes any free one."
            ) from None
        return bound


def make_server(app: Any, extra: str, **settings: Any) -> Any:
    """A uvicorn server without an access log, since an address may hold a token; `extra` is what installs it."""
    uvicorn = require("uvicorn", extra)
    defaults = {"log_level": "warning", "access_log": False, "server_header": False, "timeout_graceful_shutdown": 1}
    return uvicorn.Server(uvicorn.Config(app, **{**defaults, **settings}))
