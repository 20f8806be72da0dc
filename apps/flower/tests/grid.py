"""Flower's messages without Flower's processes: one client asked directly, or a whole run over a grid of nodes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict

from known_draws import ledger_coins
from privatile.client.ledger.ledger import Ledger
from privatile.core.messages import Question
from privatile.errors import PrivatileError
from privatile.federation.study import FederationStudy, study_toml
from privatile_flower.client import study_client_app
from privatile_flower.server import Pace, carry_rounds, open_run
from privatile_flower.simulate import node_settings
from privatile_flower.study import RECORD


def furnish_ledgers(study: FederationStudy, *folders: Path) -> None:
    """One ledger per client, the same in every folder: the same keys, so the same order of its records."""
    for folder in folders:
        folder.mkdir(exist_ok=True)
        (folder / "study.toml").write_text(study_toml(study))
    for name in study.clients:
        with Ledger.open(folders[0] / f"{name}-ledger.db") as ledger, ledger.transaction():
            pass
        for folder in folders[1:]:
            shutil.copy(folders[0] / f"{name}-ledger.db", folder)


def furnish_data(study: FederationStudy, folder: Path) -> None:
    """The same records in every folder."""
    for k, (name, agreement) in enumerate(study.clients.items()):
        values = np.random.default_rng(k).normal(50.0, 10.0, agreement.records)
        (folder / f"{name}.csv").write_text("value\n" + "\n".join(map(repr, values.tolist())) + "\n")


def settings_in(folder: Path, name: str) -> dict[str, Any]:
    """A client's node config."""
    run = {"study": f"{folder}/study.toml", "store": f"{folder}/run.db"}
    return dict(node_settings(run, "value", name, f"{folder}/{name}.csv"))


def context(settings: dict[str, Any], node: int = 1) -> Context:
    """A node whose Flower state is empty: as new, or reset."""
    return Context(run_id=1, node_id=node, node_config=settings, state=RecordDict(), run_config={})


def ask(app: Any, where: Context, questions: list[Question], given: int = 0) -> dict[str, Any]:
    """A client's reply to questions."""
    lines = [question.to_json() for question in questions]
    names = [where.node_config.get("client", "site0")] * len(lines)
    record = ConfigRecord({"clients": names, "questions": lines, "given": [given] * len(lines)})
    message = Message(RecordDict({RECORD: record}), dst_node_id=where.node_id, message_type="query")
    message.metadata.__dict__["_message_id"] = "1"
    return dict(app(message, where).content[RECORD])


class Grid:
    """Flower's interface to a ServerApp, with nodes that may restart, fall silent, repeat themselves, or lie."""

    def __init__(self, nodes: dict[int, tuple[Any, dict[str, Any]]]) -> None:
        self.nodes = nodes
        self.sent = 0
        self.before: Callable[[], object] = lambda: None
        """Called before every round."""
        self.repeats = False
        """Whether every earlier message is delivered again, late and to a fresh process."""
        self.silent: set[int] = set()
        self._delivered: list[Message] = []

    def get_node_ids(self) -> Iterable[int]:
        self.before()
        return list(self.nodes)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float) -> Iterable[Message]:
        replies = []
        for message in messages:
            self.sent += 1
            node = message.metadata.dst_node_id
            message.metadata.__dict__["_message_id"] = str(self.sent)
            app, settings = self.nodes[node]
            if node in self.silent:
                continue
            for earlier in self._delivered if self.repeats else []:
                if earlier.metadata.dst_node_id == node:
                    app(earlier, context(settings, node))
            replies.append(app(message, context(settings, node)))
            self._delivered.append(message)
        return replies


Prepare = Callable[[Grid, dict[str, int]], None]
"""Changes the grid before a run; the dictionary has every client's node."""


def run_over_grid(folder: Path, study: FederationStudy, prepare: Prepare = lambda grid, nodes: None) -> str | None:
    """The whole run; the error that ended it, if one did."""
    names = list(study.clients)
    nodes = {name: 100 + k for k, name in enumerate(names)}
    grid = Grid({nodes[name]: (study_client_app(ledger_coins(names)), settings_in(folder, name)) for name in names})
    prepare(grid, nodes)
    coordinator = open_run({"study": f"{folder}/study.toml", "store": f"{folder}/run.db"})
    try:
        carry_rounds(grid, coordinator, Pace(0.05, 1))
    except PrivatileError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        coordinator.store.close()
    return None
