"""Operations: log lines for people or programs, metrics in Prometheus' text form, a health page.

Nothing here ever sees a record: facts are names, counts, rounds and reasons.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Any


class _Lines(logging.Formatter):
    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        facts: dict[str, Any] = getattr(record, "facts", {})
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        if self._as_json:
            return json.dumps(
                {"at": when, "level": record.levelname.lower(), "event": record.getMessage(), **facts},
                ensure_ascii=False,
                default=str,
            )
        tail = "".join(f"  {key}={value}" for key, value in facts.items())
        return f"{when[11:19]} {record.levelname.lower():7} {record.getMessage()}{tail}"


def start_logging(*, as_json: bool, verbose: bool = False) -> None:
    """Log lines on stderr, for people or as one JSON object a line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines(as_json=as_json))
    root = logging.getLogger("privatile")
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if verbose else logging.INFO)
    root.propagate = False
    # The broker library reports lost connections by itself, with tracebacks; ours are enough.
    logging.getLogger("nats").setLevel(logging.CRITICAL)
    logging.getLogger("asyncio").setLevel(logging.ERROR)


class Metrics:
    """Counters and gauges by name and label.

    >>> metrics = Metrics("privatile")
    >>> metrics.add("answers", client="north"); metrics.set("round", 7)
    >>> print(metrics.text(), end="")
    # TYPE privatile_answers_total counter
    privatile_answers_total{client="north"} 1
    # TYPE privatile_round gauge
    privatile_round 7
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._counters: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self._gauges: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Count up."""
        key = (name, tuple(sorted(labels.items())))
        self._counters[key] = self._counters.get(key, 0) + amount

    def set(self, name: str, value: float, **labels: str) -> None:
        """State a value."""
        self._gauges[name, tuple(sorted(labels.items()))] = value

    def value(self, name: str, **labels: str) -> float:
        """A counter or gauge as it stands; 0 before its first use."""
        key = (name, tuple(sorted(labels.items())))
        return self._counters.get(key, self._gauges.get(key, 0))

    def text(self) -> str:
        """Prometheus' text form."""
        lines: list[str] = []
        for kind, suffix, table in (("counter", "_total", self._counters), ("gauge", "", self._gauges)):
            last = None
            for (name, labels), value in sorted(table.items()):
                full = f"{self._prefix}_{name}{suffix}"
                if full != last:
                    lines.append(f"# TYPE {full} {kind}")
                    last = full
                shown = ",".join(f'{key}="{_escape(text)}"' for key, text in labels)
                lines.append(f"{full}{{{shown}}} {value:.17g}" if shown else f"{full} {value:.17g}")
        return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@contextlib.asynccontextmanager
async def ops_page(
    host: str, port: int, metrics: Metrics, health: Callable[[], tuple[bool, dict[str, Any]]]
) -> AsyncIterator[int]:
    """Serve /metrics and /health over plain HTTP on one address; yields the port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5.0)
            path = request.split(b" ", 2)[1] if request.startswith(b"GET ") else b""
            if path == b"/metrics":
                status, kind, body = "200 OK", "text/plain; version=0.0.4", metrics.text()
            elif path == b"/health":
                good, facts = health()
                status = "200 OK" if good else "503 Service Unavailable"
                kind, body = "application/json", json.dumps(facts) + "\n"
            else:
                status, kind, body = "404 Not Found", "text/plain", "there are /metrics and /health\n"
            content = body.encode()
            head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {len(content)}\r\n"
            writer.write(head.encode() + b"Connection: close\r\n\r\n" + content)
            await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ConnectionError, IndexError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, host, port)
    async with server:
        yield server.sockets[0].getsockname()[1]
