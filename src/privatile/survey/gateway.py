"""The survey as a web application: two requests that carry a code, and pages that carry none.

A code travels in the body of a POST alone; any address with a query is refused, so that none can come to stand in one.
Nothing here writes a log line, sets a cookie or looks at a visitor's address.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Annotated, Any, Protocol

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from privatile.core.decoding import decode_json
from privatile.errors import StoreError
from privatile.server.web import DirectHandlers, Respond, WholeResponse, goes_by
from privatile.survey.facts import public_state, survey_facts
from privatile.survey.page import PageFile
from privatile.survey.protocol import CODE, LATEST_ROUND
from privatile.survey.questions import HandedQuestion, Refusal
from privatile.survey.service import HARMLESS, SurveyService, Taken

LARGEST_BODY = 512
"""Bytes of a request with a code: such a body has some 80."""

SLOWEST_BODY = 5.0
"""Seconds within which the rest of a body must come."""

RETRY = b"1"
"""Seconds after which a visitor who is told to wait comes again: most rounds drain in less."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Strict-Transport-Security": "max-age=31536000",
}
"""Of every response."""


class Pages(Protocol):
    """Pages that need the look of reports; they are made outside this package (`report.survey_pages`)."""

    def live(self, facts: dict[str, Any], language: str) -> str:
        """The public page in a language."""

    def organiser(self, facts: dict[str, Any]) -> str:
        """The organiser's page."""

    def style(self) -> bytes:
        """The style sheet of both."""


class QuestionBody(msgspec.Struct, forbid_unknown_fields=True):
    """A device asks for the question."""

    code: str
    visit: Annotated[str, msgspec.Meta(max_length=32)] = ""
    """By which a device that got no reply is known again."""


class AnswerBody(msgspec.Struct, forbid_unknown_fields=True):
    """A device sends its bit."""

    code: str
    round: int
    answer: bool


_question_body = msgspec.json.Decoder(QuestionBody)
_answer_body = msgspec.json.Decoder(AnswerBody)
_encode = msgspec.json.Encoder().encode

LONGEST_ACCEPTED = 200
"""Characters of an Accept-Language header that are looked at."""

REFUSALS = {"unknown": 404, "spent": 409, "closed": 410, "wait": 503}
"""The status of each `Refusal`."""

REASONS = {400: "malformed", 405: "method", 408: "slow", 413: "size", 421: "host", 503: "unavailable"}
"""What a request is told that is refused whatever its code."""


class Gateway:
    """The ASGI application. The two requests with a code are answered here, everything else by Starlette."""

    def __init__(
        self,
        service: SurveyService,
        *,
        host: str,
        names: frozenset[str] = frozenset(),
        files: Mapping[str, PageFile] | None = None,
        pages: Pages | None = None,
    ) -> None:
        self._service = service
        self._files = files or {}
        self._pages = pages
        self._live_drawn: dict[str, tuple[str, float]] = {}
        """The public page in each language, and until when it is shown as it is."""
        self._starlette = Starlette(routes=self._routes())
        self._known: Callable[[str], bool] = lru_cache(1000)(lambda header: goes_by(header, host, names))
        common = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
        self._page_headers = common
        self._json_headers = (*common, (b"content-type", b"application/json"), (b"cache-control", b"no-store"))
        self._failed = {
            status: self._whole(status, {"error": reason}, retry=status == 503) for status, reason in REASONS.items()
        }
        self._refusals = {
            reason: self._whole(status, {"error": reason}, retry=reason == "wait")
            for reason, status in REFUSALS.items()
        }
        self._answers = {Taken(*both): self._whole(200, _outcome(*both)) for both in product((True, False), repeat=2)}
        self._question: Callable[[HandedQuestion], WholeResponse] = lru_cache(16)(self._whole_question)
        self.direct: DirectHandlers = {b"/question": self._directly(False), b"/answer": self._directly(True)}
        """The two requests with a code, for a server that answers them without a task."""
        self.malformed = self._failed[400]
        """What such a server says to bytes that are no request."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._starlette(scope, receive, send)
            return
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if len(hosts) != 1 or not self._known(hosts[0].decode("latin-1")):
            await self._fail(send, 421)
        elif scope["query_string"]:
            await self._fail(send, 400)
        elif path in ("/question", "/answer"):
            if scope["method"] != "POST":
                await self._fail(send, 405)
            else:
                await self._with_code(path == "/answer", scope, receive, send)
        else:
            await self._page(scope, receive, send)

    async def _page(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", []), *self._page_headers]
                if all(name != b"cache-control" for name, _ in headers):
                    headers.append((b"cache-control", b"no-store"))
                message["headers"] = headers
            await send(message)

        await self._starlette(scope, receive, with_headers)

    # Requests with a code.

    async def _with_code(self, is_answer: bool, scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        body: bytes = message.get("body", b"")
        if message.get("more_body") or message["type"] != "http.request":
            complete = await _whole_body(body, receive)
            if complete is None:
                await self._fail(send, 408)
                return
            body = complete
        reply: asyncio.Future[WholeResponse] = asyncio.get_running_loop().create_future()
        self._respond(is_answer, body, lambda response: None if reply.done() else reply.set_result(response))
        await _send(send, await reply)

    def _directly(self, is_answer: bool) -> Callable[[bytes, bytes, Respond], None]:
        """The same for a server that gives the whole body, and takes the whole response (`DirectHandlers`)."""

        def handle(host: bytes, body: bytes, reply: Respond) -> None:
            if self._known(host.decode("latin-1")):
                self._respond(is_answer, body, reply)
            else:
                reply(self._failed[421])

        return handle

    def _respond(self, is_answer: bool, body: bytes, reply: Respond) -> None:
        """Answer a request with a code, now or once its change is on the disk."""
        try:
            if len(body) > LARGEST_BODY:
                reply(self._failed[413])
            elif is_answer:
                sent = decode_json(body, _answer_body)
                _require_code(sent.code)
                if not 1 <= sent.round < LATEST_ROUND:
                    raise msgspec.DecodeError("no round")
                self._service.answer(sent.code, sent.round, sent.answer, lambda taken: reply(self._taken(taken)))
            else:
                asked = decode_json(body, _question_body)
                _require_code(asked.code)
                self._service.question(asked.code, asked.visit, lambda handed: reply(self._handed_out(handed)))
        except (Refusal, StoreError) as error:
            reply(self._refused(error))
        except (msgspec.DecodeError, UnicodeDecodeError):
            reply(self._failed[400])

    def _handed_out(self, handed: HandedQuestion | Exception) -> WholeResponse:
        return self._refused(handed) if isinstance(handed, Exception) else self._question(handed)

    def _taken(self, taken: Taken | Exception) -> WholeResponse:
        return self._refused(taken) if isinstance(taken, Exception) else self._answers[taken]

    def _refused(self, error: Exception) -> WholeResponse:
        return self._failed[503] if isinstance(error, StoreError) else self._refusals[str(error)]

    def _whole(self, status: int, content: dict[str, Any], *, retry: bool = False) -> WholeResponse:
        again = ((b"retry-after", RETRY),) if retry else ()
        return WholeResponse(status, (*self._json_headers, *again), _encode(content))

    def _whole_question(self, handed: HandedQuestion) -> WholeResponse:
        content = {
            "survey": self._service.study.survey,
            "round": handed.round,
            "query": repr(handed.query),  # the shortest text that is read back as the same double
            "handed_before": handed.handed_before,
        }
        return self._whole(200, content)

    async def _fail(self, send: Send, status: int) -> None:
        await _send(send, self._failed[status])

    # Pages.

    def _routes(self) -> list[Route]:
        routes = {
            "/survey.json": self._survey,
            "/live.json": self._live,
            "/live": self._live_page,
            "/live.{language}": self._live_page,
            "/organiser.json": self._organiser,
            "/organiser.html": self._organiser_page,
            "/health": self._health,
            "/static/theme.css": self._style,
            "/{path:path}": self._file,
        }
        return [Route(path, endpoint, methods=["GET"]) for path, endpoint in routes.items()]

    async def _survey(self, request: Request) -> Response:
        return _json(survey_facts(self._service.study, self._service.state))

    async def _live(self, request: Request) -> Response:
        return _json(self._service.live())

    async def _live_page(self, request: Request) -> Response:
        offered = self._service.study.languages
        language = request.path_params.get("language") or preferred(request.headers.get("accept-language", ""), offered)
        if self._pages is None or language not in offered:
            return _json({"error": "unknown"}, 404)
        now = time.monotonic()
        drawn, until = self._live_drawn.get(language, ("", 0.0))
        if now >= until:
            # Drawn at most once a second, however many look.
            drawn = self._pages.live(self._service.live(), language)
            self._live_drawn[language] = drawn, now + 1.0
        return _html(drawn)

    async def _organiser(self, request: Request) -> Response:
        facts = await self._organiser_facts(request)
        return _json({"error": "token"}, 401) if facts is None else _json(facts)

    async def _organiser_page(self, request: Request) -> Response:
        facts = await self._organiser_facts(request)
        if facts is None:
            return _json({"error": "token"}, 401)
        return _json({"error": "unknown"}, 404) if self._pages is None else _html(self._pages.organiser(facts))

    async def _organiser_facts(self, request: Request) -> dict[str, Any] | None:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind != "Bearer" or not self._service.folder.opens_with(token):
            return None
        return await self._service.organiser()

    async def _health(self, request: Request) -> Response:
        # Everybody may ask: the texts, which name files, are for the organiser.
        alarms = [alarm.kind for alarm in self._service.alarms()]
        failing = any(kind not in HARMLESS for kind in alarms)
        return _json({"state": public_state(self._service.state), "alarms": alarms}, 503 if failing else 200)

    async def _style(self, request: Request) -> Response:
        if self._pages is None:
            return _json({"error": "unknown"}, 404)
        return Response(self._pages.style(), media_type="text/css", headers={"Cache-Control": "no-cache"})

    async def _file(self, request: Request) -> Response:
        file = self._files.get(request.path_params["path"])
        if file is None:
            return _json({"error": "unknown"}, 404)
        headers = {"Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        packed = file.gzipped and "gzip" in request.headers.get("accept-encoding", "")
        if packed:
            headers["Content-Encoding"] = "gzip"
        return Response(file.gzipped if packed else file.body, media_type=file.media_type, headers=headers)


def preferred(accepted: str, offered: Sequence[str]) -> str:
    """The language that a browser's header Accept-Language likes best; the first one offered where it likes none.

    >>> preferred("fr-CH, fr;q=0.9, en;q=0.8", ["en", "de", "fr"]), preferred("it;q=0.5, de;q=0.4", ["en", "de"])
    ('fr', 'de')
    >>> preferred("", ["de", "en"]), preferred("en;q=x, *", ["de", "en"])
    ('de', 'de')
    """
    liked: dict[str, float] = {}
    for part in accepted[:LONGEST_ACCEPTED].lower().split(","):
        name, _, quality = part.partition(";q=")
        with contextlib.suppress(ValueError):
            liked.setdefault(name.strip()[:2], float(quality or 1.0))
    return max(offered, key=lambda name: liked.get(name[:2].lower(), 0.0))


def _json(content: dict[str, Any], status: int = 200) -> Response:
    return JSONResponse(content, status, headers={"Cache-Control": "no-store"})


def _html(page: str) -> Response:
    return Response(page, media_type="text/html", headers={"Cache-Control": "no-store"})


def _require_code(text: str) -> None:
    """Refuse cheaply what no code can be."""
    if not CODE.fullmatch(text):
        raise Refusal("unknown")


def _outcome(counted: bool, repeat: bool) -> dict[str, Any]:
    """What a device is told of its answer."""
    late = {} if counted else {"reason": "late"}
    return {"counted": counted, **late, **({"repeat": True} if repeat else {})}


async def _send(send: Send, response: WholeResponse) -> None:
    headers = [*response.headers, (b"content-length", str(len(response.body)).encode())]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


async def _whole_body(body: bytes, receive: Receive) -> bytes | None:
    """A body that comes in several pieces, up to the first byte too many; none where its end does not come."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SLOWEST_BODY):
            while len(body) <= LARGEST_BODY:
                message = await receive()
                if message["type"] != "http.request":
                    return None
                body += message.get("body", b"")
                if not message.get("more_body"):
                    return body
            return body
    return None
