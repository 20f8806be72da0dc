"""What the dashboard and the operations page share: which names mean this machine, a bound socket, server settings."""

import errno
import ipaddress
import re
import socket
import time
from collections.abc import Collection
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

    >>> host_name("localhost:8080"), host_name("[::1]:8080"), host_name("example.org"), host_name("[::1].example")
    ('localhost', '::1', 'example.org', '[')
    """
    bracketed = re.fullmatch(r"\[([^\]]*)\](:\d*)?", header)
    return bracketed[1] if bracketed else header.partition(":")[0]


def goes_by(header: str, host: str, names: Collection[str] = ()) -> bool:
    """Whether a page that listens on `host` goes by the name in a request's Host header.

    No website may read a page by pointing its own name here. So only loopback names are answered on a loopback
    address; elsewhere also the address that was chosen, this machine's own name, and plain addresses. Everywhere also
    `names`, which the operator has allowed.

    >>> goes_by("localhost:80", "127.0.0.1"), goes_by("evil.example", "127.0.0.1"), goes_by("192.0.2.1", "127.0.0.1")
    (True, False, False)
    >>> goes_by("192.0.2.1:80", "0.0.0.0"), goes_by("ops.example:80", "ops.example"), goes_by("evil.example", "0.0.0.0")
    (True, True, False)
    >>> goes_by("Ops.example:80", "0.0.0.0", ["ops.example"]), goes_by("ops.example.evil", "0.0.0.0", ["ops.example"])
    (True, False)
    """
    name = host_name(header).lower()
    if is_loopback(name) or name in {allowed.lower() for allowed in names}:
        return True
    if is_loopback(host):
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in (host.lower(), socket.gethostname().lower())
    return True


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


def make_server(app: Any, extra: str, *, request_timeout: float = 5.0, **settings: Any) -> Any:
    """A uvicorn server without an access log, since an address may hold a token; `extra` is what installs it.

    A connection on which no request is complete `request_timeout` seconds after it was opened, or after the last
    response, is closed: uvicorn itself would keep half a request for ever.
    """
    uvicorn = require("uvicorn", extra)
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Protocol(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._expect_request()

        def on_response_complete(self) -> None:
            self._expect_request()
            super().on_response_complete()

        def _expect_request(self) -> None:
            self.loop.call_later(request_timeout, self._close_unless_after, self.cycle)

        def _close_unless_after(self, last: Any) -> None:
            if self.cycle is last:
                self.transport.close()

    defaults = {"log_level": "warning", "access_log": False, "server_header": False, "timeout_graceful_shutdown": 1}
    return uvicorn.Server(uvicorn.Config(app, **{**defaults, "http": Protocol, **settings}))
