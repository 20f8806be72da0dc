"""The coordinator's side: a Flower ServerApp that carries rounds between a coordinator and Flower's nodes."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from privatile.core.messages import Answer, Question
from privatile.errors import RunPaused, SiteRefusal
from privatile.run.coordinator import Coordinator
from privatile.run.locks import begin_or_continue
from privatile.run.rounds import must_wait_for
from privatile_flower.study import RECORD, Settings, read_study, read_text

log = logging.getLogger("privatile_flower.server")

PAUSE = 1.0
"""Seconds before the nodes are looked for again; Flower itself looks for messages every three."""


class Pace(NamedTuple):
    """Seconds that a round waits, and for how many rounds the run goes on without a silent client."""

    deadline: float = 600.0
    patience: int = 20


def server_app(
    open_coordinator: Callable[[Context], Coordinator],
    *,
    pace: Callable[[Context], Pace] = lambda context: Pace(),
    done: Callable[[Coordinator], None] = lambda coordinator: None,
) -> ServerApp:
    """A ServerApp. `open_coordinator(context)` begins or continues the run; `done` is called with it at the end.

    A round waits for `pace(context).deadline` seconds; the run goes on without a silent client for `patience`
    rounds. After that, and when a client refuses, the run stops with an error. Started again, it continues
    with the same round.
    """
    flower_app = ServerApp()

    @flower_app.main()  # type: ignore[untyped-decorator]
    def main(grid: Grid, context: Context) -> None:
        coordinator = open_coordinator(context)
        carry_rounds(grid, coordinator, pace(context))
        coordinator.finish()
        done(coordinator)

    return flower_app


def carry_rounds(grid: Grid, coordinator: Coordinator, pace: Pace) -> None:
    """Ask over a Flower grid until the plan is complete."""
    collector = _Collector(grid, coordinator, pace)
    while questions := coordinator.questions():
        answers = collector.collect(questions)
        columns = [answers.get(name, [None] * len(asked)) for name, asked in questions.items()]
        coordinator.accept(list(zip(*columns, strict=True)))


class _Collector:
    """Asks the nodes, and learns from their replies which node is which client."""

    def __init__(self, grid: Grid, coordinator: Coordinator, pace: Pace) -> None:
        self._grid = grid
        self._coordinator = coordinator
        self._deadline, self._patience = pace
        self._nodes: dict[str, int] = {}
        self._strangers: set[int] = set()

    def collect(self, questions: Mapping[str, Sequence[Question]]) -> dict[str, list[int]]:
        """Counts by client. Asks again, until the deadline, while a client is silent that must answer."""
        found: dict[str, list[int]] = {}
        until = time.monotonic() + self._deadline
        while True:
            asked = self._addresses([name for name in questions if name not in found])
            for node, reply in self._send(asked, questions, max(PAUSE, until - time.monotonic())):
                name = self._sender(node, reply, asked[node])
                counts = None if name is None else _counts(name, reply, questions[name])
                if name is not None and counts is not None:
                    self._nodes[name], found[name] = node, counts
            silent = [name for name in questions if name not in found]
            if found and not must_wait_for(silent, self._coordinator.tracks, self._patience):
                return found
            if time.monotonic() > until:
                raise RunPaused(
                    f"client {', '.join(silent)} did not answer within {self._deadline:g} s, and the run may not "
                    "go on without it. The answers so far are kept: start the run again, and it continues with "
                    "this round."
                )
            time.sleep(PAUSE)

    def _addresses(self, names: Sequence[str]) -> dict[int, list[str]]:
        """The nodes to ask, each with the clients that it is or may be.

        A client that has not answered yet, or was restarted, may be any node that is not known to be another client.
        """
        present = set(self._grid.get_node_ids())
        self._strangers &= present
        self._nodes = {name: node for name, node in self._nodes.items() if node in present}
        asked = {self._nodes[name]: [name] for name in names if name in self._nodes}
        missing = [name for name in names if name not in self._nodes]
        if missing:
            asked |= dict.fromkeys(present - set(self._nodes.values()) - self._strangers, missing)
        return asked

    def _sender(self, node: int, reply: Mapping[str, Any], expected: Sequence[str]) -> str | None:
        """The client that replies; None where it is not one that was asked at this node, or where it failed."""
        known = node in self._nodes.values()
        name = str(reply.get("client", expected[0] if known else ""))
        if name not in expected or self._nodes.get(name, node) != node:
            log.warning("node %s, client %r, is not one that was asked there", node, name)
            if name and not known:
                self._strangers.add(node)
            return None
        if "refused" in reply:
            raise SiteRefusal(f"client {name} refuses ({reply['refused']}). Its own log says why.")
        if "failed" in reply:
            log.warning("client %r failed (%s); its own log says more", name, reply["failed"])
            return None
        return name

    def _send(
        self, asked: Mapping[int, Sequence[str]], questions: Mapping[str, Sequence[Question]], timeout: float
    ) -> Iterable[tuple[int, Mapping[str, Any]]]:
        """Send each node the questions to its clients; (node, reply) of those that reply in time."""
        if not asked:
            return
        totals = self._coordinator.clients
        messages = []
        for node, names in asked.items():
            lines = [(name, one.to_json(), totals[name].answered) for name in names for one in questions[name]]
            clients, texts, given = (list(column) for column in zip(*lines, strict=True))
            record = ConfigRecord({"clients": clients, "questions": texts, "given": given})
            messages.append(Message(RecordDict({RECORD: record}), message_type="query", dst_node_id=node))
        for reply in self._grid.send_and_receive(messages, timeout=timeout):
            node = reply.metadata.src_node_id
            if reply.has_error() or node not in asked or RECORD not in reply.content:
                log.warning("node %s could not answer", node)
                continue
            yield node, reply.content[RECORD]


def _counts(name: str, reply: Mapping[str, Any], questions: Sequence[Question]) -> list[int] | None:
    """The counts in a reply; None where they are not answers to the questions."""
    try:
        answers = [Answer.from_json(text) for text in reply["answers"]]
        return [answer.check(question).ones for answer, question in zip(answers, questions, strict=True)]
    except (KeyError, TypeError, ValueError):
        log.warning("a reply of client %r was rejected", name)
        return None


def study_server_app(settings: Callable[[Context], Settings] = lambda context: context.run_config) -> ServerApp:
    """The ServerApp of a study; `settings(context)` is its configuration, by default the run config."""

    def pace(context: Context) -> Pace:
        study = read_study(settings(context))
        return Pace(study.deadline, study.patience)

    def done(coordinator: Coordinator) -> None:
        print("\n\n".join(result.to_text() for result in coordinator.results()))
        coordinator.store.close()

    return server_app(lambda context: open_run(settings(context)), pace=pace, done=done)


def open_run(settings: Settings) -> Coordinator:
    """Begin or continue the study's run; a file of another study is refused."""
    study = read_study(settings)
    return Coordinator(begin_or_continue(Path(read_text(settings, "store")), study.run, study.spec))


app = study_server_app()
