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


def is_allowed_host(header: str, host: str, names: Collection[str] = ()) -> bool:
    """Whether a page that listens on `host` goes by the name in a request's Host header.

    No website may read a page by pointing its own name here. So only loopback names are answered on a loopback
    address; elsewhere also the address that was chosen, this machine's own name, and plain addresses. Everywhere also
    `names`, which the operator has allowed.

    >>> [is_allowed_host(name, "127.0.0.1") for name in ("localhost:80", "evil.example", "192.0.2.1")]
    [True, False, False]
    >>> [is_allowed_host(name, "0.0.0.0") for name in ("192.0.2.1:80", "evil.example")]
    [True, False]
    >>> [is_allowed_host(name, "0.0.0.0", ["ops.example"]) for name in ("Ops.example:80", "ops.example.evil")]
    [True, False]
    >>> is_allowed_host("ops.example:80", "ops.example")
    True
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


def make_server(app: Any, extra: str, *, request_timeout: float = 5.0, **settings: Any) -> Any:
    """A uvicorn server without an access log, since an address may hold a token; `extra` is what installs it.

    Requests are read by h11, which bounds their heads. A connection without a complete request `request_timeout`
    seconds after it was opened, or after the last response, is closed, at the latest after twice as many: uvicorn
    itself would keep half a request for ever. The same holds for one that takes nothing of what it is sent. Malformed
    requests are not logged, since anybody can send them; errors of the application are.
    """
    uvicorn = require("uvicorn", extra)
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Protocol(H11Protocol):
        unsent = 0
        """Bytes that waited to be sent at the last look, 0 if some were since."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._expect_request()

        def connection_lost(self, exc: Exception | None) -> None:
            self._patience.cancel()  # the timer would keep this connection in memory
            super().connection_lost(exc)

        def shutdown(self) -> None:
            super().shutdown()
            # Before uvicorn cancels its task: that would wait for ever for a visitor who reads nothing.
            self.loop.call_later(0.9 * (self.config.timeout_graceful_shutdown or 0), self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            self.unsent = 0

        def _expect_request(self) -> None:
            self.unsent = self.transport.get_write_buffer_size()
            self._patience = self.loop.call_later(request_timeout, self._look, self.cycle)

        def _look(self, last: Any) -> None:
            """Close a connection that waits, with none or half of a request, since before the last look.

            One that has read nothing since then is cut: closing it would wait until all is read.
            """
            if 0 < self.unsent <= self.transport.get_write_buffer_size():
                self.transport.abort()
                return
            if self.cycle is last and (last is None or last.response_complete):
                self.transport.close()
            self._expect_request()

    defaults = {"log_level": "error", "access_log": False, "server_header": False, "timeout_graceful_shutdown": 1}
    return uvicorn.Server(uvicorn.Config(app, **{**defaults, "http": Protocol, **settings}))
