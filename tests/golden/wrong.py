"""Command lines and calls that are refused; errors.txt holds what is said about each."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

import privatile
from privatile.core.messages import Answer, Question
from privatile.run.tables import program

PEOPLE = {"north": np.linspace(30.0, 70.0, 400), "south": np.linspace(40.0, 80.0, 200)}

IN_100 = ("--value", "pay", "--range", "0", "100")
DATA = ("--value", "pay", "--epsilon", "1", "--range", "0", "100")
ASK = ("estimate", "data.csv", *DATA)
ONE = ("--value", "pay", "--q", "0.5", "--epsilon", "1", "--range", "0", "100")
FEDERATION = ("federation", "init", "new", "--add-client", "a", "--add-client", "b", "--records", "500", *ONE)
SURVEY = ("survey", "init", "new", "--title", "Pay", "--codes", "100", "--address", "https://a.example", *ONE)
PEOPLE_PLAN = ("plan", "--epsilon", 1, "--width", 2)

COMMANDS: tuple[tuple[object, ...], ...] = (
    ("nonsense",),
    ("estimat",),
    ("estimate",),
    ("estimate", "gone.csv", *DATA),
    ("estimate", "folder", *DATA),
    ("estimate", "nothing.csv", *DATA),
    ("estimate", "text.csv", *DATA),
    ("estimate", "latin.csv", *DATA),
    ("estimate", "gone.toml"),
    ("estimate", "wrong.toml"),
    ("estimate", "data.csv", *IN_100),
    ("estimate", "data.csv", "--value", "pay", "--epsilon", 1),
    ("estimate", "data.csv", "--value", "wage", "--epsilon", 1, "--range", 0, 100),
    (*ASK, "--quantile", 0.5),
    (*ASK, "--client", "town"),
    (*ASK, "--person", "name"),
    (*ASK, "--weight", "weight"),
    (*ASK, "--client-weights", "precision"),
    (*ASK, "--client-weights", "gone.csv"),
    (*ASK, "--only", "west"),
    (*ASK, "--by", "town"),
    (*ASK, "--by", "region", "--only", "north"),
    (*ASK, "--overall-share", 0.2),
    (*ASK, "--until-width", -1),
    (*ASK, "--value-kind", "halves"),
    (*ASK, "--value-kind", "step=0"),
    (*ASK, "--design", "fibonacci"),
    (*ASK, "--design", "straddle", "--interval", "paper"),
    (*ASK, "--design", "paper-c1", "--interval", "smooth"),
    (*ASK, "--design", "rounds", "--mode", "local", "--until-width", 5),
    (*ASK, "--rounds", 2_000),
    (*ASK, "--max-epsilon", "nan"),
    (*ASK, "--range", 0, "inf"),
    (*ASK, "--range", 80, 0),
    (*ASK, "--scale", "log"),
    (*ASK, "--q", "nan"),
    (*ASK, "--q", "0.1,0.5"),
    (*ASK, "--q", "0,5"),
    (*ASK, "--q", 1),
    *(("estimate", "data.csv", *IN_100, "--epsilon", epsilon) for epsilon in (0, 20, "much")),
    (*ASK, "--not-private"),
    (*ASK, "--confidence-level", 95),
    (*ASK, "--missing", "zero"),
    (*ASK, "--dashboard-at", "nowhere"),
    (*ASK, "--dashboard", "--dashboard-tls", "no.crt", "no.key"),
    (*ASK, "--ledger", "junk.db"),
    (*ASK, "--ledger", "folder"),
    (*ASK, "--ledger", "same.db", "--save", "same.db"),
    (*ASK, "--save", "gone/run.db"),
    (*ASK, "--save", "run.db"),
    (*ASK, "--ledger", "ledger.db", "--person", "who", "--client", "region"),
    (*ASK, "--ledger", "altered-ledger.db"),
    *(("report", name, "-o", "page.html") for name in ("gone.db", "folder", "junk.db", "data.csv", "other.db")),
    *(("report", f"{name}.db", "-o", "page.html") for name in ("format", "blank", "counts", "gap", "counts-here")),
    ("report", "run.db", "-o", "gone/page.html"),
    ("report", "run.db", "-o", "page.txt"),
    ("report", "run.db", "--figure", "picture.xyz"),
    ("report", "run.db", "--value-kind", "halves"),
    ("report", "altered-groups", "-o", "page.html"),
    ("status", "gone.db"),
    ("watch", "run.db", "--once"),
    ("dashboard", "run.db", "--at", "foo"),
    ("compare", "run.db", "run.db"),
    ("compare", "run.db", "run.db", "--disjoint"),
    ("compare", "run.db", "going.db", "--disjoint", "--q", 0.3),
    ("ledger", "show", "gone.db"),
    ("ledger", "show", "run.db"),
    ("ledger", "verify", "altered-ledger.db"),
    ("ledger", "verify", "keyless-ledger.db"),
    ("ledger", "release", "run-1", "--ledger", "junk.db"),
    ("plan",),
    ("plan", "--epsilon", 1),
    ("plan", "--epsilon", 1, "--width", "wide"),
    ("plan", "--epsilon", 1, "--width", "±2"),
    (*PEOPLE_PLAN, "--spread", 9, "--density", 1),
    (*PEOPLE_PLAN, "--spread", 0),
    (*PEOPLE_PLAN, "--population", "normal:mean=5,sigma=2"),
    (*PEOPLE_PLAN, "--like", "none.db"),
    ("plan", "--records", 1000, "--epsilon", "nan"),
    ("plan", "--records", 1000, "--epsilon", 1, "--population", "banana"),
    ("plan", "--add-client", "a=1000,1", "--add-client", "a=1000,1"),
    ("simulate", "run", "gone.toml", "--store", "s.db"),
    ("simulate", "run", "wrong.toml", "--store", "s.db"),
    ("simulate", "run", "tiny.toml", "--store", "run.db"),
    ("simulate", "show", "run.db"),
    ("paper", "salary", "--data", "gone.csv"),
    ("completion", "tcsh"),
    ("verify", "data.csv"),
    ("verify", "old-record.json"),
    ("verify", "altered-record.json"),
    ("verify", "record.json", "--transcript", "run.db"),
    ("verify", "record.json", "--countersign"),
    ("release", "gone"),
    ("release", "federation/north"),
    ("serve", "gone"),
    ("enroll", "gone.json"),
    ("enroll", "altered-invitation.json"),
    ("join", "data.csv", "--source", "data.csv", "--value", "pay"),
    (*FEDERATION[:3], "--client", "n", "--range", 0, 1, "--records", 300),
    (*FEDERATION, "--range", 80, 0),
    (*FEDERATION, "--records", "nan"),
    ("federation", "status", "federation/organizer"),
    ("federation", "admit", "federation/organizer", "gone.json"),
    ("federation", "add", "federation/organizer", "west"),
    ("survey", "init", "survey", *SURVEY[3:]),
    (*SURVEY, "--range", 80, 0),
    (*SURVEY, "--codes", 0),
    ("survey", "status", "survey"),
    ("status", "altered-survey"),
    ("survey", "serve", "survey", "--address", "nowhere"),
    ("audit", "--epsilon", 1, "--off", 0),
    ("audit", "--epsilon", 1, "--command", "no-such-program-here"),
)


def call(**changed: Any) -> Callable[[], object]:
    """`estimate` on made-up people, with something changed."""
    given: dict[str, Any] = {"epsilon": 1, "range": (0, 100), "simulate": True, "rng": 1, "rounds": 20, **changed}
    data = given.pop("data", PEOPLE)
    return lambda: privatile.estimate(data, **given)


ASKED = Question("r1", 1, 0.5, 0.0, 50)

CALLS: dict[str, Callable[[], object]] = {
    "epsilon missing": call(epsilon=None),
    "epsilon of a client missing": call(epsilon={"north": 1.0}),
    "epsilon of a stranger": call(epsilon={"north": 1.0, "south": 1.0, "west": 1.0}),
    "range missing": call(range=None),
    "range of three": call(range=(0, 1, 2)),
    "an unknown keyword": call(eps=1),
    "a keyword nobody could mean": call(zzzz=1),
    "log as a keyword": call(log=True),
    "a level outside": call(q=1.5),
    "a level twice": call(q=(0.5, 0.5)),
    "curves": call(q="curves"),
    "own levels and groups": call(q={"north": 0.4, "south": 0.5}, by="sex"),
    "seed for real data": call(simulate=False),
    "simulation without a seed": call(rng=None),
    "simulation of a file": call(data="data.csv"),
    "text as numbers": call(data={"north": ["a", "b"]}),
    "nobody": call(data={"north": []}),
    "too few for the rounds": call(data={"north": [1.0] * 10}),
    "missing values that fail": call(data={"north": [1.0, float("nan")] * 100}, missing="fail"),
    "a flag as text": call(not_private="yes"),
    "weights by precision": call(client_weights="precision"),
    "weights below 0": call(client_weights={"north": -0.5, "south": 1.5}),
    "weights of another sum": call(client_weights={"north": 0.5, "south": 0.8}),
    "rounds as text": call(rounds="many"),
    "a client left out that is none": call(leave_out="west"),
    "everybody left out": call(leave_out=("north", "south")),
    "a column of a mapping": call(client="region"),
    "a question before the first round": lambda: Question(run="r1", round=0, level=0.5, query=0.0, length=1),
    "an answer that is too large": lambda: (
        (asked := Question("r1", 1, 0.5, 0.0, 50)) and Answer(asked, "north", 53).check(asked)
    ),
    "a question as text": lambda: Question.from_json("nothing"),
    "a truth rate of 1": lambda: privatile.RandomizedResponse(1.0),
    "a truth rate above 1": lambda: privatile.RandomizedResponse(1.5),
    "a loop of nobody": lambda: privatile.OnlineQuantile(0.5, epsilon={}, range=(0, 100)),
    "more yes than people": lambda: privatile.OnlineQuantile(0.5, epsilon={"all": 1.0}, range=(0, 100)).update(
        {"all": (6, 5)}
    ),
}


def prepare(folder: Path) -> None:
    """Damaged and foreign files beside the stored ones."""
    (folder / "nothing.csv").write_text("")
    (folder / "text.csv").write_text("region,who,pay\nn,a,4711\nn,b,4711oops\n")
    (folder / "latin.csv").write_bytes("région,pay\nn\xe9,5\n".encode("latin-1"))
    (folder / "junk.db").write_bytes(bytes(5000))
    (folder / "folder").mkdir()
    (folder / "wrong.toml").write_text('epsilom = 1\nrange = [1]\nmode = "locale"\nrounds = true\njson = true\n')
    with closing(sqlite3.connect(folder / "other.db")) as other:
        other.execute("CREATE TABLE t (x)")
    # Of a file that this program wrote and one that another wrote, different things are said.
    elsewhere = "UPDATE run SET version = '0.0.1', program = '0123456789abcdef'"
    here = f"UPDATE run SET program = '{program()}'"
    counts = "UPDATE rounds SET ones = '[9999, 0]' WHERE round = 5"
    for name, *statements in (
        ("format", "UPDATE run SET format = 99", elsewhere),
        ("blank", "DELETE FROM run"),
        ("counts", counts, elsewhere),
        ("counts-here", counts, here),
        ("gap", "DELETE FROM rounds WHERE round = 5", elsewhere),
    ):
        shutil.copy(folder / "run.db", folder / f"{name}.db")
        with closing(sqlite3.connect(folder / f"{name}.db")) as run, run:
            for statement in statements:
                run.execute(statement)
    shutil.copy(folder / "ledger.db", folder / "altered-ledger.db")
    with closing(sqlite3.connect(folder / "altered-ledger.db")) as ledger, ledger:
        ledger.execute("DELETE FROM answers WHERE rowid = (SELECT max(rowid) FROM answers)")
    record = (folder / "record.json").read_text(encoding="utf-8")
    (folder / "altered-record.json").write_text(record.replace('"records": 3000', '"records": 2999'))
    (folder / "old-record.json").write_text('{"body": {"privatile_release": 1}, "signatures": {"clients": {}}}')
    (folder / "altered-invitation.json").write_text('{"client": "a"}')
    shutil.copytree(folder / "groups", folder / "altered-groups")
    listed = folder / "altered-groups" / "groups.json"
    listed.write_text(json.dumps({**json.loads(listed.read_text(encoding="utf-8")), "format": 99}), encoding="utf-8")
    shutil.copytree(folder / "survey", folder / "altered-survey")
    study = folder / "altered-survey" / "survey.toml"
    study.write_text(study.read_text(encoding="utf-8").replace("epsilon = 3.0", "epsilon = 2.0"), encoding="utf-8")
