"""Golden values: what a specification, run files, results, a release record, studies and commands say, seeded.

`python -m tests.golden.make`, in the repository's root, writes values.json and the snapshots again. Do that only where
a value or a sentence is meant to change, and say in the commit why it does. `values`, `snapshots`, `looks`, `replays`
and `stored` make one kind; the last three are never made with the others (see the modules `replays` and `stored`).
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from click.testing import CliRunner
from studies.coverage.coverage import SEED, cell_seed, make_cell
from studies.coverage.scores import score

from privatile import QuantileResult, RandomizedResponse, estimate
from privatile.cli import main as command
from privatile.core.messages import Answer, Position
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.federation.operations.record import release, verify_record
from privatile.federation.study import ClientAgreement
from privatile.federation.wire import RoundAnswers, RoundQuestions, Signed
from privatile.paper.tables import compare, paper_experiment
from privatile.simulation.default_design import displayed_intervals, simulate
from privatile.simulation.experiment import Protocol
from privatile.simulation.runner import ExperimentStore, run_experiment
from tests.federation.kit import Federation, make_study

VALUES = Path(__file__).with_name("values.json")

RUN = "(the run's name)"
"""Stands for what is drawn again in every run."""


def people(sizes: dict[str, int], middle: float = 50.0, spread: float = 10.0) -> dict[str, Any]:
    """Made-up normal values, each client's a little above the last one's; the quantiles themselves, nothing drawn."""
    ranks = {name: [(i + 0.5) / size for i in range(size)] for name, size in sizes.items()}
    return {
        name: np.array([NormalDist(middle + 2.0 * k, spread).inv_cdf(rank) for rank in ranks[name]])
        for k, name in enumerate(sizes)
    }


THREE = people({"east": 4000, "north": 9000, "south": 6000})
TWO = people({"left": 8000, "right": 8000}, 50.0)
FEW = people({"east": 150, "north": 300, "south": 200})
INCOMES = {name: np.exp(10.0 + (values - 50.0) / 20.0) for name, values in THREE.items()}
AGES = {name: np.where(np.arange(values.size) % 10 == 0, np.nan, np.floor(values)) for name, values in THREE.items()}
BUDGETS = {"east": 1.0, "north": 0.5, "south": 2.0}


def specs() -> dict[str, object]:
    """Digests and texts of specifications."""
    coins = [RandomizedResponse.from_epsilon(epsilon).threshold for epsilon in (1.0, 0.5)]
    north = ClientSpec("north", coins[0], 0.25, 1000)
    south = ClientSpec("south", coins[1], 0.75, 3000, file_records=4000)
    one = RunSpec("salary", (0.5,), (north, south), "linear", 0.0, 100.0)
    three = RunSpec(
        "salary",
        (0.25, 0.5, 0.9),
        (replace(north, weight=0.5), replace(south, weight=0.5)),
        "log",
        1e3,
        1e6,
        design="rounds",
        rounds=50,
        simultaneous=True,
        dither=10.0,
    )
    return {
        name: {"digest": spec.digest, "questions": spec.questions.digest, "json": spec.to_json()}
        for name, spec in (("one level", one), ("three levels", three))
    }


def run_file(path: Path) -> dict[str, object]:
    """A run file's tables as SQLite holds them, without the run's name, times and versions."""
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        tables = [row["name"] for row in connection.execute("SELECT name FROM sqlite_master ORDER BY name")]
        (head,) = connection.execute("SELECT * FROM run").fetchall()
        rounds = connection.execute("SELECT * FROM rounds ORDER BY level, round").fetchall()
    kept = [key for key in rounds[0].keys() if key != "at"]  # noqa: SIM118  a row's own iteration gives its values
    return {
        "tables": tables,
        "format": head["format"],
        "spec": head["spec"],
        "digest": head["digest"],
        "columns": kept,
        "rounds": [[row[key] for key in kept] for row in rounds],
    }


def told(result: QuantileResult) -> dict[str, object]:
    """A result as --json prints it, without the run's name and date."""
    (facts,) = json.loads(result.to_json())["results"]
    return without_names(facts)


def without_names(facts: dict[str, Any]) -> dict[str, Any]:
    """Facts of a result without the run's name and date."""
    return {key: value for key, value in facts.items() if key not in ("run", "date")}


def runs(folder: Path) -> dict[str, object]:
    """Simulated runs: three with their files, results of several kinds, the text of one, and a comparison."""
    auto, tuned, log, other = (folder / f"{name}.db" for name in ("auto", "tuned", "log", "other"))
    common: dict[str, Any] = {"range": (0.0, 100.0), "simulate": True}
    # Rounds and seeds are chosen so that the last bit of a number decides nothing: how the explanation rounds a number
    # of relaxations that ends in ½, or in which group the misfit counts a round that lies on the border of two.
    first = estimate(THREE, epsilon=BUDGETS, rng=1, rounds=60, save=auto, **common)
    paper = estimate(FEW, epsilon=1, rng=2, design="paper-log", save=log, **common)
    continuous = estimate(THREE, epsilon=BUDGETS, rng=1, rounds=60, value_kind="continuous", save=tuned, **common)
    estimate(TWO, epsilon=1, rng=13, rounds=90, save=other, **common)
    levels = estimate(THREE, q=(0.25, 0.5, 0.9), epsilon=2, rng=14, rounds=90, simultaneous=True, **common)
    own = {"east": 0.4, "north": 0.5, "south": 0.6}
    incomes = {"scale": "log", "range": (1e3, 1e6), "client_weights": "size"}
    results = {
        "auto": first,
        "declared continuous": continuous,
        "whole years": estimate(AGES, epsilon=2, rng=9, rounds=61, value_kind="whole", **common),
        "paper-log": paper,
        "target file": estimate(THREE, epsilon=BUDGETS, rng=5, rounds=60, target="file", **common),
        "until width": estimate(THREE, epsilon=3, rng=6, rounds=61, until_width=4.0, **common),
        "log scale": estimate(INCOMES, epsilon=1, rng=7, rounds=60, **{**common, **incomes}),
        "levels of their own": estimate(FEW, q=own, epsilon=1, rng=8, design="rounds", rounds=30, **common),
        "heaped, some missing": estimate(AGES, epsilon=1, rng=9, rounds=61, dither=1.0, missing="drop", **common),
    }
    compared = json.loads(said("compare", auto, other, "--disjoint", "--json"))
    return {
        "run files": {"auto": run_file(auto), "declared continuous": run_file(tuned), "paper-log": run_file(log)},
        "results": {**{name: told(one) for name, one in results.items()}, "levels": [told(one) for one in levels]},
        "text": first.to_text().replace(first.run, RUN).splitlines(),
        # The first result stands under "results" already.
        "comparison": {key: value for key, value in compared.items() if key not in ("first", "second", "privatile")},
        "compared with": without_names(compared["second"]),
        "comparison text": said("compare", auto, other, "--disjoint").splitlines(),
    }


def said(*arguments: object) -> str:
    """What the command prints."""
    done = CliRunner().invoke(command, [str(argument) for argument in arguments])
    if done.exit_code:
        raise RuntimeError(done.output)
    return done.output


def released(folder: Path) -> dict[str, object]:
    """A release record of a federation whose counts are drawn here: real keys and signatures, no broker.

    Left out: keys, signatures and the digest over them, which are drawn every time; and the program's hash and version.
    """
    clients = {
        name: ClientAgreement(epsilon, 0.25, 40_000)
        for name, epsilon in (("east", 1.0), ("north", 0.5), ("south", 2.0))
    }
    clients["south"] = replace(clients["south"], weight=0.5)
    study = make_study(clients, 40, levels=(0.5, 0.75), identity="0123456789ab", quorum=2, patience=5)
    federation = Federation(folder, study, port=4222)
    keys = {name: site.key() for name, site in federation.sites.items()}
    run = federation.open_run()
    rng = np.random.default_rng(1)
    messages = []
    while (rounds := run.coordinator.rounds()) is not None:
        number = rounds[0].questions[0].round
        answers: dict[str, Signed[RoundAnswers]] = {}
        for k, (name, terms) in enumerate(clients.items()):
            if (name, number) == ("north", 7):
                continue  # one round without an answer of this client
            asked = [one.questions[k] for one in rounds]
            yes = [0.5 + terms.mechanism.truth_rate * (0.5 - NormalDist(50, 10).cdf(one.query)) for one in asked]
            ones = [int(rng.binomial(one.length, share)) for one, share in zip(asked, yes, strict=True)]
            message = RoundAnswers.of(
                study.digest,
                [Answer(one, name, count, Position(number)) for one, count in zip(asked, ones, strict=True)],
            )
            signature = message.pack(keys[name]).rpartition(b"\n")[2].decode()
            answers[name] = Signed(message, keys[name].public.signer, signature)
            messages.append(message.text().decode())
        if number == 1:
            questions = {name: tuple(one.questions[k] for one in rounds) for k, name in enumerate(clients)}
            messages.append(RoundQuestions.of(study.digest, questions).text().decode())
        counts = [
            [answers[name].body.ones[place] if name in answers else None for name in clients]
            for place in range(len(rounds))
        ]
        run.coordinator.accept(counts, run.journal.evidence_rows(number, answers))
    run.coordinator.finish()
    run.journal.note("finished", "all rounds are done")
    run.store.close()
    record = release(federation.directory)
    checked = verify_record(record, federation.directory.store_file)
    body = {
        key: value
        for key, value in record["body"].items()
        if key not in ("program", "software", "coordinator", "clients", "transcript")
    }
    body["results"] = [{key: value for key, value in one.items() if key != "date"} for one in body["results"]]
    return {
        "body": body,
        "rounds": record["body"]["transcript"]["rounds"],
        "messages of the first round": messages[:4],
        "check": re.sub(r"(\w{4}-){7}\w{4}", "(its fingerprint)", checked.to_text()).splitlines(),
    }


def coverage_rows() -> dict[str, object]:
    """Rows of the coverage study with few runs, and the intervals that the first runs show.

    The cells are such that the last bit of a number decides nothing; with a quantile in the middle of its range, for
    one, it could decide to which of two sides the search goes.
    """
    common: dict[str, Any] = {"group": "golden", "information": 2500}
    cells = [
        make_cell(**common, family="log-normal", clients=1, truth_rate=0.25, level=0.5),
        make_cell(**common, family="hete-l", clients=10, truth_rate="unequal", sizes="unequal", level=0.8),
        make_cell(**common, family="t3", clients=10, truth_rate=0.5, level=0.95),
        # Low information, where the law of the interval is corrected.
        make_cell(**{**common, "information": 300}, family="cauchy", clients=10, truth_rate=0.5, level=0.6),
    ]
    found: dict[str, object] = {}
    for cell in cells:
        seed = cell_seed(cell, SEED)
        runs = simulate(cell, cell.plan, 5, np.random.default_rng(seed))
        intervals = displayed_intervals(runs)[0]._asdict()
        rows = {name: values.tolist() for name, values in intervals.items()}
        found[cell.name] = {"score": score(cell, 40, seed)._asdict(), "seed": seed, "shown": rows}
    return found


PAPER_CELLS = {
    "table1": [("homogeneous", "0.5", "0.25", "10000")],
    "table2": [("Hete L", "0.8", "hetero", "10000"), ("Hete D", "0.5", "0.9", "10000")],
    "table3": [("homogeneous", "low", "hetero", "5000")],
    "table4": [("Hete D", "0.5", "hetero", "5000")],
}
"""Population, level, truth rate and size; of each, all methods."""


def paper_rows(folder: Path) -> dict[str, object]:
    """Rows of the paper's tables, both protocols, with four replications."""
    found: dict[str, object] = {}
    protocols: Sequence[Protocol] = ("independent", "published")
    for protocol in protocols:
        rows = []
        for table, wanted in PAPER_CELLS.items():
            whole = paper_experiment(table, protocol, replications=4)
            entries = [
                entry
                for entry in whole.entries
                if tuple(value for label, value in entry.labels if label != "method") in wanted
            ]
            study = replace(whole, entries=tuple(entries))
            with ExperimentStore.open_for(folder / f"{protocol}-{table}.db", study) as store:
                run_experiment(study, store, threads=1)
                rows += [comparison.row() for comparison in compare(table, store.rows())]
        found[protocol] = {"columns": list(rows[0]), "rows": [list(row.values()) for row in rows]}
    return found


def plans() -> dict[str, object]:
    """What `privatile plan` prints."""
    named = ("plan", "--q", 0.8, "--add-client", "north=20000,1,1", "--add-client", "south=5000,2,3", "--width", 0.02)
    checked = ("plan", "--clients", 4, "--records", 5000, "--epsilon", 1, "--population", "normal:50,10", "--runs", 20)
    return {
        "named": json.loads(said(*named, "--json")),
        "named, as text": said(*named).splitlines(),
        "checked": json.loads(said(*checked, "--json")),
    }


def produce() -> dict[str, object]:
    """All values, as JSON has them."""
    folder = Path(tempfile.mkdtemp(prefix="golden-"))
    try:
        values = {
            "specs": specs(),
            "runs": runs(folder),
            "release": released(folder),
            "coverage": coverage_rows(),
            "paper": paper_rows(folder),
            "plans": plans(),
        }
    finally:
        shutil.rmtree(folder)
    plain: dict[str, object] = json.loads(json.dumps(values, allow_nan=False))
    return plain


def pretty(value: object, indent: str = "") -> str:
    """JSON for people: sorted keys, one thing a line, but a list of plain things on one line."""
    deeper = indent + " "
    if isinstance(value, dict) and value:
        parts = [f"{json.dumps(key, ensure_ascii=False)}: {pretty(value[key], deeper)}" for key in sorted(value)]
        return "{\n" + ",\n".join(deeper + part for part in parts) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(one, dict | list) or len(str(one)) > 40 for one in value):
        return "[\n" + ",\n".join(deeper + pretty(one, deeper) for one in value) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def make_values() -> None:
    """Write the values again."""
    VALUES.write_text(pretty(produce()) + "\n", encoding="utf-8")


def main() -> None:
    """Write what was named, or values and snapshots."""
    from tests.golden import replays, snapshots, stored

    kinds: dict[str, Callable[[], None]] = {
        "values": make_values,
        "snapshots": snapshots.make,
        "looks": replays.make_looks,
        "replays": replays.make,
        "stored": stored.make,
    }
    for name in sys.argv[1:] or ("values", "snapshots"):
        kinds[name]()


if __name__ == "__main__":
    main()
