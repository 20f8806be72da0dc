"""Carry rounds over Flower, for those who already run it: a ServerApp and a ClientApp over the same coordinator and
responder as everywhere else.

Flower may call a client again after a lost reply, hand its messages to any process, and forget what the client knew.
Our ledger is what protects a record: a question asked again gets the stored count, the same round asked otherwise is
refused, and no record answers twice. Nothing is kept in Flower's own state. Every message says how many records the
server has counts of; a ledger that knows of fewer has gone back, or is new, and its client refuses.

Flower sends the text of an exception to the server. So none leaves a client here: the text is logged at the site, and
its kind alone crosses.

Telemetry: start every Flower process with FLWR_TELEMETRY_ENABLED=0. No other file of the package imports flwr.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, NamedTuple

from privatile.client.responder import Responder, answer_all
from privatile.core.messages import Answer, Question
from privatile.errors import LedgerError, PrivatileError, RunPaused, SiteRefusal, require
from privatile.server.coordinator import Coordinator

log = logging.getLogger("privatile_flower.engine")

RECORD = "privatile"
"""The one record of a message. To a client, three lists of equal length: `clients`, `questions` (lines of JSON) and
`given` (records that the server has that client's counts of). Back: `client`, and `answers` (lines of JSON), or
`refused` or `failed` with the kind of error."""

PAUSE = 1.0
"""Seconds before nodes are looked for again; Flower itself looks for messages every three."""


def client_app(
    open_responder: Callable[[Any], AbstractContextManager[Responder]],
    *,
    name: Callable[[Any], str] | None = None,
    agree: Callable[[Any, Question], None] = lambda context, question: None,
) -> Any:
    """A Flower ClientApp. `open_responder(context)` opens this node's responder, anew for every message.

    `name(context)` is what the run calls this client; without it, the responder's own name. `agree(context, question)`
    raises what the site has against a question, before any record answers it.
    """
    app_module, client_module = require("flwr.app", "flower"), require("flwr.clientapp", "flower")
    app = client_module.ClientApp()

    @app.query()  # type: ignore[untyped-decorator]
    def query(message: Any, context: Any) -> Any:
        fields: dict[str, Any] = {}
        try:
            if name is not None:
                fields["client"] = name(context)
            with open_responder(context) as responder:
                client = fields.setdefault("client", responder.client)
                answers = _answer(responder, client, message.content[RECORD], lambda one: agree(context, one))
            fields["answers"] = [replace(answer, client=client).to_json() for answer in answers]
        except PrivatileError as error:
            log.error("refused: %s", error)
            fields["refused"] = type(error).__name__
        except Exception as error:
            # Whatever a reader of data says may hold a value: its kind is all that is told, here and there.
            log.error("failed: %s", type(error).__name__)
            fields["failed"] = type(error).__name__
        content = app_module.RecordDict({RECORD: app_module.ConfigRecord(fields)})
        return app_module.Message(content=content, reply_to=message)

    return app


def _answer(
    responder: Responder, client: str, asked: Mapping[str, Any], agree: Callable[[Question], None]
) -> list[Answer]:
    """Answer what is addressed to this client, all of it or nothing."""
    questions = []
    for addressee, text, given in zip(asked["clients"], asked["questions"], asked["given"], strict=True):
        if addressee == client:
            _refuse_older_ledger(responder, given)
            questions.append(Question.from_json(text))
            agree(questions[-1])
    return answer_all((responder, question) for question in questions)


def _refuse_older_ledger(responder: Responder, given: int) -> None:
    """A count is on the disk before it leaves: a ledger that holds fewer is not the one that gave them."""
    asked = responder.asked()
    if asked < given:
        raise LedgerError(
            f"the coordinator has counts of {given} records of this run; the ledger {responder.ledger.path} knows of "
            f"{asked}. It was restored from a backup, or another one is in use: records could answer twice. Give the "
            "ledger that answered; if it is lost, this client can take no further part in the run."
        )


class Pace(NamedTuple):
    """How long a round waits for its answers, in seconds, and for how many rounds a silent client is stood in for."""

    deadline: float = 600.0
    patience: int = 20


def server_app(
    open_coordinator: Callable[[Any], Coordinator],
    *,
    pace: Callable[[Any], Pace] = lambda context: Pace(),
    done: Callable[[Coordinator], None] = lambda coordinator: None,
) -> Any:
    """A Flower ServerApp. `open_coordinator(context)` begins the run or goes on with it; `done` gets it at the end.

    A round waits for `pace(context).deadline`; a silent client's last mean stands in for it while patience lasts.
    Then, and where a client refuses, the run stops with an error; started again it goes on with the same round.
    """
    app = require("flwr.serverapp", "flower").ServerApp()

    @app.main()  # type: ignore[untyped-decorator]
    def main(grid: Any, context: Any) -> None:
        coordinator = open_coordinator(context)
        carry_rounds(grid, coordinator, pace(context))
        coordinator.finish()
        done(coordinator)

    return app


def carry_rounds(grid: Any, coordinator: Coordinator, pace: Pace) -> None:
    """Ask over a Flower grid until the plan is over."""
    _Rounds(grid, coordinator, pace).run()


class _Rounds:
    def __init__(self, grid: Any, coordinator: Coordinator, pace: Pace) -> None:
        self._grid = grid
        self._coordinator = coordinator
        self._deadline, self._patience = pace
        self._flwr = require("flwr.app", "flower")
        self._names = [client.name for client in coordinator.tracks[0].plan.clients]
        self._nodes: dict[str, int] = {}
        self._strangers: set[int] = set()
        self._given = dict.fromkeys(self._names, 0)
        for index, _ in enumerate(coordinator.tracks):
            for stored in coordinator.store.rounds(index):
                self._count_given(stored.lengths, stored.ones)

    def _count_given(self, lengths: Sequence[int], ones: Sequence[int | None]) -> None:
        for name, length, count in zip(self._names, lengths, ones, strict=True):
            self._given[name] += 0 if count is None else length

    def run(self) -> None:
        """Ask until the plan is over."""
        while (rounds := self._coordinator.rounds()) is not None:
            questions = {name: [one.questions[k] for one in rounds] for k, name in enumerate(self._names)}
            answers = self._collect(questions)
            counts = [
                [answers[name][place] if name in answers else None for name in self._names]
                for place in range(len(rounds))
            ]
            self._coordinator.accept(counts)
            for one, ones in zip(rounds, counts, strict=True):
                self._count_given([question.length for question in one.questions], ones)

    def _collect(self, questions: Mapping[str, Sequence[Question]]) -> dict[str, list[int]]:
        """Counts by client. Asks again, until the deadline, where nobody may stand in for a silent client."""
        found: dict[str, list[int]] = {}
        until = time.monotonic() + self._deadline
        while True:
            asked = self._addresses([name for name in questions if name not in found])
            for node, fields in self._send(asked, questions, max(PAUSE, until - time.monotonic())):
                name = self._sender(node, fields, asked[node])
                counts = None if name is None else _counts(name, fields, questions[name])
                if name is not None and counts is not None:
                    self._nodes[name], found[name] = node, counts
            silent = [name for name in questions if name not in found]
            if found and all(self._may_stand_in(name) for name in silent):
                return found
            if time.monotonic() > until:
                raise RunPaused(
                    f"client {', '.join(silent)} did not answer within {self._deadline:g} s, and nothing may stand in "
                    "for it. What was answered is kept: start the run again, and it goes on with this round."
                )
            time.sleep(PAUSE)

    def _may_stand_in(self, name: str) -> bool:
        place = self._names.index(name)
        used = [track.state.used[place] for track in self._coordinator.tracks if track.ask is not None]
        return all(0 < one <= self._patience for one in used)

    def _addresses(self, names: Sequence[str]) -> dict[int, list[str]]:
        """Which nodes to ask, each for the clients it is or may be.

        A client that has not been met, or was restarted, may be any node that is nobody yet.
        """
        there = set(self._grid.get_node_ids())
        self._strangers &= there
        self._nodes = {name: node for name, node in self._nodes.items() if node in there}
        asked = {self._nodes[name]: [name] for name in names if name in self._nodes}
        lost = [name for name in names if name not in self._nodes]
        if lost:
            asked |= dict.fromkeys(there - set(self._nodes.values()) - self._strangers, lost)
        return asked

    def _sender(self, node: int, fields: Any, expected: Sequence[str]) -> str | None:
        """Who replies; nobody where it is none of those that were asked there, or where it failed."""
        known = node in self._nodes.values()
        name = str(fields.get("client", expected[0] if known else ""))
        if name not in expected or self._nodes.get(name, node) != node:
            log.warning("node %s, client %r, is not one that was asked there", node, name)
            self._strangers |= {node} if name and not known else set()
            return None
        if "refused" in fields:
            raise SiteRefusal(f"client {name} refuses ({fields['refused']}). Its own log says why.")
        if "failed" in fields:
            log.warning("client %r failed (%s); its own log says more", name, fields["failed"])
            return None
        return name

    def _send(
        self, asked: Mapping[int, Sequence[str]], questions: Mapping[str, Sequence[Question]], timeout: float
    ) -> Iterable[tuple[int, Any]]:
        """Send each node what is addressed to its clients; (node, fields) of those that reply in time."""
        messages = []
        for node, names in asked.items():
            lines = [(name, one.to_json(), self._given[name]) for name in names for one in questions[name]]
            clients, texts, given = (list(column) for column in zip(*lines, strict=True))
            record = self._flwr.ConfigRecord({"clients": clients, "questions": texts, "given": given})
            content = self._flwr.RecordDict({RECORD: record})
            messages.append(self._flwr.Message(content=content, message_type="query", dst_node_id=node))
        if not messages:
            return
        for reply in self._grid.send_and_receive(messages, timeout=timeout):
            node = reply.metadata.src_node_id
            if reply.has_error() or node not in asked or RECORD not in reply.content:
                log.warning("node %s could not answer", node)
                continue
            yield node, reply.content[RECORD]


def _counts(name: str, fields: Any, questions: Sequence[Question]) -> list[int] | None:
    """The counts of a reply; nothing where they are not what was asked for."""
    try:
        answers = [Answer.from_json(text) for text in fields["answers"]]
        return [answer.check(one).ones for answer, one in zip(answers, questions, strict=True)]
    except (KeyError, TypeError, ValueError):
        log.warning("a reply of client %r was rejected", name)
        return None
