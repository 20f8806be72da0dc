"""Plain requests that an application answers itself, without uvicorn's task, scope and messages; all others by uvicorn.

A request is plain if it is a POST of HTTP/1.1 whose body came with the end of its head, keeps its connection, waits for
no other request on it, and has no header twice and none of those that change how a body is read. Whatever is not plain
goes the usual way, with the same bytes, so that nothing here needs a rule of its own for slow or divided bodies,
pipelines, HTTP/1.0, HEAD, chunks or upgrades. httptools reads all requests alike.

The limits on what a request may be are here, since httptools has none. Needs httptools.
"""

from collections.abc import Sized
from typing import Any, ClassVar, NamedTuple

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from privatile.server.web import (
    LARGEST_HEADERS,
    LARGEST_REQUEST,
    MALFORMED,
    MOST_PIPELINED,
    DirectHandlers,
    WholeResponse,
)

NOT_PLAIN = frozenset({b"transfer-encoding", b"expect", b"upgrade"})
"""Headers with which a request goes the usual way."""


class _EndedError(Exception):
    """Stops the parser: nothing more is read from this connection."""


class _Flow(FlowControl):
    """Reads on only once no request of the connection waits for another."""

    def __init__(self, transport: Any, waiting: Sized) -> None:
        super().__init__(transport)
        self._waiting = waiting

    def resume_reading(self) -> None:
        if not self._waiting:
            super().resume_reading()


class _Ready(NamedTuple):
    """A plain request that is complete."""

    handler: Any
    host: bytes
    body: bytes
    request: "_Request"


class _Request:
    """A plain request under way. It stands in uvicorn's `cycle`, with the attributes that uvicorn reads of one."""

    __slots__ = ("disconnected", "keep_alive", "protocol", "response_complete")

    def __init__(self, protocol: "DirectProtocol") -> None:
        self.protocol = protocol
        self.response_complete = self.disconnected = False
        self.keep_alive = True

    def respond(self, response: WholeResponse) -> None:
        """Send the response, unless the visitor has left or there was one before."""
        if not (self.response_complete or self.disconnected):
            self.response_complete = True
            self.protocol.respond(self, response)


class DirectProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits, and with a short way for plain requests."""

    direct: ClassVar[DirectHandlers] = {}
    malformed: ClassVar[WholeResponse] = MALFORMED
    """What is said of bytes that are no request."""
    cycle: Any
    """The last request that came: uvicorn's, or one that is answered directly."""
    headers_seen = received = served = 0
    """Bytes of headers, and of all, since the last request began; requests that were answered directly."""
    _handler: Any = None
    """Of a request whose head is plain, and whose body has not ended."""
    _host = _body = b""
    _ready: _Ready | None = None
    _under_way: Any = None
    """The request that is being answered, or the last one that uvicorn answered."""
    _in_body = _ended = False
    """Whether the headers are complete; whether nothing more is read."""
    _own: tuple[Any, bytes] = (None, b"")
    """The server's headers (the date, renewed every second), and the same as bytes; shared by all connections."""

    def connection_made(self, transport: Any) -> None:
        """Somebody has come."""
        super().connection_made(transport)
        self.flow = _Flow(transport, self.pipeline)

    def data_received(self, data: bytes) -> None:
        """Read what came; then answer a plain request that is complete. One without all of its body is uvicorn's."""
        if self._ended:
            return
        self.received += len(data)
        if self.received > LARGEST_REQUEST:
            self._end()
            self.transport.abort()
            return
        super().data_received(data)
        if (ready := self._ready) is not None:
            self._ready = None
            try:
                ready.handler(ready.host, ready.body, ready.request.respond)
            except Exception:
                self.logger.exception("Exception in a request that is answered directly")
                self.transport.close()
        elif self._handler is not None and not self.transport.is_closing():
            body = self._body
            self._as_usual()
            if body:
                super().on_body(body)

    def on_message_begin(self) -> None:
        """A request begins; what uvicorn does then waits until it is known to be uvicorn's."""
        self.headers_seen = self.received = 0
        self._handler, self._body, self._in_body = None, b"", False
        self.url, self.headers, self.expect_100_continue = b"", [], False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header, unless all of them are too long; what follows a body in chunks is none of the request's."""
        self.headers_seen += len(name) + len(value)
        if self.headers_seen > LARGEST_HEADERS:
            self._refuse()
        if not self._in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Decide which way the request goes."""
        self._in_body = True
        handler = self.direct.get(self.url)
        if handler is not None and self._is_plain():
            self._handler = handler
        else:
            self._as_usual()

    def _is_plain(self) -> bool:
        cycle, parser, given = self.cycle, self.parser, dict(self.headers)
        if (
            (cycle is not None and not cycle.response_complete)
            or self.pipeline
            or self.flow.write_paused
            or len(given) != len(self.headers)
            or not NOT_PLAIN.isdisjoint(given)
            or b"host" not in given
            or parser.get_method() != b"POST"
            or parser.get_http_version() != "1.1"
            or parser.should_upgrade()
            or not parser.should_keep_alive()
        ):
            return False
        self._host = given[b"host"]
        return True

    def _as_usual(self) -> None:
        """Let uvicorn have the request whose headers are complete.

        No whole address: its host would have to be looked at besides the header's.
        """
        if len(self.pipeline) >= MOST_PIPELINED:
            self._refuse()
        if not self.url.startswith(b"/"):
            self.send_400_response("")
            raise _EndedError
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        self._handler = None
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)
        super().on_headers_complete()
        if not self.pipeline:
            self._under_way = self.cycle
        if self.cycle is not None and self.parser.should_upgrade():
            # httptools takes what follows for another protocol, or for a new request: nothing more is read here.
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """A part of a body."""
        if self._handler is None:
            super().on_body(body)
        else:
            self._body += body

    def on_message_complete(self) -> None:
        """A request has ended. A plain one is answered once the parser has returned."""
        if self._handler is None:
            super().on_message_complete()
            return
        self._under_way = request = _Request(self)
        self.cycle = request
        self._ready = _Ready(self._handler, self._host, self._body, request)
        self._handler = None

    def respond(self, request: _Request, response: WholeResponse) -> None:
        """Write a response in one piece, and go on with what came after its request."""
        self._under_way = None
        if self.cycle is request:  # otherwise another has come, and waits
            self.cycle = None
        self.served += 1
        if self.transport.is_closing():
            return
        if request.keep_alive:
            self.transport.write(b"".join((response.line, self._own_headers(), response.rest)))
        else:
            self._write_last(response)
            self.transport.close()
        if self.pipeline:
            self.on_response_complete()

    def _write_last(self, response: WholeResponse) -> None:
        self.transport.write(b"".join((response.line, self._own_headers(), b"connection: close\r\n", response.rest)))

    def _own_headers(self) -> bytes:
        headers = self.server_state.default_headers
        if self._own[0] is not headers:
            type(self)._own = headers, b"".join(b"%b: %b\r\n" % pair for pair in headers)
        return self._own[1]

    def on_response_complete(self) -> None:
        """The next one that waits is answered."""
        if self.pipeline:
            self._under_way = self.pipeline[-1][0]
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request; in silence while one is under way, whose response this would seem to be."""
        if self._ended:
            return
        if self._under_way is None or self._under_way.response_complete:
            self._write_last(self.malformed)
        self._end()
        self.transport.close()

    def _refuse(self) -> None:
        """End the connection at once, in the middle of what came."""
        self._end()
        self.transport.abort()
        raise _EndedError

    def _end(self) -> None:
        """Read nothing more. What is under way is finished, and answered to nobody; what waits is forgotten."""
        self._ended = True
        self._handler = self._ready = None
        under_way, self._under_way = self._under_way, None
        self.pipeline.clear()
        if isinstance(under_way, _Request):
            under_way.disconnected = True
            if self.cycle is under_way:
                self.cycle = None
        elif under_way is not None and not under_way.response_complete:
            under_way.disconnected = True
            under_way.message_event.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The visitor has left."""
        self._end()
        super().connection_lost(exc)
