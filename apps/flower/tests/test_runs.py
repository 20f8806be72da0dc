"""Whole runs over Flower: the same bits as everywhere else, whatever Flower does; and the pages' commands.

What starts Flower's own processes takes a minute: it runs where PRIVATILE_LONG=1.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.cli.build import build_fab_from_disk

from conftest import REPOSITORY, TESTS
from grid import Grid, Prepare, furnish_data, furnish_ledgers, run_over_grid
from known_draws import RoundCoins, counts, position, transcript
from privatile.api.local_run import ask_rounds
from privatile.client.ledger.account import SpendingRules
from privatile.client.ledger.ledger import Ledger
from privatile.client.sources.databases import open_source
from privatile.core.messages import Answer, Question
from privatile.errors import InputError, StoreError
from privatile.federation.site.responder import open_responder
from privatile.federation.study import FederationStudy, study_toml
from privatile.run.coordinator import Coordinator
from privatile.run.run_file import RunStore
from privatile_flower import server
from privatile_flower.server import open_run
from privatile_flower.study import RECORD
from tests.federation.kit import Federation, make_study

LONGEST = 400.0
"""Seconds: a run over Flower that takes longer has hung."""

long = pytest.mark.skipif(
    os.environ.get("PRIVATILE_LONG") != "1",
    reason="starts Flower's processes: run it with PRIVATILE_LONG=1 make flower",
)


@pytest.fixture(autouse=True)
def _short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PAUSE", 0.01)


def run_python(environment: dict[str, str], folder: Path, *arguments: str) -> str:
    """What Python prints; whatever it leaves in the background ends with it."""
    output, errors = folder / "output.txt", folder / "errors.txt"
    with output.open("w") as out, errors.open("w") as err:
        process = subprocess.Popen(
            [sys.executable, *arguments], cwd=folder, env=environment, stdout=out, stderr=err, start_new_session=True
        )
        try:
            code = process.wait(LONGEST)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert code == 0, f"{output.read_text()[-3000:]}\n{errors.read_text()[-3000:]}"
    return output.read_text()


def started(watched: Path) -> set[str]:
    return set((watched / "started").read_text().split())


# -- the same draws, the same transcript ---------------------------------------------------------------------------


def over_grid(study: FederationStudy, folder: Path, environment: dict[str, str], watched: Path) -> None:
    assert run_over_grid(folder, study) is None


def in_simulation(study: FederationStudy, folder: Path, environment: dict[str, str], watched: Path) -> None:
    text = run_python(environment, folder, str(TESTS / "known_draws.py"), str(folder))
    assert study.run in text, "the ServerApp prints the result"
    assert len(started(watched)) > 1, "Ray's processes are watched too"


@pytest.mark.parametrize("carry", [over_grid, pytest.param(in_simulation, marks=long)])
def test_in_process_broker_and_flower_runs_agree_bit_for_bit(
    tmp_path: Path, environment: dict[str, str], watched: Path, carry: Callable[..., None]
) -> None:
    study = make_study(2, rounds=4, length=6, deadline=LONGEST)
    names = list(study.clients)
    federation = Federation(tmp_path / "federation", study)
    over_flower, local, changed = (tmp_path / name for name in ("flower", "local", "changed"))
    furnish_ledgers(study, over_flower, local, changed)
    furnish_data(study, over_flower)
    for name in names:
        shutil.copy(local / f"{name}-ledger.db", federation.sites[name].ledger_file)

    def in_this_process(folder: Path, turned: tuple[int, int, int] | None = None) -> Coordinator:
        coordinator = Coordinator(RunStore.create(folder / "run.db", study.run, study.spec))
        sites = [
            open_responder(
                study,
                name,
                open_source(federation.values[name], value=None),
                Ledger.open(folder / f"{name}-ledger.db"),
                SpendingRules(max_epsilon=1.0),
                coins=RoundCoins(k, turned=turned if k == 0 else None),
            )
            for k, name in enumerate(names)
        ]
        ask_rounds(coordinator, [site._responder for site in sites])
        coordinator.store.close()
        return coordinator

    here = in_this_process(local)
    broker = asyncio.run(federation.run({name: RoundCoins(k) for k, name in enumerate(names)}))
    carry(study, over_flower, environment, watched)

    rows = transcript(local / "run.db")
    assert len(rows) == 4
    assert all(None not in row[3] for row in rows)
    assert transcript(over_flower / "run.db") == rows
    assert [tuple(stored)[:-1] for stored in broker.store.rounds()] == rows
    for name in names:
        entry = position(local / f"{name}-ledger.db")
        assert entry[0] == 4
        assert position(over_flower / f"{name}-ledger.db") == entry
        assert position(federation.sites[name].ledger_file) == entry
    results = [coordinator.result() for coordinator in (here, broker.coordinator)]
    results.append(Coordinator(RunStore.open(over_flower / "run.db", read_only=True)).result())
    assert len({replace(result, date=None).to_json() for result in results}) == 1  # begun at different times
    # The control: one draw of one record in one round takes the other side, and the transcripts differ from there on.
    in_this_process(changed, (1, 3, study.spec.clients[0].threshold))
    other = transcript(changed / "run.db")
    assert other[0] == rows[0]
    assert abs(other[1][3][0] - rows[1][3][0]) == 1
    assert other[1][3][1] == rows[1][3][1]
    assert other[2:] != rows[2:]


# -- the ledger protects, whatever Flower does ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def study() -> FederationStudy:
    return make_study(2, rounds=4, length=6)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory, study: FederationStudy) -> Path:
    """A folder with an undisturbed run, and with the ledgers as they were before it (NAME-first.db)."""
    folder = tmp_path_factory.mktemp("quiet")
    furnish_ledgers(study, folder)
    furnish_data(study, folder)
    for name in study.clients:
        shutil.copy(folder / f"{name}-ledger.db", folder / f"{name}-first.db")
    assert run_over_grid(folder, study) is None
    return folder


@pytest.fixture
def folder(tmp_path: Path, study: FederationStudy, quiet: Path) -> Path:
    """The same records and ledgers, before any run."""
    shutil.copy(quiet / "study.toml", tmp_path)
    for name in study.clients:
        shutil.copy(quiet / f"{name}.csv", tmp_path)
        shutil.copy(quiet / f"{name}-first.db", tmp_path / f"{name}-ledger.db")
    return tmp_path


def restarted(grid: Grid, nodes: dict[str, int]) -> None:
    """Every client is restarted before every round: another node, an empty state, a fresh process."""

    def before() -> None:
        for node in list(grid.nodes):
            grid.nodes[node + 10] = grid.nodes.pop(node)

    grid.before = before


def repeated(grid: Grid, nodes: dict[str, int]) -> None:
    """Every earlier question is delivered again."""
    grid.repeats = True


def fading(grid: Grid, nodes: dict[str, int]) -> None:
    """The second client falls silent after the second round."""
    grid.before = lambda: grid.silent.update({nodes["site1"]} if grid.sent > 3 else ())


def forging(grid: Grid, nodes: dict[str, int]) -> None:
    """After the first round the second client's node answers in the first client's name, and says yes for everybody."""
    honest, settings = grid.nodes[nodes["site1"]]

    def forge(message: Message, where: Context) -> Message:
        asked = [Question.from_json(text) for text in message.content[RECORD]["questions"]]
        if asked[0].round == 1:
            return honest(message, where)
        answers = [Answer(one, "site0", one.length).to_json() for one in asked]
        record = ConfigRecord({"client": "site0", "answers": answers})
        return Message(RecordDict({RECORD: record}), reply_to=message)

    grid.nodes[nodes["site1"]] = forge, settings


@pytest.mark.parametrize("disturb", [restarted, repeated])
def test_restarts_and_repeated_messages_change_no_bit(
    study: FederationStudy, quiet: Path, folder: Path, disturb: Prepare
) -> None:
    assert run_over_grid(folder, study, disturb) is None
    assert transcript(folder / "run.db") == transcript(quiet / "run.db")
    for name in study.clients:
        assert position(folder / f"{name}-ledger.db") == position(quiet / f"{name}-ledger.db")


def test_a_silent_client_is_stood_in_for_while_patience_lasts(study: FederationStudy, folder: Path) -> None:
    assert str(run_over_grid(folder, study, fading)).startswith("RunPaused: client site1 did not answer")
    assert [None in ones for ones in counts(folder / "run.db")] == [False, False, True]
    # Started again with the client back, the run continues and ends.
    assert run_over_grid(folder, study) is None
    assert len(counts(folder / "run.db")) == 4


def test_a_ledger_put_back_in_mid_run_is_refused(study: FederationStudy, quiet: Path, folder: Path) -> None:
    run_over_grid(folder, study, fading)
    shutil.copy(quiet / "site0-first.db", folder / "site0-ledger.db")
    assert str(run_over_grid(folder, study)).startswith("SiteRefusal: client site0 refuses (LedgerError)")


def test_a_node_that_answers_in_anothers_name_is_silent_itself(
    study: FederationStudy, quiet: Path, folder: Path
) -> None:
    assert str(run_over_grid(folder, study, forging)).startswith("RunPaused: client site1 did not answer")
    first, second, *_ = counts(quiet / "run.db")
    assert counts(folder / "run.db") == [first, (second[0], None)], "the other client's count stays what it was"


def test_a_run_over_flower_is_begun_once_and_continues(tmp_path: Path) -> None:
    study, other = make_study(), make_study()
    settings: dict[str, Any] = {"study": str(tmp_path / "study.toml"), "store": str(tmp_path / "run.db")}
    (tmp_path / "study.toml").write_text(study_toml(study))
    for _ in range(2):
        coordinator = open_run(settings)
        assert coordinator.run == study.run
        coordinator.store.close()
    (tmp_path / "study.toml").write_text(study_toml(other))
    with pytest.raises(StoreError, match="another run"):
        open_run(settings)
    with pytest.raises(InputError, match="store must be given"):
        open_run({"study": settings["study"]})


# -- SuperLink and SuperNodes --------------------------------------------------------------------------------------


def test_the_bundle_that_flower_sends_to_sites_holds_no_code() -> None:
    with zipfile.ZipFile(io.BytesIO(build_fab_from_disk(TESTS.parent))) as bundle:
        names = bundle.namelist()
    assert "pyproject.toml" in names
    assert [name for name in names if name.endswith(".py")] == []


@long
def test_the_page_runs_a_study_over_superlink_and_supernodes(
    tmp_path: Path, environment: dict[str, str], watched: Path
) -> None:
    """docs/flower.md as it stands: TLS on loopback, a SuperLink, two SuperNodes, `flwr run`."""
    folder = tmp_path / "page"
    folder.mkdir()
    for k, name in enumerate(("north", "south")):
        salaries = 40_000 * np.exp(0.6 * np.random.default_rng(k).standard_normal(2_000))
        (folder / f"{name}.csv").write_text("salary\n" + "\n".join(f"{salary:.2f}" for salary in salaries) + "\n")
    shutil.copytree(REPOSITORY / "apps", folder / "apps", ignore=shutil.ignore_patterns("__pycache__"))
    run_python(
        environment,
        folder,
        str(REPOSITORY / "tests" / "docs" / "page_blocks.py"),
        str(REPOSITORY / "docs" / "flower.md"),
    )
    rows = counts(folder / "run.db")
    store = RunStore.open(folder / "run.db", read_only=True)
    assert store.finished is not None
    assert len(rows) == store.spec.rounds
    for place, client in enumerate(store.spec.clients):
        path = folder / f"{client.name}-ledger.db"
        assert position(path)[0] == len(rows)
        with contextlib.closing(sqlite3.connect(path)) as ledger:
            spans = ledger.execute("SELECT start, stop, ones FROM answers ORDER BY sequence").fetchall()
        assert [ones for _, _, ones in spans] == [row[place] for row in rows]
        # Every record once: the spans follow each other without a gap or an overlap, inside one pass of the order.
        assert [start for start, _, _ in spans] == [0, *(stop for _, stop, _ in spans[:-1])]
        assert spans[-1][1] == client.records
    store.close()
    # Every process was watched, including the ones that Flower starts itself.
    commands = {"flower-superlink", "flower-supernode", "flower-superexec", "flwr", "flwr-serverapp", "flwr-clientapp"}
    assert commands <= started(watched)


@long
def test_the_watch_sees_what_would_leave(tmp_path: Path, environment: dict[str, str], watched: Path) -> None:
    """The control: with telemetry on, Flower's default, the attempt is seen and denied."""
    code = "from flwr.supercore import telemetry as t; print(t.create_event(t.EventType.PING, None))"
    told = run_python({**environment, "FLWR_TELEMETRY_ENABLED": "1"}, tmp_path, "-c", code)
    assert told.strip() == "disabled"
    assert "telemetry.flower.ai" in (watched / "outside").read_text()
    (watched / "outside").unlink()
    run_python(environment, tmp_path, "-c", f"import privatile_flower\n{code}")
