"""Records of missed rounds: asked later where no coin was drawn for them, and never where one was.

Real sites with their ledgers, a real run file and the coordinator's own intake, without a broker.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privatile
from privatile.core.messages import Answer, Position
from privatile.errors import StoreError
from privatile.federation.coordinator.intake import AnswerIntake, LateLink
from privatile.federation.operations.record import release, verify_record
from privatile.federation.operations.serve import roster_signers
from privatile.federation.study import ClientAgreement
from privatile.federation.wire import RoundAnswers
from privatile.records import Checks, CountersignRefused
from privatile.run.coordinator import Coordinator
from privatile.run.run_file import RunStore
from tests.federation.kit import Federation, make_study
from tests.federation.played import close, reply

RECORDS, ROUNDS = 1200, 20


def make(folder: Path, levels: tuple[float, ...] = (0.5,)) -> Federation:
    agreements = {name: ClientAgreement(2.0, 0.5, RECORDS) for name in ("north", "south")}
    return Federation(folder, make_study(agreements, ROUNDS, design="auto", levels=levels, patience=10), port=4222)


def play(
    federation: Federation,
    *,
    absent: Collection[int] = (),
    lost: Collection[int] = (),
    restarts: Collection[int] = (),
    trusting: bool = False,
) -> dict[int, int]:
    """A whole run. South is not there in rounds `absent`; in rounds `lost` it answers, and the answer goes astray.

    The coordinator is started anew after rounds `restarts`. A `trusting` one is a changed program: it believes that no
    coin was drawn in any round without an answer. Gives what south was asked, by round.
    """
    sites = {name: federation.client(name).core for name in federation.study.clients}
    run = federation.open_run()
    core = federation.new_core(run)
    asked = {}
    while payload := core.question(0.0):
        intake, number = core.intake, core.coordinator.done + 1
        for name, site in sites.items():
            answer = None if name == "south" and number in absent else reply(site, payload)
            if answer is not None and not (name == "south" and number in lost):
                assert core.take(name, answer).outcome == "counted"
        asked[number] = sum(question.length for question in intake.questions["south"])
        if trusting and "south" in intake.answers:
            seen = intake.answers["south"].body.ledger
            intake._links["south"] = Position(seen.sequence - len(intake.questions["south"]), seen.head)
        close(core)
        if number in restarts:
            run.store.close()
            run = federation.open_run()
            core = federation.new_core(run)
    core.end(stopped=False)
    run.store.close()
    return asked


def check_ledger(federation: Federation) -> int:
    """How many of south's records have answered, each once; refused where one has answered twice."""
    with federation.ledger("south") as ledger:
        ledger.verify()
        times = np.zeros(2 * RECORDS, dtype=int)
        for start, stop in ledger.execute("SELECT start, stop FROM answers"):
            times[start:stop] += 1
    assert times.max() == 1
    return int(times.sum())


def verified(federation: Federation) -> Checks:
    return verify_record(release(federation.directory), federation.directory.store_file)


def given_back(federation: Federation) -> list[int]:
    """Rounds in which south got records back, by the run's file."""
    with RunStore.open(federation.directory.store_file, read_only=True) as store:
        return [stored.round for stored in store.rounds() if stored.unspent]


def silence(federation: Federation) -> list[tuple[str, str]]:
    """Of each level the caveat about silent clients: code and text; empty where there is none."""
    with RunStore.open(federation.directory.store_file, read_only=True) as store:
        told = [{one.code: one.text for one in result.caveats} for result in Coordinator(store).results()]
    codes = ("silent", "much-silence")
    return [next(((code, one[code]) for code in codes if code in one), ("", "")) for one in told]


@pytest.mark.parametrize("levels", [(0.5,), (0.25, 0.5)])
def test_records_of_rounds_without_a_coin_are_asked_later(tmp_path: Path, levels: tuple[float, ...]) -> None:
    federation = make(tmp_path, levels)
    asked = play(federation, absent=(8, 9, 10, 14), restarts=(9, 11))
    assert check_ledger(federation) == RECORDS
    assert sum(asked.values()) - sum(asked[number] for number in (8, 9, 10, 14)) == RECORDS
    assert given_back(federation) == [11, 15]
    assert asked[12] > asked[8]
    assert not verified(federation).failed
    with RunStore.open(federation.directory.store_file, read_only=True) as store:
        assert Coordinator(store).asked["south"] == RECORDS
    assert silence(federation) == [("", "")] * len(levels)  # 4 of 40 client-rounds, and no record is missing


def test_an_answer_lost_after_the_ledgers_commit_is_spent(tmp_path: Path) -> None:
    """The attack: whoever drops answers on their way would have the same people asked again, with new coins."""
    federation = make(tmp_path)
    asked = play(federation, lost=(8, 9, 10, 14), restarts=(10,))
    missed = sum(asked[number] for number in (8, 9, 10, 14))
    assert check_ledger(federation) == RECORDS == sum(asked.values())
    assert given_back(federation) == []
    assert not verified(federation).failed
    with RunStore.open(federation.directory.store_file, read_only=True) as store:
        assert Coordinator(store).clients["south"].answered == RECORDS - missed
    ((code, text),) = silence(federation)
    assert code == ("much-silence" if missed > 0.05 * 2 * RECORDS else "silent")
    told = (
        f"south (4 of 20 rounds); {missed} of the 2,400 records planned for these rounds have not answered ({{:.2g}}%)."
    )
    assert told.format(100 * missed / (2 * RECORDS)) in text


def test_records_given_back_after_the_last_question_are_missing(tmp_path: Path) -> None:
    """No coin was drawn for them, and no round is left that could ask them."""
    federation = make(tmp_path)
    asked = play(federation, absent=(18, 19))
    assert given_back(federation) == [20]
    missed = asked[18] + asked[19]
    assert check_ledger(federation) == RECORDS - missed
    ((_, text),) = silence(federation)
    assert f" {missed} of the 2,400 records planned" in text


def test_where_one_of_several_missed_rounds_was_answered_all_are_spent(tmp_path: Path) -> None:
    federation = make(tmp_path)
    asked = play(federation, absent=(8, 10), lost=(9,))
    assert given_back(federation) == []
    assert check_ledger(federation) == RECORDS - asked[8] - asked[10]


def test_a_coordinator_that_gives_lost_answers_back_is_refused_by_the_site_and_found(tmp_path: Path) -> None:
    """The negative control: nobody answers twice, the site says no before its agreed number is exceeded."""
    federation = make(tmp_path)
    asked = play(federation, lost=(8, 9, 10), trusting=True)
    assert given_back(federation)[0] == 11
    assert asked[12] > asked[8]
    assert check_ledger(federation) <= RECORDS
    assert sum(asked.values()) > RECORDS
    failed = verified(federation).failed
    assert len(failed) == 1
    assert "no coin was drawn: south in round 11" in failed[0]
    with pytest.raises(CountersignRefused, match="round 11: the transcript asks records of rounds 8, 9, 10 again"):
        federation.countersigned(release(federation.directory), "south")


def test_nothing_is_given_back_where_a_ledger_was_restored(tmp_path: Path) -> None:
    federation = make(tmp_path)
    signers = roster_signers(federation.directory)()
    for late, expected in ((LateLink(None, 0), {"south"}), (LateLink(None, 3), set())):
        intake = AnswerIntake(federation.study.digest, signers, {"south": Position(4)}, {}, {}, {"south": late})
        run = federation.open_run()
        questions = run.coordinator.questions()
        intake.open(questions)
        run.store.close()
        answers = [Answer(one, "south", 1, Position(5)) for one in questions["south"]]
        payload = RoundAnswers.of(federation.study.digest, answers).pack(federation.sites["south"].key())
        assert intake.offer("south", payload).outcome == "counted"
        assert intake.unspent == expected


def test_a_file_that_gives_back_what_nobody_missed_does_not_replay(tmp_path: Path) -> None:
    federation = make(tmp_path)
    play(federation)
    with sqlite3.connect(federation.directory.store_file) as database:
        database.execute("UPDATE rounds SET unspent = '[1]' WHERE round = 5")
    database.close()
    with (
        RunStore.open(federation.directory.store_file, read_only=True) as store,
        pytest.raises(StoreError, match="gets records of missed rounds back in round 5"),
    ):
        Coordinator(store)


SCRIPT = r"""
import os, signal, sys
import numpy as np, privatile
from privatile.run.coordinator import Coordinator
accept, calls = Coordinator.accept, []
def killed(*given):
    calls.append(1)
    if len(calls) == 12:
        os.kill(os.getpid(), signal.SIGKILL)  # the ledger has committed, the run's file has not
    accept(*given)
Coordinator.accept = killed
data = {name: np.random.default_rng(k).normal(50.0, 10.0, 600) for k, name in enumerate(("north", "south"))}
privatile.estimate(data, epsilon=1, range=(0, 100), rounds=20, save=sys.argv[1] + "/run.db",
                   ledger=sys.argv[1] + "/ledger.db")
"""


@pytest.mark.process
def test_a_process_killed_between_ledger_and_run_file_asks_nobody_again(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], env=os.environ, check=False)
    assert done.returncode == -signal.SIGKILL
    data = {name: np.random.default_rng(k).normal(50.0, 10.0, 600) for k, name in enumerate(("north", "south"))}
    files: dict[str, Any] = {"save": tmp_path / "run.db", "ledger": tmp_path / "ledger.db"}
    with sqlite3.connect(files["ledger"]) as ledger, sqlite3.connect(files["save"]) as run:
        before = ledger.execute("SELECT client, query, ones FROM answers WHERE round = 12 ORDER BY client").fetchall()
        assert len(before) == 2  # on the disk, and its count lost with the process
        assert run.execute("SELECT max(round) FROM rounds").fetchone() == (11,)
    result = privatile.estimate(data, epsilon=1, range=(0, 100), rounds=20, **files)
    assert result.records == 1200
    with sqlite3.connect(files["ledger"]) as ledger:
        again = ledger.execute("SELECT client, query, ones FROM answers WHERE round = 12 ORDER BY client").fetchall()
        assert again == before
        for client in data:
            times = np.zeros(600, dtype=int)
            for start, stop in ledger.execute("SELECT start, stop FROM answers WHERE client = ?", (client,)):
                times[start:stop] += 1
            assert times.tolist() == [1] * 600
