"""What the dashboard and the operations page share: which names mean this machine, a bound socket, server settings."""

import contextlib
import errno
import http
import ipaddress
import re
import socket
import time
from collections.abc import Collection
from functools import partial
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


WHOLE_RESPONSE = "privatile.whole_response"
"""The extension of ASGI by which an application may give a response whole: `(status, headers, body) -> bool`.

The headers are bytes as they go over the wire, without status line, date and length. False: this response must be sent
message by message. uvicorn looks at every header of every response, a third of the time of a survey's gateway."""

LARGEST_HEADERS = 16_384
"""Bytes of a request's headers; browsers send some hundred."""

LARGEST_REQUEST = 1 << 20
"""Bytes of a request in all: of a header that does not end, too, or of what follows a body."""


def make_server(app: Any, extra: str, *, request_timeout: float = 5.0, fast: bool = False, **settings: Any) -> Any:
    """A uvicorn server without an access log, since an address may hold a token; `extra` is what installs it.

    A connection on which no request is complete `request_timeout` seconds after it was opened, or after the last
    response, is closed, at the latest after twice as many: uvicorn itself would keep half a request for ever. `fast`
    parses requests with httptools where it is installed, on an event loop of uvloop.
    """
    uvicorn = require("uvicorn", extra)
    base = _parser(fast)
    whole = base.__module__.endswith("httptools_impl")

    class Protocol(base):  # type: ignore[misc, valid-type]
        headers_seen = 0
        received = 0
        """Bytes since the last request began."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._expect_request(None)

        def data_received(self, data: bytes) -> None:
            self.received += len(data)
            if whole and self.received > LARGEST_REQUEST:
                self.transport.close()
                return
            super().data_received(data)

        def on_header(self, name: bytes, value: bytes) -> None:
            # httptools only: h11 has a limit of its own.
            self.headers_seen += len(name) + len(value)
            if self.headers_seen > LARGEST_HEADERS:
                self.transport.close()
                return
            super().on_header(name, value)

        def on_headers_complete(self) -> None:
            super().on_headers_complete()
            if self.cycle is not None and self.parser.should_upgrade():
                # httptools takes what follows for another protocol, or for a new request: nothing more is read here.
                self.cycle.keep_alive = False
            if whole and self.cycle is not None:
                self.cycle.scope["extensions"] = {WHOLE_RESPONSE: partial(_respond, self.cycle)}

        def on_message_begin(self) -> None:
            self.headers_seen = self.received = 0
            super().on_message_begin()

        def _expect_request(self, last: Any) -> None:
            self.loop.call_later(request_timeout, self._close_unless_after, last)

        def _close_unless_after(self, last: Any) -> None:
            """Close a connection that waits, with none or half of a request, since before the last look."""
            if self.transport.is_closing():
                return
            cycle = self.cycle
            if cycle is last and (cycle is None or cycle.response_complete):
                self.transport.close()
            else:
                self._expect_request(cycle)

    defaults = {"log_level": "warning", "access_log": False, "server_header": False, "timeout_graceful_shutdown": 1}
    loop = {"loop": "auto"} if fast else {}
    return uvicorn.Server(uvicorn.Config(app, **{**defaults, **loop, "http": Protocol, **settings}))


def _respond(cycle: Any, status: int, headers: bytes, body: bytes) -> bool:
    """Write a whole response in one piece, as uvicorn's `RequestResponseCycle.send` would in two (WHOLE_RESPONSE)."""
    if cycle.disconnected or cycle.response_started or not cycle.keep_alive or cycle.flow.write_paused:
        return False
    if cycle.scope["method"] == "HEAD":  # has a length, and no body
        return False
    cycle.response_started, cycle.waiting_for_100_continue = True, False
    own = b"".join([b"%b: %b\r\n" % pair for pair in cycle.default_headers])
    line = b"HTTP/1.1 %d %b\r\n" % (status, PHRASES[status])
    cycle.transport.write(b"%b%b%bcontent-length: %d\r\n\r\n%b" % (line, own, headers, len(body), body))
    cycle.response_complete = True
    cycle.message_event.set()
    cycle.on_response()
    return True


def _parser(fast: bool) -> Any:
    """The class that reads requests."""
    if fast:
        with contextlib.suppress(ImportError):
            from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

            return HttpToolsProtocol
    from uvicorn.protocols.http.h11_impl import H11Protocol

    return H11Protocol
