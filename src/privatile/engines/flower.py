"""Carry rounds over Flower, for those who already run it: a ServerApp and a ClientApp over the same coordinator and
responder as everywhere else.

Flower may call a client again after a lost reply, hand its messages to any process, and forget what the client knew.
Our ledger is what protects a record: a question asked again gets the stored count, and no record answers twice.

Telemetry: start every Flower process with FLWR_TELEMETRY_ENABLED=0. This is the only file that imports flwr.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from privatile.client.responder import Responder, answer_all
from privatile.errors import PrivatileError, ProtocolError, require
from privatile.protocol import Answer, Question
from privatile.server.coordinator import Coordinator

log = logging.getLogger("privatile.engines.flower")

RECORD = "privatile"
"""The one record of a message; it holds questions, or counts, as lines of JSON."""


def client_app(open_responder: Callable[[Any], AbstractContextManager[Responder]]) -> Any:
    """A Flower ClientApp. `open_responder(context)` opens this node's responder, anew for every message."""
    app_module, client_module = require("flwr.app", "flower"), require("flwr.clientapp", "flower")
    app = client_module.ClientApp()

    @app.query()  # type: ignore[untyped-decorator]
    def query(message: Any, context: Any) -> Any:
        asked = [Question.from_json(text) for text in message.content[RECORD].get("questions", [])]
        with open_responder(context) as responder:
            answers = answer_all((responder, question) for question in asked)
            lines = [answer.to_json() for answer in answers]
            record = app_module.ConfigRecord({"client": responder.client, "answers": lines})
        return app_module.Message(content=app_module.RecordDict({RECORD: record}), reply_to=message)

    return app


def server_app(
    open_coordinator: Callable[[Any], Coordinator],
    *,
    deadline: float = 600.0,
    patience: int = 20,
    done: Callable[[Coordinator], None] = lambda coordinator: None,
) -> Any:
    """A Flower ServerApp. `open_coordinator(context)` begins the run or goes on with it; `done` gets it at the end.

    A round waits `deadline` seconds; a node that is silent is stood in for by its last mean, for `patience` rounds.
    """
    app = require("flwr.serverapp", "flower").ServerApp()

    @app.main()  # type: ignore[untyped-decorator]
    def main(grid: Any, context: Any) -> None:
        coordinator = open_coordinator(context)
        _Rounds(grid, coordinator, deadline, patience).run()
        coordinator.finish()
        done(coordinator)

    return app


class _Rounds:
    def __init__(self, grid: Any, coordinator: Coordinator, deadline: float, patience: int) -> None:
        self._grid = grid
        self._coordinator = coordinator
        self._deadline = deadline
        self._patience = patience
        self._flwr = require("flwr.app", "flower")
        self._names = [client.name for client in coordinator.tracks[0].plan.clients]
        self._nodes: dict[str, int] = {}

    def run(self) -> None:
        """Ask until the plan is over."""
        self._meet()
        while (rounds := self._coordinator.rounds()) is not None:
            questions = {name: [one.questions[k] for one in rounds] for k, name in enumerate(self._names)}
            answers = self._collect(questions)
            counts = [
                [answers[name][place] if name in answers else None for name in self._names]
                for place in range(len(rounds))
            ]
            self._coordinator.accept(counts)

    def _meet(self) -> None:
        """Learn which node is which client; nodes appear when they like."""
        until = time.monotonic() + self._deadline
        while set(self._nodes) < set(self._names):
            unknown = set(self._grid.get_node_ids()) - set(self._nodes.values())
            for node, client, _ in self._send({node: [] for node in unknown}):
                if client in self._names:
                    self._nodes[client] = node
            if time.monotonic() > until:
                missing = sorted(set(self._names) - set(self._nodes))
                raise PrivatileError(f"clients {', '.join(missing)} did not appear within {self._deadline:g} s.")
            if set(self._nodes) < set(self._names):
                time.sleep(1.0)

    def _collect(self, questions: dict[str, list[Question]]) -> dict[str, list[int]]:
        """Counts by client; asks again while nobody can stand in for a silent client."""
        found: dict[str, list[int]] = {}
        while True:
            missing = {self._nodes[name]: asked for name, asked in questions.items() if name not in found}
            for _, client, answers in self._send(missing):
                try:
                    asked = questions[client]
                    found[client] = [answer.check(one).ones for answer, one in zip(answers, asked, strict=True)]
                except (KeyError, ValueError, ProtocolError):
                    log.warning("an answer of client %r was rejected", client)
            silent = set(questions) - set(found)
            if found and all(self._may_stand_in(name) for name in silent):
                return found

    def _may_stand_in(self, name: str) -> bool:
        place = self._names.index(name)
        used = [track.state.used[place] for track in self._coordinator.tracks if track.ask is not None]
        return all(0 < one <= self._patience for one in used)

    def _send(self, questions: dict[int, list[Question]]) -> Iterable[tuple[int, str, list[Answer]]]:
        """Send each node its questions; (node, client, answers) of those that reply in time and in form."""
        messages = []
        for node, asked in questions.items():
            record = self._flwr.ConfigRecord({"questions": [question.to_json() for question in asked]})
            content = self._flwr.RecordDict({RECORD: record})
            messages.append(self._flwr.Message(content=content, message_type="query", dst_node_id=node))
        if not messages:
            return
        for reply in self._grid.send_and_receive(messages, timeout=self._deadline):
            node = reply.metadata.src_node_id
            if reply.has_error():
                log.warning("node %s could not answer", node)
                continue
            try:
                record = reply.content[RECORD]
                yield node, str(record["client"]), [Answer.from_json(text) for text in record["answers"]]
            except (KeyError, TypeError, ProtocolError):
                log.warning("a reply of node %s was malformed", node)
