"""The Flower adapter, in Flower's own environment (`make test` and `make flower` make it)."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import shutil
import signal
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest
from privatile_flower import engine as flower
from privatile_flower.study import check_question, open_study_run

from privatile.api import in_process
from privatile.client.ledger.ledger import Ledger
from privatile.client.sources.source import open_source
from privatile.core.messages import Question
from privatile.errors import InputError, MissingExtra, SiteRefusal, StoreError
from privatile.federation.site.limits import SiteLimits
from privatile.federation.site.responder import open_desk
from privatile.federation.study.study import FederationStudy, study_toml
from privatile.server.coordinator import Coordinator
from privatile.server.store import RunStore
from tests.docs.test_pages import furnish
from tests.federation.flower_smoke import RoundCoins, position, transcript
from tests.federation.kit import REPOSITORY, Federation, make_study

BIN = REPOSITORY / ".venv-flower" / "bin"
LONGEST = 400.0
"""Seconds: a run over Flower that takes longer has hung."""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Flower's commands on the path, a home that is nobody's, and a watch on what would leave this machine."""
    if not (BIN / "flwr").exists():
        if os.environ.get("PRIVATILE_FLOWER") == "required":
            pytest.fail("Flower's environment is missing; `make .venv-flower/.test` sets it up")
        pytest.skip("FLOWER TESTS NOT RUN: `make flower` sets its environment up and runs them")
    home, watched = tmp_path / "home", tmp_path / "watched"
    home.mkdir()
    watched.mkdir()
    # Ray asks the cloud's metadata service where it runs, whatever its settings, unless this file says it.
    (home / "ray_bootstrap_config.yaml").write_text("{}\n")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("FLWR_", "RAY_", "XDG_"))}
    paths = [REPOSITORY / "tests" / "federation" / "flower_watch", REPOSITORY / "src", REPOSITORY]
    return {
        **kept,
        "HOME": str(home),
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PRIVATILE_WATCH": str(watched),
    }


def run(environment: dict[str, str], folder: Path, *arguments: str) -> str:
    """Python in Flower's environment; whatever it leaves in the background ends with it."""
    output = folder / "output.txt"
    with output.open("w") as file, (folder / "errors.txt").open("w") as errors:
        process = subprocess.Popen(
            [str(BIN / "python"), *arguments],
            cwd=folder, env=environment, stdout=file, stderr=errors, start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(LONGEST)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    text = output.read_text()
    assert code == 0, f"{text[-3000:]}\n{(folder / 'errors.txt').read_text()[-3000:]}"
    return text


def outside(environment: dict[str, str]) -> str:
    file = Path(environment["PRIVATILE_WATCH"], "outside")
    return file.read_text() if file.exists() else ""


def started(environment: dict[str, str]) -> set[str]:
    return set(Path(environment["PRIVATILE_WATCH"], "started").read_text().split())


def furnish_ledgers(study: FederationStudy, *folders: Path) -> None:
    """One ledger a client, the same in every folder: the same keys, so the same order of its records."""
    for folder in folders:
        folder.mkdir(exist_ok=True)
        (folder / "study.toml").write_text(study_toml(study))
    for name in study.clients:
        with Ledger.open(folders[0] / f"{name}-ledger.db") as ledger, ledger.transaction():
            pass
        for folder in folders[1:]:
            shutil.copy(folders[0] / f"{name}-ledger.db", folder)


# -- the same draws, the same transcript ---------------------------------------------------------------------------


def test_in_process_broker_and_flower_runs_agree_bit_for_bit(tmp_path: Path, environment: dict[str, str]) -> None:
    study = make_study(2, rounds=4, length=6, deadline=LONGEST)
    names = list(study.clients)
    federation = Federation(tmp_path / "federation", study)
    over_flower, local, changed = (tmp_path / name for name in ("flower", "local", "changed"))
    furnish_ledgers(study, over_flower, local, changed)
    for name in names:
        shutil.copy(local / f"{name}-ledger.db", federation.sites[name].ledger_file)
        lines = "\n".join(map(repr, federation.values[name].tolist()))
        (over_flower / f"{name}.csv").write_text(f"value\n{lines}\n")

    def in_this_process(folder: Path, turned: tuple[int, int, int] | None = None) -> Coordinator:
        coordinator = Coordinator(RunStore.create(folder / "run.db", study.run, study.spec))
        desks = [
            open_desk(
                federation.invitation(name),
                SiteLimits(1.0),
                open_source(federation.values[name], value=None),
                Ledger.open(folder / f"{name}-ledger.db"),
                coins=RoundCoins(k, turned=turned if k == 0 else None),
            )
            for k, name in enumerate(names)
        ]
        in_process.run(coordinator, [desk._responder for desk in desks])
        coordinator.store.close()
        return coordinator

    here = in_this_process(local)
    broker = asyncio.run(federation.run({name: RoundCoins(k) for k, name in enumerate(names)}))
    text = run(environment, over_flower, "-m", "tests.federation.flower_smoke", str(over_flower))

    rows = transcript(local / "run.db")
    assert len(rows) == 4
    assert all(None not in row[6] for row in rows)
    assert transcript(over_flower / "run.db") == rows
    assert [tuple(one)[:-1] for one in broker.store.rounds()] == rows
    for name in names:
        entry = position(local / f"{name}-ledger.db")
        assert entry[0] == 4
        assert position(over_flower / f"{name}-ledger.db") == entry
        assert position(federation.sites[name].ledger_file) == entry
    results = {coordinator.result().to_json() for coordinator in (here, broker.coordinator)}
    results.add(Coordinator(RunStore.open(over_flower / "run.db", read_only=True)).result().to_json())
    assert len(results) == 1
    assert study.run in text, "the ServerApp prints the result"
    # The control: one draw of one record in one round takes the other side, and the transcripts part there.
    in_this_process(changed, (1, 3, study.spec.clients[0].threshold))
    other = transcript(changed / "run.db")
    assert other[0] == rows[0]
    assert abs(other[1][6][0] - rows[1][6][0]) == 1
    assert other[1][6][1] == rows[1][6][1]
    assert other[2:] != rows[2:]
    assert outside(environment) == ""
    assert len(started(environment)) > 1, "Ray's processes are watched too"


# -- the ledger protects, whatever Flower does ---------------------------------------------------------------------


def test_no_record_answers_twice_whatever_flower_does(tmp_path: Path, environment: dict[str, str]) -> None:
    study = make_study(2, rounds=4, length=6)
    folder = tmp_path / "replays"
    furnish_ledgers(study, folder)
    facts = json.loads(run(environment, folder, "-m", "tests.federation.flower_replays", str(folder)).splitlines()[-1])

    client = facts["one client"]
    assert client["again"] == [True, True, True], "a reset client, a new node: the stored count"
    assert client["entries"] == client["entries after"] == 1
    assert 0 <= client["count"] <= 6
    refused = {what: ["Equivocation", False, 1] for what in ("query", "length", "step")}
    refused |= {what: ["SiteRefusal", False, 1] for what in ("level", "run", "range", "round")}
    assert client["changed"] == refused
    assert client["mixed"] == ["Equivocation", False, 1], "one changed question spoils the message"
    assert client["next"] == [None, True, 2], "and a proper new round is answered"
    assert client["new ledger"] == ["LedgerError", False, False]
    for limit in ("poorer", "no limit", "stranger"):
        assert client[limit] == ["InputError", False, 0]

    assert facts["failure"] == {"client": "site0", "failed": "ValueError"}, "no text of an error crosses"

    runs = facts["runs"]
    assert runs["quiet"] is None
    assert runs["restarting"] == [None, True], "restarted before every round: the quiet run's bits"
    assert runs["repeating"] == [None, True], "every stale question again: the quiet run's bits"
    assert runs["fading"][0].startswith("RunPaused: client site1 did not answer")
    assert runs["fading"][1] == [False, False, True], "stood in for while patience lasts"
    assert runs["resumed"] == [None, 4]
    assert runs["impostor"][0].startswith("RunPaused: client site1 did not answer")
    # A node that answers in another's name is silent itself, and the other's count stays what it was.
    first, second, *_ = runs["quiet counts"]
    assert runs["impostor"][1] == [first, [second[0], None]]
    assert runs["gone back"].startswith("SiteRefusal: client site0 refuses (LedgerError)")
    assert outside(environment) == ""


# -- SuperLink and SuperNodes --------------------------------------------------------------------------------------


def test_the_page_runs_a_study_over_superlink_and_supernodes(tmp_path: Path, environment: dict[str, str]) -> None:
    """docs/flower.md as it stands: TLS on loopback, a SuperLink, two SuperNodes, `flwr run`."""
    folder = tmp_path / "page"
    folder.mkdir()
    furnish(folder)
    shutil.copytree(REPOSITORY / "apps", folder / "apps", ignore=shutil.ignore_patterns("__pycache__"))
    run(
        environment, folder,
        str(REPOSITORY / "tests" / "docs" / "page_blocks.py"), str(REPOSITORY / "docs" / "flower.md"),
    )  # fmt: skip
    rows = transcript(folder / "run.db")
    store = RunStore.open(folder / "run.db", read_only=True)
    assert store.finished is not None
    assert len(rows) == store.spec.rounds
    for place, client in enumerate(store.spec.clients):
        path = folder / f"{client.name}-ledger.db"
        assert position(path)[0] == len(rows)
        with contextlib.closing(sqlite3.connect(path)) as ledger:
            spans = ledger.execute("SELECT start, stop, ones FROM answers ORDER BY sequence").fetchall()
        assert [ones for _, _, ones in spans] == [row[6][place] for row in rows]
        # Every record once: the spans follow each other without a gap or an overlap, inside one pass of the order.
        assert [start for start, _, _ in spans] == [0, *(stop for _, stop, _ in spans[:-1])]
        assert spans[-1][1] == client.records
    store.close()
    # Every process was watched, down to the ones that Flower starts itself, and none reached outside.
    commands = {"flower-superlink", "flower-supernode", "flower-superexec", "flwr", "flwr-serverapp", "flwr-clientapp"}
    assert commands <= started(environment)
    assert outside(environment) == ""


def test_the_watch_sees_what_would_leave(tmp_path: Path, environment: dict[str, str]) -> None:
    """The control: with telemetry on, as Flower comes, the attempt is seen and denied."""
    code = "from flwr.supercore import telemetry as t; print(t.create_event(t.EventType.PING, None))"
    told = run({**environment, "FLWR_TELEMETRY_ENABLED": "1"}, tmp_path, "-c", code)
    assert told.strip() == "disabled"
    assert "telemetry.flower.ai" in outside(environment)
    Path(environment["PRIVATILE_WATCH"], "outside").unlink()
    run({**environment, "FLWR_TELEMETRY_ENABLED": "0"}, tmp_path, "-c", code)
    assert outside(environment) == ""


# -- without Flower ------------------------------------------------------------------------------------------------


def test_a_site_answers_its_own_study_alone() -> None:
    study = make_study(2, rounds=4, length=6)
    asked = Question(study.run, 4, study.spec.plan().level, 100.0, 6)
    check_question(study, asked)
    for changed in ({"run": "another"}, {"round": 5}, {"query": 101.0}, {"level": 0.25}):
        with pytest.raises(SiteRefusal):
            check_question(study, Question(**{**asked.to_dict(), **changed}))


def test_a_run_over_flower_is_begun_once_and_goes_on(tmp_path: Path) -> None:
    study, other = make_study(), make_study()
    settings: dict[str, Any] = {"study": str(tmp_path / "study.toml"), "store": str(tmp_path / "run.db")}
    (tmp_path / "study.toml").write_text(study_toml(study))
    for _ in range(2):
        coordinator = open_study_run(settings)
        assert coordinator.run == study.run
        coordinator.store.close()
    (tmp_path / "study.toml").write_text(study_toml(other))
    with pytest.raises(StoreError, match="another run"):
        open_study_run(settings)
    with pytest.raises(InputError, match="store must be given"):
        open_study_run({"study": settings["study"]})


def test_without_flower_the_cure_is_told() -> None:
    if importlib.util.find_spec("flwr") is not None:
        pytest.skip("Flower is installed here")
    with pytest.raises(MissingExtra, match=r"privatile\[flower\]"):
        flower.client_app(lambda context: contextlib.nullcontext(context))
    with pytest.raises(MissingExtra, match=r"privatile\[flower\]"):
        flower.server_app(lambda context: context)
