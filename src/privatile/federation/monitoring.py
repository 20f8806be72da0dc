"""What operators see of a service: log lines, progress, Prometheus metrics, a health page.

What operators see of a service: log lines for people or programs, Prometheus metrics, a health page.

Nothing here ever sees a record: facts are names, counts, rounds and reasons.

How far a run is, as lines of a service's log: soon after its start, and then ever more rarely.
"""

import asyncio
import contextlib
import json
import logging
import math
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    disable_created_metrics,
    generate_latest,
)

from privatile.core.text import disarmed_json, duration, printable
from privatile.errors import require
from privatile.run.web import is_allowed_host, listen, make_server

require("prometheus_client", "federation")


disable_created_metrics()  # type: ignore[no-untyped-call]  # the library does not annotate it


class _Lines(logging.Formatter):
    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        details: dict[str, Any] = getattr(record, "facts", {})
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        if self._as_json:
            said = {"at": when, "level": record.levelname.lower(), "event": record.getMessage(), **details}
            return disarmed_json(json.dumps(said, ensure_ascii=False, default=str))
        tail = "".join(f"  {key}={value}" for key, value in details.items())
        return printable(f"{when[11:19]} {record.levelname.lower():7} {record.getMessage()}{tail}")


def start_logging(*, as_json: bool, verbose: bool = False) -> None:
    """Log to stderr, for people or as one JSON object per line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines(as_json=as_json))
    root = logging.getLogger("privatile")
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if verbose else logging.INFO)
    root.propagate = False
    # The broker library reports lost connections by itself, with tracebacks; ours are enough.
    logging.getLogger("nats").setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.ERROR)


def facts(**values: object) -> dict[str, dict[str, object]]:
    """What a log line says beside its event: `log.info("connected", extra=facts(client="north"))`."""
    return {"facts": {name: value for name, value in values.items() if value is not None}}


class Metric(NamedTuple):
    """A metric's name, without prefix and suffix, what it says, and the label by which it is kept (empty: by none)."""

    kind: type[Counter] | type[Gauge]
    name: str
    meaning: str
    label: str = ""
    unknown: float = 0.0
    """Its value before it was first set."""


class Metrics:
    """The counters and gauges of one service, in a registry of their own; every one is there from the start.

    >>> known = [Metric(Counter, "counted", "Answers.", "client"), Metric(Gauge, "round", "Round.")]
    >>> metrics = Metrics("privatile", known, {"client": ["north", "south"]})
    >>> metrics.add("counted", client="north"); metrics.set("round", 7)
    >>> print(metrics.text().decode(), end="")
    # HELP privatile_counted_total Answers.
    # TYPE privatile_counted_total counter
    privatile_counted_total{client="north"} 1.0
    privatile_counted_total{client="south"} 0.0
    # HELP privatile_round Round.
    # TYPE privatile_round gauge
    privatile_round 7.0
    >>> metrics.value("counted", client="north"), metrics.value("counted", client="south")
    (1.0, 0.0)
    """

    def __init__(
        self,
        prefix: str,
        metrics: Iterable[Metric],
        labels: Mapping[str, Iterable[str]] | None = None,
        measure: Callable[[], None] = lambda: None,
    ) -> None:
        """`labels` has the values of each label; `measure` sets what is only worth computing when somebody asks."""
        self._registry = CollectorRegistry()
        self._measure = measure
        self._metrics: dict[str, Any] = {}
        self._samples: dict[str, str] = {}
        for kind, name, meaning, label, unknown in metrics:
            made = kind(f"{prefix}_{name}", meaning, (label,) if label else (), registry=self._registry)
            self._metrics[name] = made
            self._samples[name] = f"{prefix}_{name}" + ("_total" if kind is Counter else "")
            for each in [made.labels(value) for value in (labels or {}).get(label, ())] if label else [made]:
                if isinstance(each, Gauge):
                    each.set(unknown)

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Count up."""
        (self._metrics[name].labels(**labels) if labels else self._metrics[name]).inc(amount)

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        (self._metrics[name].labels(**labels) if labels else self._metrics[name]).set(value)

    def value(self, name: str, **labels: str) -> float:
        """The value of a counter or gauge, 0 before its first use; slow, since it looks through the whole registry."""
        return self._registry.get_sample_value(self._samples[name], labels) or 0.0

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        self._measure()
        return generate_latest(self._registry)


RUN_METRICS = (
    Metric(Counter, "reconnects", "Attempts to connect again."),
    Metric(Counter, "rounds", "Rounds closed since the start of this process."),
    Metric(Gauge, "round_seconds", "How long the last round took."),
    Metric(Gauge, "paused", "Whether the run is paused."),
    Metric(Gauge, "alarms", "What is wrong now, by kind; 0 where nothing is.", "kind"),
    Metric(Gauge, "deadline_seconds", "How long the study lets a round wait for its answers."),
    Metric(Gauge, "rounds_planned", "The largest number of rounds that the run may have; 0 in an open study."),
    Metric(Gauge, "quarantined", "Clients in quarantine."),
    Metric(Gauge, "heard", "When a client was last heard, in seconds since 1970; 0 for never.", "client"),
    Metric(Counter, "silent", "Answers that were missing when a round was closed."),
    Metric(Counter, "counted", "Answers that were counted.", "client"),
)
"""Of every process that computes a run."""

COORDINATOR_METRICS = (
    *RUN_METRICS,
    Metric(Gauge, "connected", "Whether the broker is connected."),
    Metric(Gauge, "round", "The last round that is complete."),
    Metric(
        Gauge,
        "estimate",
        "The estimate so far, in units of the data; NaN while the answers do not locate it.",
        "level",
        math.nan,
    ),
    Metric(Gauge, "interval_low", "The lower end of the interval so far.", "level", math.nan),
    Metric(Gauge, "interval_high", "The upper end of the interval so far.", "level", math.nan),
    Metric(Gauge, "width", "The width of the interval so far, in units of the data.", "level", math.nan),
    Metric(Counter, "restored_questions", "Times that the broker kept another message than the open question."),
    Metric(Counter, "rejected_hellos", "Hellos that were rejected.", "client"),
    Metric(Counter, "duplicate", "Answers that had been counted already.", "client"),
    Metric(Counter, "late", "Answers to a round that was closed.", "client"),
    Metric(Counter, "ahead", "Answers to a later round than the open one: was the run's file restored?", "client"),
    Metric(Counter, "ignored", "Answers of a client in quarantine.", "client"),
    Metric(Counter, "unsigned", "Messages without a valid signature of the client they name: dropped.", "client"),
    Metric(Counter, "foreign", "Signed messages that are no answers of this run: dropped.", "client"),
    Metric(Counter, "rejected", "Signed answers that were malformed or not allowed.", "client"),
    Metric(Counter, "forked", "Answers that prove a restored or copied ledger.", "client"),
)


CLIENT_METRICS = (
    Metric(Gauge, "connected", "Whether the broker is connected."),
    Metric(Counter, "reconnects", "Attempts to connect again."),
    Metric(Gauge, "welcomed", "Whether the coordinator has replied to a hello."),
    Metric(Gauge, "round", "The last round that was answered."),
    Metric(Counter, "answers", "Answers sent."),
    Metric(Counter, "refused", "Messages that this client refused."),
    Metric(Counter, "equivocations", "Questions that contradict an earlier one."),
)


@contextlib.asynccontextmanager
async def operations_page(
    host: str,
    port: int,
    metrics: Metrics,
    health: Callable[[], tuple[bool, dict[str, Any]]],
    request_timeout: float = 5.0,
    names: Collection[str] = (),
) -> AsyncIterator[int]:
    """Serve /metrics and /health over plain HTTP on one address; yields the port.

    Only requests to a name of this page are answered (`is_allowed_host`, and `names`), so that no website can read it
    by pointing its own name here.
    """
    require("starlette", "federation")
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, PlainTextResponse, Response
    from starlette.routing import Route

    async def page(request: Request) -> Response:
        if not is_allowed_host(request.headers.get("host", ""), host, names):
            return PlainTextResponse("this page does not go by that name; --ops-name NAME allows one\n", 421)
        if request.url.path == "/metrics":
            return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)
        if request.url.path == "/health":
            good, facts = health()
            return JSONResponse(facts, 200 if good else 503)
        return PlainTextResponse("there are /metrics and /health\n", 404)

    bound = listen(host, port, page="the operations page")
    # Its own log lines would not be in the format of ours, and a malformed request is nothing to log.
    server = make_server(
        Starlette(routes=[Route("/{path:path}", page, methods=["GET"])]),
        "federation",
        request_timeout=request_timeout,
        limit_concurrency=50,
        log_config=None,
        log_level="critical",
        lifespan="off",
        ws="none",
    )
    server.capture_signals = contextlib.nullcontext  # signals stop the service, which then stops the page
    task = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        yield bound.getsockname()[1]
    finally:
        server.should_exit = True
        await task


FIRST, LONGEST = 10.0, 3600.0
"""Seconds until the first line; each pause is twice the one before, up to the second number."""


class Progress:
    """Tells rounds, pace since the last line and what may be left; nothing where no round has closed since.

    >>> from unittest.mock import Mock
    >>> log = Mock()
    >>> progress = Progress(log, planned=400, done=0, now=0.0)
    >>> for now in range(41):
    ...     progress.tell(done=5 * now, now=float(now))
    >>> [tuple(call.kwargs["extra"]["facts"].values()) for call in log.info.call_args_list]
    [('50 of 400', 5.0, '70 s'), ('150 of 400', 5.0, '50 s')]
    """

    def __init__(self, log: logging.Logger, planned: int, done: int, now: float) -> None:
        """`planned` is 0 where nobody knows how many rounds there will be."""
        self._log, self._planned = log, planned
        self._done, self._since, self._pause = done, now, FIRST

    def tell(self, done: int, now: float) -> None:
        """So many rounds are done at this time of a clock that never goes back."""
        lasted = now - self._since
        if lasted < self._pause or done <= self._done:
            return
        pace = (done - self._done) / lasted
        rounds = f"{done} of {self._planned}" if self._planned else str(done)
        left = duration((self._planned - done) / pace) if self._planned > done else None
        self._log.info("progress", extra=facts(rounds=rounds, per_second=float(f"{pace:.3g}"), left=left))
        self._done, self._since, self._pause = done, now, min(2 * self._pause, LONGEST)
