"""A server's protocol without a network: bytes go in, bytes come out."""

from __future__ import annotations

import asyncio
from typing import Any

from privatile.run.web import make_server


class Transport:
    """The other end of a connection."""

    def __init__(self) -> None:
        self.written = b""
        self.closing = self.paused = self.aborted = self.lost = False
        self.unsent = 0

    def write(self, data: bytes) -> None:
        if self.lost:
            raise RuntimeError("unable to perform operation; the handler is closed")  # as uvloop does
        if not self.closing:
            self.written += data

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class Connection:
    """One connection to a server of the application."""

    def __init__(self, app: Any, **settings: Any) -> None:
        defaults = {"interface": "asgi3", "lifespan": "off", "ws": "none", "date_header": False, "log_config": None}
        self.server = make_server(app, "survey", **{**defaults, **settings})
        self.server.config.load()
        made = self.server.config.http_protocol_class
        self.protocol = made(config=self.server.config, server_state=self.server.server_state, app_state={})
        self.transport = Transport()
        self.received = 0
        """Pieces that the server has read."""
        self.protocol.connection_made(self.transport)

    async def send(self, *pieces: bytes) -> None:
        """Send pieces, each read by itself, as long as the server reads."""
        for piece in pieces:
            while self.transport.paused and not self.transport.closing:
                await asyncio.sleep(0.001)
            if self.transport.closing:
                return
            self.protocol.data_received(piece)
            self.received += 1
            await asyncio.sleep(0)

    async def replies(self, number: int, patience: float = 2.0) -> bytes:
        """What came back, once so many responses have begun, or the connection is closed."""
        give_up = asyncio.get_running_loop().time() + patience
        while self.transport.written.count(b"HTTP/1.1 ") < number and not self.transport.closing:
            assert asyncio.get_running_loop().time() < give_up, self.transport.written
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.005)
        return self.transport.written

    def lose(self) -> None:
        """The visitor leaves."""
        self.transport.closing = self.transport.lost = True
        self.protocol.connection_lost(None)


def post(path: bytes, body: bytes, *headers: bytes, version: bytes = b"1.1", host: bytes = b"localhost") -> bytes:
    """A request as browsers and programs send it."""
    lines = [b"POST %b HTTP/%b" % (path, version), b"Host: " + host, b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body
