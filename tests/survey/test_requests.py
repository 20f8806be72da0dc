"""What the server makes of requests that are written to confuse it, over a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from privatile.run.web import make_server
from privatile.survey import serving

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
        body = bytes(1 << 24) if scope["path"] == "/long" else b"ok"
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

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


@contextlib.contextmanager
def serving_at(patience: float) -> Iterator[Gateway]:
    settings: dict[str, Any] = {"interface": "asgi3", "lifespan": "off", "ws": "none"}
    with socket.create_server(("127.0.0.1", 0)) as bound:
        running = Gateway(bound)
        server = make_server(running.app, "survey", request_timeout=patience, **settings)
        server.capture_signals = contextlib.nullcontext

        def serve() -> None:
            with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
                runner.run(server.serve(sockets=[bound]))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield running
        finally:
            server.should_exit = True
            thread.join(10)
            assert not thread.is_alive()


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with serving_at(5.0) as running:
        yield running


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
        wire.sendall(b"GET /endless HTTP/1.1\r\nHost: a\r\nX: " + b"x" * (1 << 21))
        assert wire.recv(12) in (b"", b"HTTP/1.1 400")  # closed by the server, long before it loses patience
    assert gateway.exchange(SECOND).startswith(b"HTTP/1.1 200")
    assert gateway.seen == ["/second"]


def test_requests_without_end_are_cut_and_others_are_served(gateway: Gateway) -> None:
    with socket.create_connection(gateway.address, timeout=3) as wire:
        with contextlib.suppress(ConnectionError):
            for _ in range(20):
                wire.sendall(b"GET /x HTTP/1.1\r\n\r\n" * 3000)
        with contextlib.suppress(ConnectionError):
            while wire.recv(65536):
                pass
    assert gateway.exchange(SECOND).startswith(b"HTTP/1.1 200")
    assert len(gateway.seen) < 100


def test_who_never_reads_is_cut_and_who_reads_slowly_is_not() -> None:
    with serving_at(0.3) as gateway, contextlib.ExitStack() as stack:
        never, slow = (stack.enter_context(socket.create_connection(gateway.address, timeout=3)) for _ in range(2))
        for wire in (never, slow):
            wire.sendall(b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n" * 2)
        file = slow.makefile("rb")
        for _ in range(14):  # at least five times its patience; 28 MB of 32
            assert len(file.read(1 << 21)) == 1 << 21
            time.sleep(0.12)
        kept = 0
        with contextlib.suppress(ConnectionError):
            while more := never.recv(1 << 21):
                kept += len(more)
        assert kept < 1 << 24, "what the system kept; the rest was never sent"


def test_who_begins_no_tls_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "TLS_TIMES", {"ssl_handshake_timeout": 0.2, "ssl_shutdown_timeout": 0.2})
    certificate, key = serving.trial_certificate(tmp_path / "trial")

    async def nothing(**settings: Any) -> None:
        pass

    async def visit(server: Any, address: tuple[str, int], ready: asyncio.Event) -> bytes | None:
        await ready.wait()
        reader, writer = await asyncio.open_connection(*address)
        try:
            return await asyncio.wait_for(reader.read(), 3)
        except TimeoutError:
            return None
        finally:
            writer.close()
            server.should_exit = True

    async def scene(server: Any, bound: socket.socket) -> None:
        service: Any = SimpleNamespace(start=nothing, stop=nothing, superseded=None)
        ready = asyncio.Event()
        run = serving._run(service, server, bound, False, ready.set)
        assert (await asyncio.gather(run, visit(server, bound.getsockname(), ready)))[1] == b"", "closed by the server"

    settings: dict[str, Any] = {"ssl_certfile": str(certificate), "ssl_keyfile": str(key), "ws": "none"}
    with socket.create_server(("127.0.0.1", 0)) as bound:
        app = Gateway(bound).app
        server = make_server(app, "survey", interface="asgi3", lifespan="off", **settings)
        with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
            runner.run(scene(server, bound))
