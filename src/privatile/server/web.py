"""What the dashboard and the operations page share: which names mean this machine, a bound socket, server settings."""

import contextlib
import errno
import http
import ipaddress
import re
import socket
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from privatile.errors import InputError, require

PHRASES = {one.value: one.phrase.encode() for one in http.HTTPStatus}


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


def address(host: str, port: int) -> str:
    """A host and a port, as addresses of pages and of brokers have them.

    >>> address("localhost", 80), address("::1", 80)
    ('localhost:80', '[::1]:80')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_name(header: str) -> str:
    """The name in a Host header, without its port, in small letters; empty where the header is none.

    >>> host_name("Localhost:8080"), host_name("[::1]:8080"), host_name("example.org"), host_name("[::1].example")
    ('localhost', '::1', 'example.org', '')
    >>> host_name("localhost:evil.example"), host_name("localhost:99999"), host_name("localhost:")
    ('', '', 'localhost')
    """
    found = re.fullmatch(r"(?:\[([^\[\]]+)\]|([^:\[\]]+))(?::([0-9]{0,5}))?", header)
    if found is None or int(found[3] or 0) >= 1 << 16:
        return ""
    return (found[1] or found[2]).lower()


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
    name = host_name(header)
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


LARGEST_HEADERS = 16_384
"""Bytes of a request's headers; browsers send some hundred."""

LARGEST_REQUEST = 1 << 20
"""Bytes of a request in all: of a header that does not end, too, or of what follows a body."""

MOST_PIPELINED = 16
"""Requests of one connection that wait for another one on it; browsers send none before they have the last response."""


@dataclass(frozen=True, slots=True)
class WholeResponse:
    """A response, for ASGI and as the bytes that go over the wire, which are put together once for all visitors."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    """Without date and length, which are the server's."""
    body: bytes
    line: bytes = field(init=False)
    """The status line."""
    rest: bytes = field(init=False)
    """What follows the status line and the server's own headers."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "line", b"HTTP/1.1 %d %b\r\n" % (self.status, PHRASES[self.status]))
        headers = b"".join(b"%b: %b\r\n" % pair for pair in self.headers)
        object.__setattr__(self, "rest", b"%bcontent-length: %d\r\n\r\n%b" % (headers, len(self.body), self.body))


Respond = Callable[[WholeResponse], None]
"""Sends the response to one request; called once, at once or later."""

DirectHandlers = Mapping[bytes, Callable[[bytes, bytes, Respond], None]]
"""What an application answers itself to a POST (`direct_requests`), by path: `handler(host, body, respond)`."""


MALFORMED = WholeResponse(
    400, ((b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")), b"This is no request."
)
"""What is said of bytes that are no request, by an application that has no `malformed` of its own."""


def make_server(app: Any, extra: str, *, request_timeout: float = 5.0, fast: bool = False, **settings: Any) -> Any:
    """A uvicorn server without an access log, since an address may hold a token; `extra` is what installs it.

    A connection on which no request is complete `request_timeout` seconds after it was opened, or after the last
    response, is closed, at the latest after twice as many: uvicorn itself would keep half a request for ever. So is one
    that takes nothing of what it is sent for as long. `fast` parses requests with httptools where it is installed, on
    an event loop of uvloop; there an application's `direct` (`DirectHandlers`) answers plain requests without a task,
    and its `malformed` is the response to malformed ones. These are not logged: anybody can send them, as many as they
    like. Errors of the application are.
    """
    uvicorn = require("uvicorn", extra)
    base = _parser(fast)

    class Protocol(base):  # type: ignore[misc, valid-type]
        direct = getattr(app, "direct", {})
        malformed = getattr(app, "malformed", MALFORMED)
        served = unsent = 0
        """Requests that were answered directly; bytes that waited to be sent at the last look, 0 if some were since."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._expect_request()

        def connection_lost(self, exc: Exception | None) -> None:
            self._patience.cancel()  # the timer would keep this connection in memory
            super().connection_lost(exc)

        def shutdown(self) -> None:
            super().shutdown()
            # Before uvicorn cancels its task: that would wait for ever for somebody who reads nothing.
            self.loop.call_later(0.9 * self.config.timeout_graceful_shutdown, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            self.unsent = 0

        def _expect_request(self) -> None:
            self.unsent = self.transport.get_write_buffer_size()
            self._patience = self.loop.call_later(request_timeout, self._look, self.cycle, self.served)

        def _look(self, last: Any, served: int) -> None:
            """Close a connection that waits, with none or half of a request, since before the last look.

            One that has read nothing since then is cut: closing it would wait until all is read.
            """
            if 0 < self.unsent <= self.transport.get_write_buffer_size():
                self.transport.abort()
                return
            cycle = self.cycle
            if cycle is last and served == self.served and (cycle is None or cycle.response_complete):
                self.transport.close()
            self._expect_request()

    defaults = {"log_level": "error", "access_log": False, "server_header": False, "timeout_graceful_shutdown": 1}
    loop = {"loop": "auto"} if fast else {}
    return uvicorn.Server(uvicorn.Config(app, **{**defaults, **loop, "http": Protocol, **settings}))


def _parser(fast: bool) -> Any:
    """The class that reads requests."""
    if fast:
        with contextlib.suppress(ImportError):
            from privatile.server.direct_requests import DirectProtocol

            return DirectProtocol
    from uvicorn.protocols.http.h11_impl import H11Protocol

    return H11Protocol
