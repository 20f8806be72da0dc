"""The survey as a web application: two requests that carry a code, and pages that carry none.

A code travels in the body of a POST alone; any address with a query is refused, so that none can come to stand in one.
Nothing here writes a log line, sets a cookie or looks at a visitor's address.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Annotated, Any, Protocol, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from privatile.core.decoding import decode_json
from privatile.errors import StoreError
from privatile.run.web import is_allowed_host
from privatile.survey.intake import Refusal
from privatile.survey.page import PageFile
from privatile.survey.service import HARMLESS, SurveyService, public_state, survey_facts
from privatile.survey.store import SPENT
from privatile.survey.study import LATEST_ROUND

MAX_BODY = 512
"""Bytes of a request with a code: such a body has some 80."""

MAX_BODY_SECONDS = 5.0
"""Seconds within which the rest of a body must come."""

RETRY = "1"
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
    round: Annotated[int, msgspec.Meta(ge=1, lt=LATEST_ROUND)]
    answer: bool


T = TypeVar("T")


_question_body = msgspec.json.Decoder(QuestionBody)
_answer_body = msgspec.json.Decoder(AnswerBody)

MAX_ACCEPTED = 200
"""Characters of an Accept-Language header that are looked at."""

REFUSALS = {
    "malformed": 400,
    "token": 401,
    "unknown": 404,
    "method": 405,
    "slow": 408,
    "spent": 409,
    "closed": 410,
    "size": 413,
    "host": 421,
    "unavailable": 503,
    "wait": 503,
}
"""The status of each refusal."""

LAST = ("malformed", "slow", "size")
"""Refusals after which the connection is closed: what else comes on it may belong to the request."""


class Gateway:
    """The ASGI application."""

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
        self._starlette = Starlette(
            routes=self._routes(), exception_handlers=dict.fromkeys((Refusal, StoreError, HTTPException), _refused)
        )
        self._starlette.router.redirect_slashes = False
        self._known: Callable[[str], bool] = lru_cache(1000)(lambda header: is_allowed_host(header, host, names))
        self._headers = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self._headers]
                if all(name != b"cache-control" for name, _ in message["headers"]):
                    message["headers"].append((b"cache-control", b"no-store"))
            await send(message)

        names = [name for name, _ in scope["headers"]]
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if scope["query_string"] or (b"transfer-encoding" in names and b"content-length" in names):
            # A proxy that goes by the length would take the end of the body for the next visitor's request.
            await _refusal("malformed")(scope, receive, with_headers)
        elif len(hosts) != 1 or not self._known(hosts[0].decode("latin-1")):
            await _refusal("host")(scope, receive, with_headers)
        else:
            await self._starlette(scope, receive, with_headers)

    def _routes(self) -> list[Route]:
        pages: dict[str, Callable[..., Any]] = {
            "/survey.json": self._survey,
            "/live.json": self._live,
            "/organiser.json": self._organiser,
            "/health": self._health,
            **{f"/{path}": partial(_file, file) for path, file in self._files.items()},
        }
        if self._pages is not None:
            style = PageFile("text/css", self._pages.style(), b"")
            drawn = partial(self._live_page, self._pages.live)
            pages |= {
                "/live": drawn,
                "/live.{language}": drawn,
                "/organiser.html": partial(self._organiser_page, self._pages.organiser),
                "/static/theme.css": partial(_file, style),
            }
        return [
            Route("/question", self._question, methods=["POST"]),
            Route("/answer", self._answer, methods=["POST"]),
            *(Route(path, endpoint, methods=["GET"]) for path, endpoint in pages.items()),
        ]

    # Requests with a code.

    async def _question(self, request: Request) -> Response:
        asked = await _sent(request, _question_body)
        handed = await self._service.question(asked.code, asked.visit)
        return JSONResponse(
            {
                "survey": self._service.study.survey,
                "round": handed.round,
                "query": repr(handed.query),  # the shortest text that is read back as the same double
                "handed_before": handed.handed_before,
            }
        )

    async def _answer(self, request: Request) -> Response:
        sent = await _sent(request, _answer_body)
        outcome = await self._service.answer(sent.code, sent.round, sent.answer)
        late = {} if outcome.accepted else {"reason": "late"}
        repeat = {"repeat": True} if outcome.before in SPENT else {}
        return JSONResponse({"counted": outcome.accepted, **late, **repeat})

    # Pages.

    async def _survey(self, request: Request) -> Response:
        return JSONResponse(survey_facts(self._service.study, self._service.state))

    async def _live(self, request: Request) -> Response:
        return JSONResponse(self._service.live())

    async def _live_page(self, draw: Callable[[dict[str, Any], str], str], request: Request) -> Response:
        offered = self._service.study.languages
        language = request.path_params.get("language") or preferred(request.headers.get("accept-language", ""), offered)
        if language not in offered:
            raise Refusal("unknown")
        now = time.monotonic()
        drawn, until = self._live_drawn.get(language, ("", 0.0))
        if now >= until:
            # Drawn at most once a second, however many look.
            drawn = draw(self._service.live(), language)
            self._live_drawn[language] = drawn, now + 1.0
        return HTMLResponse(drawn)

    async def _organiser(self, request: Request) -> Response:
        return JSONResponse(await self._organiser_facts(request))

    async def _organiser_page(self, draw: Callable[[dict[str, Any]], str], request: Request) -> Response:
        return HTMLResponse(draw(await self._organiser_facts(request)))

    async def _organiser_facts(self, request: Request) -> dict[str, Any]:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind != "Bearer" or not self._service.folder.opens_with(token):
            raise Refusal("token")
        return await self._service.organiser()

    async def _health(self, request: Request) -> Response:
        # Everybody may ask: the texts, which name files, are for the organiser.
        alarms = [alarm.kind for alarm in self._service.alarms()]
        failing = any(kind not in HARMLESS for kind in alarms)
        return JSONResponse({"state": public_state(self._service.state), "alarms": alarms}, 503 if failing else 200)


async def _file(file: PageFile, request: Request) -> Response:
    headers = {"Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    packed = bool(file.gzipped) and "gzip" in request.headers.get("accept-encoding", "")
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
    for part in accepted[:MAX_ACCEPTED].lower().split(","):
        name, _, quality = part.partition(";q=")
        with contextlib.suppress(ValueError):
            liked.setdefault(name.strip()[:2], float(quality or 1.0))
    return max(offered, key=lambda name: liked.get(name[:2].lower(), 0.0))


def _refusal(reason: str) -> Response:
    status = REFUSALS[reason]
    again = {"Retry-After": RETRY} if status == 503 else {}
    last = {"Connection": "close"} if reason in LAST else {}
    return JSONResponse({"error": reason}, status, headers={**again, **last})


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        response = _refusal("method" if error.status_code == 405 else "unknown")
        response.headers.update(error.headers or {})
        return response
    return _refusal("unavailable" if isinstance(error, StoreError) else str(error))


async def _sent(request: Request, decoder: "msgspec.json.Decoder[T]") -> T:
    """What a request with a code says; its body is read up to the first byte too many."""
    body = b""
    try:
        async with asyncio.timeout(MAX_BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > MAX_BODY:
                    raise Refusal("size")
        return decode_json(body, decoder)
    except (TimeoutError, ClientDisconnect):
        raise Refusal("slow") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Refusal("malformed") from None
