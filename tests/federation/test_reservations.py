"""A client reserves the records it has agreed to: two studies at one site, one ledger, never the same people."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sqlite3
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from privatile.cli.ledger import ledger as ledger_command
from privatile.client.ledger.account import SpendingRules
from privatile.client.ledger.datasets import statement
from privatile.client.ledger.ledger import BUSY_SECONDS, Ledger
from privatile.client.sources.databases import open_source
from privatile.core.messages import Question
from privatile.errors import AlreadyAnswered, SiteRefusal
from privatile.federation.coordinator.service import Control
from privatile.federation.operations.join import JoinOptions, prepare_client
from privatile.federation.operations.status import read_status
from privatile.federation.setup.folder import add_client
from privatile.federation.site.responder import SiteResponder, open_responder
from privatile.federation.site.service import ClientService
from privatile.federation.study import ClientAgreement
from tests.federation.kit import PATIENCE, Federation, make_study, tasks, until

pytestmark = pytest.mark.network

PEOPLE = 100


def two_studies(folder: Path, records: int, rounds: int = 10, people: int = PEOPLE) -> list[Federation]:
    """Two federations that ask the same site, whose folder and file are one."""
    made = []
    for name in ("one", "two"):
        study = make_study({"site0": ClientAgreement(1.0, 1.0, records)}, rounds)
        made.append(Federation(folder / name, study, sites=folder / "sites"))
    values = np.random.default_rng(5).normal(50.0, 10.0, people)
    for federation in made:
        federation.values = {"site0": values}
    made[0].sites["site0"].limits_file.write_text("max_epsilon = 1.0\n")  # either coordinator
    rows = "".join(f"{value:.6f},p{k}\n" for k, value in enumerate(values))
    (folder / "sites" / "site0" / "data.csv").write_text(f"x,who\n{rows}")
    return made


def client(federation: Federation) -> ClientService:
    """A client on the site's own file, as a process would open it."""
    source = open_source(federation.sites_folder / "site0" / "data.csv", value="x")
    return prepare_client(federation.invitation("site0"), federation.sites["site0"], source, JoinOptions("x"))


def reserved(federation: Federation) -> dict[str, int]:
    with federation.ledger("site0") as ledger:
        return dict(ledger.execute("SELECT run, reserved - next FROM runs").fetchall())


def check_nobody_answered_twice(federation: Federation, people: int = PEOPLE) -> int:
    with federation.ledger("site0") as ledger:
        spans = ledger.execute("SELECT start, stop FROM answers ORDER BY start").fetchall()
        assert ledger.verify() == len(spans)
    assert all(one[1] <= two[0] for one, two in itertools.pairwise(spans))
    assert all(0 <= start < stop <= people for start, stop in spans)
    return sum(stop - start for start, stop in spans)


def end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.terminate()  # a coordinator takes its broker with it
    for process in processes:
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()


def all_ended(processes: list[subprocess.Popen[bytes]]) -> bool:
    return all(process.poll() is not None for process in processes)


def serving_failed(processes: list[subprocess.Popen[bytes]]) -> bool:
    return any(process.poll() not in (None, 0) for process in processes)


AT_ONCE = {
    "too many": (PEOPLE // 2 + 10, False, ()),
    "people": (PEOPLE // 2, True, ("--person", "who")),
    # Records as in the first, both served as in the second.
    **({"fit": (PEOPLE // 2, True, ())} if os.environ.get("PRIVATILE_LONG") else {}),
}


@pytest.mark.parametrize(("records", "both", "options"), AT_ONCE.values(), ids=AT_ONCE)
def test_two_clients_at_once_with_one_ledger(
    tmp_path: Path, records: int, both: bool, options: tuple[str, ...]
) -> None:
    """Started together on a site that has no ledger yet: both reserve different people, or one is refused at once."""
    studies = two_studies(tmp_path, records)
    serving = [federation.start_serve() for federation in studies]
    joining = [federation.start_join("site0", *options) for federation in studies]
    try:
        with contextlib.suppress(TimeoutError):
            asyncio.run(until(lambda: all_ended(joining) or serving_failed(serving)))
        logs = {str(path): path.read_text()[-1000:] for path in tmp_path.glob("*/*.log")}
        assert all_ended(joining), logs
        codes = [process.wait() for process in joining]
        told = [(federation.folder / "site0.log").read_text() for federation in studies]
        if both:
            assert codes == [0, 0], told
            assert [process.wait(PATIENCE) for process in serving] == [0, 0]
            assert check_nobody_answered_twice(studies[0]) == PEOPLE
            with studies[0].ledger("site0") as ledger:
                assert statement(ledger).people == (PEOPLE if options else 0)
                assert statement(ledger).person_epsilon <= 1.0
        else:
            assert sorted(codes) == [0, 2], told
            refused = told[codes.index(2)]
            winner = studies[codes.index(0)]
            assert "left that may answer" in refused
            assert serving[codes.index(0)].wait(PATIENCE) == 0
            assert check_nobody_answered_twice(winner) == records
            with winner.ledger("site0") as ledger:
                assert ledger.execute("SELECT run FROM runs").fetchall() == [(winner.study.run,)]
    finally:
        end([*serving, *joining])


def test_a_reservation_holds_before_the_first_question_and_can_be_released(tmp_path: Path) -> None:
    one, two = two_studies(tmp_path, PEOPLE - 10)
    waiting = one.start_join("site0")  # no broker, no coordinator: it waits for them
    try:
        ledger = one.sites["site0"].ledger_file
        asyncio.run(until(lambda: ledger.exists() or waiting.poll() is not None))
        asyncio.run(until(lambda: one.study.run in reserved(one)))
        assert waiting.poll() is None
        assert reserved(one) == {one.study.run: PEOPLE - 10}
        late = two.start_join("site0")
        assert late.wait(PATIENCE) == 2
        told = (two.folder / "site0.log").read_text()
        assert "client site0 cannot answer with the 90 records that its invitation names: column 'x' has 10 " in told
        assert "'all'" not in told
        assert "To ask fewer, whoever made the study makes a new one with --records site0=10." in told
        assert f"Reserved, and not asked yet: 90 by run '{one.study.run}'." in told
        assert f"privatile ledger release {one.study.run} --ledger {ledger}" in told
    finally:
        end([waiting])
    assert CliRunner().invoke(ledger_command, ["release", one.study.run, "--ledger", str(ledger)]).exit_code == 0
    client(two)
    assert reserved(two)[two.study.run] == PEOPLE - 10
    with pytest.raises(AlreadyAnswered, match="Reserved, and not asked yet"):
        client(one)


@pytest.mark.parametrize("how", ["finished", "aborted", "stopped"])
def test_what_was_not_asked_is_free_once_the_run_is_over(tmp_path: Path, how: str) -> None:
    # A run that is to be cut short must not be over before somebody can: a second is a long time for 60 rounds.
    people, records, rounds = (100, 60, 10) if how == "finished" else (10_000, 6000, 6000)
    federation, other = two_studies(tmp_path, records, rounds, people)
    path = federation.directory.path / "control"

    async def scene() -> None:
        run = federation.open_run()
        async with federation.running_broker():
            site, coordinator = client(federation), federation.coordinator(run)
            async with tasks(site.run(), coordinator.run()) as (gone, _):
                if how != "finished":
                    await until(lambda: run.coordinator.done >= 2)
                if how == "aborted":
                    Control(path).request("abort")
                if how == "stopped":
                    site.stop()
                assert await asyncio.wait_for(gone, PATIENCE) == how
        run.store.close()

    asyncio.run(scene())
    asked = check_nobody_answered_twice(federation, people)
    assert 0 < asked <= 4000 or how == "finished"
    left = {"finished": 0, "aborted": 0, "stopped": records - asked}[how]
    assert reserved(federation) == {federation.study.run: left}
    if how == "stopped":  # it will be back
        with pytest.raises(AlreadyAnswered, match="Reserved, and not asked yet"):
            client(other)
    elif how == "aborted":
        client(other)
        assert reserved(federation)[other.study.run] == records


def responder_of(federation: Federation) -> SiteResponder:
    return open_responder(
        federation.study,
        "site0",
        open_source(federation.sites_folder / "site0" / "data.csv", value="x"),
        Ledger.open(federation.sites["site0"].ledger_file),
        SpendingRules(max_epsilon=1.0),
    )


def test_no_more_records_are_asked_than_agreed_to(tmp_path: Path) -> None:
    federation, _ = two_studies(tmp_path, 20)
    run = federation.study.run

    def ask(number: int, length: int) -> Question:
        return Question(run, number, 0.5, 50.0, length)

    responder = responder_of(federation)
    (first,) = responder.answer([ask(1, 15)])
    with pytest.raises(SiteRefusal, match="more records would be asked than the 20 agreed to"):
        responder.answer([ask(2, 6)])
    assert responder.link() == first.position  # nothing was answered
    assert responder.answer([ask(1, 15)]) == (first,)  # an old question is no new record
    responder.answer([ask(2, 5)])
    for again in (responder, responder_of(federation)):
        with pytest.raises(SiteRefusal, match="agreed to"):
            again.answer([ask(3, 1)])
        assert again.answer([ask(1, 15)]) == (first,)
    assert check_nobody_answered_twice(federation) == 20


def test_a_client_waits_for_the_client_of_another_study(tmp_path: Path) -> None:
    """A ledger that another process holds for longer than a commit takes is waited for."""
    federation, _ = two_studies(tmp_path, 20)
    responder = client(federation).core.responder
    holder = sqlite3.connect(federation.sites["site0"].ledger_file, isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")
    release = threading.Timer(BUSY_SECONDS + 1.0, lambda: holder.execute("ROLLBACK"))
    release.start()
    try:
        (answer,) = responder.answer([Question(federation.study.run, 1, 0.5, 50.0, 2)])
        assert 0 <= answer.ones <= 2
    finally:
        release.join()
        holder.close()


def test_a_client_with_an_outdated_invitation_says_what_it_waits_for_and_frees_what_it_reserved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, it waited in silence, its records stayed reserved, and the new invitation was refused for it."""
    monkeypatch.setattr("privatile.federation.site.service.SILENCE_SECONDS", 0.0)
    federation = Federation(tmp_path, make_study())
    stale = federation.client("site0", heartbeat=0.1)
    old, records = federation.study.run, federation.study.clients["site0"].records
    add_client(federation.directory, "west", 0.5, 40, 0.2)
    federation.study = federation.directory.study()

    async def scene() -> None:
        async with federation.running_broker(), tasks(stale.run()) as (gone,):
            await until(lambda: any("no coordinator of this study" in str(vars(line)) for line in caplog.records))
            assert reserved(federation) == {old: records}
            run = federation.open_run()
            async with tasks(federation.coordinator(run).run()):
                with pytest.raises(SiteRefusal, match=r"another version of this study.*is free again"):
                    await asyncio.wait_for(asyncio.shield(gone), PATIENCE)
            assert ("version", "site0") in {(event.kind, event.client) for event in run.journal.events()}
            run.store.close()

    asyncio.run(scene())
    assert reserved(federation) == {old: 0}
    assert " version site0: a hello with its signature names another version" in (
        read_status(federation.directory).to_text()
    )
    federation.client("site0")  # with the present invitation
