"""Plain requests that an application answers itself, without uvicorn's task, scope and messages; all others by uvicorn.

A request is plain if it is a POST of HTTP/1.1 whose body came with the end of its head, keeps its connection, waits for
no other request on it, and has no header twice and none of those that change how a body is read. Whatever is not plain
goes the usual way, with the same bytes, so that nothing here needs a rule of its own for slow or divided bodies,
pipelines, HTTP/1.0, HEAD, chunks or upgrades. httptools reads all requests alike.

The limits on what a request may be are here, since httptools has none. Needs httptools.
"""

from typing import Any, ClassVar, NamedTuple

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from privatile.server.web import LARGEST_HEADERS, LARGEST_REQUEST, DirectHandlers, WholeResponse

NOT_PLAIN = frozenset({b"transfer-encoding", b"expect", b"upgrade"})
"""Headers with which a request goes the usual way."""


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
    cycle: Any
    """The last request that came: uvicorn's, or one that is answered directly."""
    headers_seen = received = served = 0
    """Bytes of headers, and of all, since the last request began; requests that were answered directly."""
    _handler: Any = None
    """Of a request whose head is plain, and whose body has not ended."""
    _host = _body = b""
    _ready: _Ready | None = None
    _under_way: _Request | None = None
    _own: tuple[Any, bytes] = (None, b"")
    """The server's headers (the date, renewed every second), and the same as bytes; shared by all connections."""

    def data_received(self, data: bytes) -> None:
        """Read what came; then answer a plain request that is complete. One without all of its body is uvicorn's."""
        self.received += len(data)
        if self.received > LARGEST_REQUEST:
            self.transport.close()
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
        self._handler, self._body = None, b""
        self.url, self.headers, self.expect_100_continue = b"", [], False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header, unless all of them are too long."""
        self.headers_seen += len(name) + len(value)
        if self.headers_seen > LARGEST_HEADERS:
            self.transport.close()
            return
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Decide which way the request goes."""
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
            or self.headers_seen > LARGEST_HEADERS
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
        """Let uvicorn have the request whose headers are complete."""
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        self._handler = None
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)
        super().on_headers_complete()
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
            self.transport.write(
                b"".join((response.line, self._own_headers(), b"connection: close\r\n", response.rest))
            )
            self.transport.close()
        if self.pipeline:
            self.on_response_complete()

    def _own_headers(self) -> bytes:
        headers = self.server_state.default_headers
        if self._own[0] is not headers:
            type(self)._own = headers, b"".join(b"%b: %b\r\n" % pair for pair in headers)
        return self._own[1]

    def connection_lost(self, exc: Exception | None) -> None:
        """The visitor has left: what is under way is finished, and answered to nobody."""
        self._handler = self._ready = None
        if self._under_way is not None:
            self._under_way.disconnected = True
            if self.cycle is self._under_way:
                self.cycle = None
            self._under_way = None
        super().connection_lost(exc)
