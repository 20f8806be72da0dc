"""What the fast server makes of requests that are written to confuse it, over a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from privatile.server.web import LARGEST_REQUEST, make_server

pytestmark = [pytest.mark.network]

SECOND = b"GET /second HTTP/1.1\r\nHost: a\r\n\r\n"


class Gateway:
    """A server that notes which requests it was given."""

    def __init__(self, bound: socket.socket) -> None:
        self.address = bound.getsockname()
        self.seen: list[str] = []

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        self.seen.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    def exchange(self, *parts: bytes) -> bytes:
        """Send the parts, with a moment between them, and read until the server closes."""
        found = b""
        with socket.create_connection(self.address, timeout=5) as wire, contextlib.suppress(OSError):
            for part in parts:
                wire.sendall(part)
                time.sleep(0.1)
            wire.shutdown(socket.SHUT_WR)
            while more := wire.recv(65536):
                found += more
        return found


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        running = Gateway(bound)
        server = make_server(running.app, "survey", fast=True, interface="asgi3", lifespan="off", ws="none")
        server.capture_signals = contextlib.nullcontext
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[bound])))
        thread.start()
        try:
            yield running
        finally:
            server.should_exit = True
            thread.join(10)


def request(*headers: bytes) -> bytes:
    lines = [b"POST /first HTTP/1.1", b"Host: a", b"Content-Length: %d" % len(SECOND), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def test_what_follows_a_request_to_upgrade_is_no_request(gateway: Gateway) -> None:
    gateway.exchange(request(b"Connection: Upgrade", b"Upgrade: h2c"), SECOND)
    assert gateway.seen == ["/first"]
    # The control: two requests on one connection are two, and a body is a body.
    gateway.exchange(request() + SECOND, SECOND)
    assert gateway.seen == ["/first", "/first", "/second"]


def test_a_request_without_end_is_not_kept(gateway: Gateway) -> None:
    with socket.create_connection(gateway.address, timeout=3) as wire, contextlib.suppress(ConnectionError):
        wire.sendall(b"GET /endless HTTP/1.1\r\nHost: a\r\nX: " + b"x" * (2 * LARGEST_REQUEST))
        assert wire.recv(1) == b""  # closed by the server, long before it loses patience
    assert gateway.exchange(SECOND).startswith(b"HTTP/1.1 200")
    assert gateway.seen == ["/second"]
