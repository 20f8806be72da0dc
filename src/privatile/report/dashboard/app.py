"""The dashboard as a web application: a page per run, its static files, a stream of states; nothing can be changed.

Every state is computed once and sent to all viewers as the same bytes. A viewer that comes, or comes back, first gets
the last state, which holds the whole history, with the time of day at which it is sent.
"""

import asyncio
import contextlib
import hmac
import json
import shlex
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from privatile.report.dashboard.live import LiveRun
from privatile.report.pages import render, static
from privatile.run.state import OVER, STATES, Badge
from privatile.run.web import is_allowed_host

INTERVAL = 1.0
"""Seconds between two reads of the run's file."""

MAX_INTERVAL = 15.0
"""Seconds: even a very long run is read this often."""

HEARTBEAT = 10.0
"""Seconds after which a silent stream says that it is still there."""

MAX_VIEWERS = 100
"""Streams of states at the same time; each holds a connection for as long as its page is open."""

GOODBYE = "the command that showed this page has ended"

COOKIE = "privatile_dashboard"

FILES = {
    **{name: ("privatile.report", name) for name in ("theme.css", "chart.js")},
    **{name: ("privatile.report", f"uplot/{name}") for name in ("uPlot.min.css", "uPlot.iife.min.js")},
    **{name: ("privatile.report.dashboard", name) for name in ("dashboard.css", "dashboard.js")},
}
"""What may be asked for under /static: the package and the path in its static folder."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Of every response."""


class Feed:
    """Reads the run's file every now and then, and sends each new state to all viewers."""

    def __init__(self, run: LiveRun, interval: float = INTERVAL) -> None:
        self.run = run
        self._interval = interval
        # In one thread of its own: reading must not hold up the viewers, and SQLite keeps to the thread it began in.
        self._reader = ThreadPoolExecutor(1)
        self._state = run.state
        self._news = asyncio.Condition()
        self._number = 0
        self._message = b""
        self.viewers = 0

    async def follow(self) -> None:
        """Read the file for as long as the server runs."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                if await loop.run_in_executor(self._reader, self.run.refresh):
                    await self._announce(self.run.state)
            except Exception as error:
                # The page must outlive a file that cannot be read for a moment; the reason names no record.
                self.run.note_trouble(error)
                await self._announce(self.run.state)
            # The state of a long run costs more: reading never takes more than a fifth of one core.
            await asyncio.sleep(max(self._interval, min(4.0 * (loop.time() - began), MAX_INTERVAL)))

    async def say_goodbye(self) -> None:
        """The command that runs this run and this page ends: tell the viewers, with the last state of the file."""
        with contextlib.suppress(Exception):
            await asyncio.get_running_loop().run_in_executor(self._reader, self.run.refresh)
        again = f"privatile dashboard {shlex.quote(str(self.run.path))}"
        state = {**self.run.state, "now": time.time(), "over": GOODBYE, "again": again}
        if state.get("status") not in OVER:
            state["badge"] = Badge("stopped", "stopped").facts()
        await self._announce(state)

    @property
    def state(self) -> dict[str, Any]:
        """The last state, for somebody who comes now: a page sets its clock by `now`."""
        return {**self._state, "now": time.time()}

    async def _announce(self, state: dict[str, Any]) -> None:
        message = encode(state)
        async with self._news:
            self._state, self._message = state, message
            self._number += 1
            self._news.notify_all()

    async def stream(self) -> AsyncIterator[bytes]:
        """The last state at once, then every new one."""
        seen = self._number
        yield b"retry: 1000\n\n" + encode(self.state)
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT), self._news:
                    while self._number == seen:
                        await self._news.wait()
            except TimeoutError:
                yield b": still here\n\n"
                continue
            seen = self._number
            yield self._message


class EventStream(StreamingResponse):
    """A viewer's stream, counted for as long as it is open."""

    def __init__(self, feed: Feed) -> None:
        super().__init__(feed.stream(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        self._feed = feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send states until the viewer leaves."""
        self._feed.viewers += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._feed.viewers -= 1


def encode(state: object) -> bytes:
    """One server-sent event."""
    return b"event: state\ndata: " + json.dumps(state, allow_nan=False, separators=(",", ":")).encode() + b"\n\n"


def dashboard_page() -> str:
    """The page: the same bytes for every run."""
    return render("dashboard.html.j2", "privatile.report.dashboard", title="privatile")


def make_app(*paths: Path, token: str | None = None, host: str = "127.0.0.1", interval: float = INTERVAL) -> Starlette:
    """The application for one run's file, or for several. It goes by the names of `host`, where it listens.

    One run is shown at /, with /events, /state.json and /health. Of several, / lists them, run K (from 1) is shown at
    /runs/K/ with the same names below it, and /health is about all of them.
    """
    runs = [LiveRun(path) for path in paths]
    several = len(runs) > 1

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.feeds = [Feed(run, interval) for run in runs]
        app.state.loop = asyncio.get_running_loop()
        tasks = [asyncio.create_task(feed.follow()) for feed in app.state.feeds]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def overview(request: Request) -> Response:
        states = sorted(enumerate((run.state for run in runs), 1), key=lambda one: urgency(one[1]))
        page = render("runs.html.j2", "privatile.report.dashboard", title="privatile", runs=states, paths=paths)
        return Response(page, media_type="text/html")

    async def health(request: Request) -> Response:
        facts = [health_of(run) for run in runs]
        good = all(run.healthy for run in runs)
        return JSONResponse({"runs": facts} if several else facts[0], 200 if good else 503)

    routes = [Route("/health", health, methods=["GET"])]
    if several:
        routes.append(Route("/", overview, methods=["GET"]))
        routes.append(Route("/static/{name}", static_file, methods=["GET"]))
    for index in range(len(runs)):
        routes += run_routes(f"/runs/{index + 1}" if several else "", index)
    app = Starlette(routes=routes, lifespan=lifespan)
    app.add_middleware(AccessCheck, token=token, host=host)
    return app


def urgency(state: dict[str, Any]) -> int:
    """Where a run stands in the list of several: what is wrong comes first, what is over comes last.

    >>> states = [{"badge": {"kind": kind}} for kind in ("finished", "running", "silent", "quarantined")]
    >>> [state["badge"]["kind"] for state in sorted(states, key=urgency)]
    ['quarantined', 'silent', 'running', 'finished']
    """
    order, kind = list(STATES), state["badge"]["kind"]
    return order.index(kind if kind in order else "no broker")  # an extension has alarms of its own


def health_of(run: LiveRun) -> dict[str, Any]:
    """A run's state in a few facts, for programs that watch it."""
    state = run.state
    known = {name: state.get(name) for name in ("run", "organization", "status", "done", "planned")}
    more = {name: state.get(name) for name in ("waits_for", "trouble")}
    return {**known, **more, "badge": state["badge"]["text"], "alarms": state["alarms"]}


async def static_file(request: Request) -> Response:
    """One of the files that pages need."""
    name = request.path_params["name"]
    if name not in FILES:
        return PlainTextResponse("there is no such file\n", 404)
    package, path = FILES[name]
    return Response(static(path, package), media_type="text/css" if name.endswith(".css") else "text/javascript")


def run_routes(prefix: str, index: int) -> list[Route]:
    """The page of one run, and what it asks for, below `prefix`."""
    page = dashboard_page().encode()

    async def shown(request: Request) -> Response:
        return Response(page, media_type="text/html")

    async def events(request: Request) -> Response:
        feed = request.app.state.feeds[index]
        if sum(one.viewers for one in request.app.state.feeds) >= MAX_VIEWERS:
            reason = f"this dashboard serves {MAX_VIEWERS} viewers at once: close another page of it, then reload\n"
            return PlainTextResponse(reason, 503, headers={"Retry-After": "10"})
        return EventStream(feed)

    async def state(request: Request) -> Response:
        return JSONResponse(request.app.state.feeds[index].state)

    pages = {"/": shown, "/static/{name}": static_file, "/events": events, "/state.json": state}
    return [Route(f"{prefix}{path}", page, methods=["GET"]) for path, page in pages.items()]


class AccessCheck:
    """Answers requests that name this host (no other site may point here) and know the token, where there is one."""

    def __init__(self, app: ASGIApp, token: str | None, host: str) -> None:
        self._app = app
        self._token = token
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, with the headers of every response."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        if scope["type"] != "http":
            await self._app(scope, receive, send)
        else:
            await self._answer(Request(scope))(scope, receive, send_with_headers)

    def _answer(self, request: Request) -> ASGIApp:
        if not is_allowed_host(request.headers.get("host", ""), self._host):
            return PlainTextResponse("this dashboard does not go by that name\n", 421)
        token = next(iter(request.query_params.getlist("token")), "")  # the first one, not the last
        if self._matches(token):
            # From the address line into a cookie that no script can read: the address bar and the history lose it.
            response = RedirectResponse("/", 303)
            response.set_cookie(
                COOKIE, self._token or "", httponly=True, samesite="strict", secure=request.url.scheme == "https"
            )
            return response
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._token is None or self._matches(request.cookies.get(COOKIE, bearer)):
            return self._app
        return PlainTextResponse("a token is needed: open the address that was printed when the run began\n", 401)

    def _matches(self, given: str) -> bool:
        return self._token is not None and hmac.compare_digest(given.encode(), self._token.encode())
