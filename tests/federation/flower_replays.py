"""What Flower may do to a client, done to the adapter with Flower's own messages: facts as one line of JSON.

Runs in Flower's environment: python -m tests.federation.flower_replays FOLDER
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from apps.flower import simulate
from flwr.app import ConfigRecord, Context, Message, RecordDict  # type: ignore[import-not-found]
from flwr.supercore.task_identity import TaskIdentity  # type: ignore[import-not-found]
from privatile_flower import engine as flower
from privatile_flower.study import open_study_run, study_client_app

from privatile.core.messages import Answer, Question
from privatile.errors import PrivatileError
from privatile.federation.study.study import FederationStudy, load_study, study_toml
from privatile.server.coordinator import Coordinator
from tests.federation.flower_smoke import ledger_coins, position, transcript

PLANTED = 123456.789


def node_settings(folder: Path, name: str) -> dict[str, Any]:
    run = {"study": f"{folder}/study.toml", "store": f"{folder}/run.db"}
    return dict(simulate.node(run, "value", name, f"{folder}/{name}.csv"))


def context(settings: dict[str, Any], node: int = 1) -> Any:
    """A node whose Flower state is empty: as new, or reset."""
    return Context(run_id=1, node_id=node, node_config=settings, state=RecordDict(), run_config={})


def ask(app: Any, where: Any, questions: list[Question], given: int = 0) -> Any:
    lines = [one.to_json() for one in questions]
    names = [where.node_config.get("client", "site0")] * len(lines)
    record = ConfigRecord({"clients": names, "questions": lines, "given": [given] * len(lines)})
    message = Message(RecordDict({flower.RECORD: record}), dst_node_id=where.node_id, message_type="query")
    message.metadata.__dict__["_message_id"] = "1"
    return app(message, where).content[flower.RECORD]


class Grid:
    """Flower's interface to a ServerApp, with nodes that may restart, fall silent, repeat themselves, or lie."""

    def __init__(self, nodes: dict[int, tuple[Any, dict[str, Any]]]) -> None:
        self.nodes = nodes
        self.sent = 0
        self.before: Callable[[Grid], None] = lambda grid: None
        self.twice = False
        self.silent: set[int] = set()
        self.kept: list[Any] = []

    def get_node_ids(self) -> Iterable[int]:
        self.before(self)
        return list(self.nodes)

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float) -> Iterable[Any]:
        replies = []
        for message in messages:
            self.sent += 1
            node = message.metadata.dst_node_id
            message.metadata.__dict__["_message_id"] = str(self.sent)
            app, settings = self.nodes[node]
            if node in self.silent:
                continue
            for stale in self.kept if self.twice else []:
                # An earlier question, delivered late and in a fresh process.
                if stale.metadata.dst_node_id == node:
                    app(stale, context(settings, node))
            replies.append(app(message, context(settings, node)))
            self.kept.append(message)
        return replies


def furnished(folder: Path, study: FederationStudy) -> Path:
    """A study's folder as simulations find it; every call has the same records and the same ledgers' keys."""
    folder.mkdir()
    (folder / "study.toml").write_text(study_toml(study))
    for k, (name, terms) in enumerate(study.clients.items()):
        values = np.random.default_rng(k).normal(50.0, 10.0, terms.records)
        (folder / f"{name}.csv").write_text("value\n" + "\n".join(map(repr, values.tolist())) + "\n")
        shutil.copy(folder.parent / f"{name}-ledger.db", folder / f"{name}-ledger.db")
    return folder


def one_client(folder: Path, study: FederationStudy) -> dict[str, Any]:
    """A question again, in a new process with an empty state; the same round otherwise; another run; a lost ledger."""
    name, *_ = names = list(study.clients)
    settings = node_settings(folder, name)
    ledger = Path(settings["ledger"])
    asked = Question(study.run, 1, study.spec.plan().level, 50.0, 6)

    def app() -> Any:
        return study_client_app(ledger_coins(names))

    def told(fields: Any) -> list[Any]:
        return [fields.get("refused"), "answers" in fields, position(ledger)[0]]

    facts: dict[str, Any] = {
        "poorer": told(ask(app(), context({**settings, "max-epsilon": 0.5}), [asked])),
        "no limit": told(ask(app(), context({**settings, "max-epsilon": ""}), [asked])),
        "stranger": told(ask(app(), context({**settings, "client": "nobody"}), [asked])),
    }
    first = ask(app(), context(settings), [asked])
    again = [ask(app(), context(settings, node), [asked]) for node in (1, 2, 3)]
    facts |= {
        "entries": position(ledger)[0],
        "again": [dict(one) == dict(first) for one in again],
        "count": Answer.from_json(first["answers"][0]).check(asked).ones,
        "entries after": position(ledger)[0],
    }
    changed = {
        "query": replace(asked, query=51.0),
        "length": replace(asked, length=5),
        "step": replace(asked, step=0.1),
        "level": replace(asked, level=0.25),
        "run": replace(asked, run="another"),
        "range": replace(asked, round=2, query=1e6),
        "round": replace(asked, round=study.rounds + 1),
    }
    facts["changed"] = {what: told(ask(app(), context(settings), [one])) for what, one in changed.items()}
    # A message of two questions, one of them changed: neither is answered.
    both = [replace(asked, round=2, query=49.0), replace(asked, query=51.0)]
    facts["mixed"] = told(ask(app(), context(settings), both))
    facts["next"] = told(ask(app(), context(settings), [replace(asked, round=2, query=49.0)], given=6))
    ledger.unlink()
    fields = ask(app(), context(settings), [replace(asked, round=3)], given=12)
    facts["new ledger"] = [fields.get("refused"), "answers" in fields, ledger.exists()]
    return facts


def a_failure(study: FederationStudy) -> dict[str, Any]:
    """What a reader of data says stays at the site."""

    def broken(where: Any) -> contextlib.AbstractContextManager[Any]:
        raise ValueError(f"could not convert {PLANTED}")

    asked = Question(study.run, 1, 0.5, 50.0, 6)
    return dict(ask(flower.client_app(broken, name=lambda where: "site0"), context({}), [asked]))


def run_over(folder: Path, study: FederationStudy, prepare: Callable[[Grid, dict[str, int]], None]) -> str | None:
    """The whole run over a grid; the error that ended it, if one did."""
    names = list(study.clients)
    homes = {name: 100 + k for k, name in enumerate(names)}
    grid = Grid({homes[name]: (study_client_app(ledger_coins(names)), node_settings(folder, name)) for name in names})
    prepare(grid, homes)
    coordinator: Coordinator = open_study_run({"study": f"{folder}/study.toml", "store": f"{folder}/run.db"})
    try:
        flower.carry_rounds(grid, coordinator, flower.Pace(0.05, 1))
    except PrivatileError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        coordinator.store.close()
    return None


def whole_runs(folder: Path, study: FederationStudy) -> dict[str, Any]:
    """Runs with restarts, stale messages, silence and impostors, beside a quiet one."""
    flower.PAUSE = 0.01
    names = list(study.clients)

    def book(where: Path) -> list[Any]:
        entries = [position(where / f"{name}-ledger.db") for name in names]
        return [transcript(where / "run.db"), *((sequence, head.hex()) for sequence, head in entries)]

    def restarting(grid: Grid, homes: dict[str, int]) -> None:
        def before(grid: Grid) -> None:
            # Every client is restarted before every round: another node, an empty state, a fresh process.
            for node in list(grid.nodes):
                grid.nodes[node + 10] = grid.nodes.pop(node)

        grid.before = before

    def repeating(grid: Grid, homes: dict[str, int]) -> None:
        grid.twice = True

    def fading(grid: Grid, homes: dict[str, int]) -> None:
        grid.before = lambda grid: grid.silent.update({homes[names[1]]} if grid.sent > 3 else ())

    def impostor(grid: Grid, homes: dict[str, int]) -> None:
        honest, settings = grid.nodes[homes[names[1]]]

        def forging(message: Any, where: Any) -> Any:
            # After the first round this node answers in the other's name, and says yes for everybody.
            asked = [Question.from_json(text) for text in message.content[flower.RECORD]["questions"]]
            if asked[0].round == 1:
                return honest(message, where)
            answers = [Answer(one.run, one.round, names[0], one.level, one.length).to_json() for one in asked]
            record = ConfigRecord({"client": names[0], "answers": answers})
            return Message(RecordDict({flower.RECORD: record}), reply_to=message)

        grid.nodes[homes[names[1]]] = forging, settings

    quiet = furnished(folder / "quiet", study)
    facts: dict[str, Any] = {"quiet": run_over(quiet, study, lambda grid, homes: None)}
    for prepare in (restarting, repeating):
        where = furnished(folder / prepare.__name__, study)
        facts[prepare.__name__] = [run_over(where, study, prepare), book(where) == book(quiet)]
    where = furnished(folder / "fading", study)
    ended = run_over(where, study, fading)
    heard = [row[6] for row in transcript(where / "run.db")]
    facts["fading"] = [ended, [None in ones for ones in heard]]
    # Started again with the client back, the run goes on and ends.
    facts["resumed"] = [run_over(where, study, lambda grid, homes: None), len(transcript(where / "run.db"))]
    where = furnished(folder / "impostor", study)
    facts["impostor"] = [run_over(where, study, impostor), [row[6] for row in transcript(where / "run.db")]]
    facts["quiet counts"] = [row[6] for row in transcript(quiet / "run.db")]
    # The ledger is put back to its beginning in mid-run: the client refuses, and nothing is asked twice.
    where = furnished(folder / "gone back", study)
    run_over(where, study, fading)
    shutil.copy(folder / f"{names[0]}-ledger.db", where / f"{names[0]}-ledger.db")
    facts["gone back"] = run_over(where, study, lambda grid, homes: None)
    return facts


def main(folder: Path) -> None:
    study = load_study(folder / "study.toml")
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # as Flower does before it loads an app
    facts = {
        "one client": one_client(furnished(folder / "one", study), study),
        "failure": a_failure(study),
        "runs": whole_runs(folder, study),
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
