"""A response in one piece: written where uvicorn would write the same, and left to uvicorn everywhere else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from privatile.server.web import _respond


def a_cycle(**changes: Any) -> Any:
    """What uvicorn keeps of a request."""
    written: list[bytes] = []
    usual = {
        "disconnected": False, "response_started": False, "response_complete": False, "keep_alive": True,
        "waiting_for_100_continue": True, "scope": {"method": "POST"}, "flow": SimpleNamespace(write_paused=False),
        "default_headers": [(b"date", b"today")], "written": written, "events": [],
    }  # fmt: skip
    cycle = SimpleNamespace(**{**usual, **changes})
    cycle.transport = SimpleNamespace(write=written.append)
    cycle.message_event = SimpleNamespace(set=lambda: cycle.events.append("message"))
    cycle.on_response = lambda: cycle.events.append("response")
    return cycle


def test_it_is_one_write_with_every_header() -> None:
    cycle = a_cycle()
    assert _respond(cycle, 503, b"a: b\r\n", b"{}")
    expected = b"HTTP/1.1 503 Service Unavailable\r\ndate: today\r\na: b\r\ncontent-length: 2\r\n\r\n{}"
    assert cycle.written == [expected]
    assert (cycle.response_started, cycle.response_complete, cycle.waiting_for_100_continue) == (True, True, False)
    assert cycle.events == ["message", "response"]


@pytest.mark.parametrize(
    "changes",
    [
        {"disconnected": True},
        {"response_started": True},
        {"keep_alive": False},
        {"flow": SimpleNamespace(write_paused=True)},
        {"scope": {"method": "HEAD"}},
    ],
)
def test_what_is_not_plain_is_left_to_uvicorn(changes: dict[str, Any]) -> None:
    cycle = a_cycle(**changes)
    assert not _respond(cycle, 200, b"", b"{}")
    assert cycle.written == cycle.events == []
    assert not cycle.response_complete


def test_uvicorn_keeps_what_is_read_and_set_here() -> None:
    """The names are uvicorn's own: another version must have them all."""
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    nothing: Any = None
    made = RequestResponseCycle({"method": "POST"}, *[nothing] * 10)  # type: ignore[typeddict-item]
    ours = {name for name in vars(a_cycle()) if name not in ("written", "events")}
    assert ours <= set(vars(made))
