"""A site compares its ledger with what the coordinator says was asked; after a restore nobody is asked twice."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from privatile.client.ledger.account import SpendingRules
from privatile.client.ledger.ledger import Ledger
from privatile.client.ledger.restore import mark_restored
from privatile.client.order.shuffle import shuffle
from privatile.client.randomizer import OperatingSystemCoins
from privatile.client.responder import Responder
from privatile.client.sources.databases import open_source
from privatile.client.sources.source import ONLY_CLIENT
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Position, Question
from privatile.errors import AlreadyAnswered, LedgerError, SiteRefusal
from privatile.federation.coordinator.intake import AnswerIntake
from privatile.federation.site.service import ClientService
from privatile.federation.study import ClientAgreement
from privatile.federation.wire import Hello, RoundAnswers, Welcome
from tests.federation.kit import Federation, make_study
from tests.marks import forget_marks

PEOPLE = 100


def studies(folder: Path) -> Iterator[Federation]:
    """Two federations that ask the same site, with one file and one ledger; no broker is started."""
    values = np.random.default_rng(5).normal(50.0, 10.0, PEOPLE)
    for name in ("one", "two"):
        study = make_study({"site0": ClientAgreement(1.0, 1.0, 40)}, rounds=10)
        federation = Federation(folder / name, study, port=4222, sites=folder / "sites")
        federation.values = {"site0": values}
        yield federation


def answered(client: ClientService, *rounds: int) -> Position:
    """The link behind the last of these rounds, as the coordinator sees it."""
    for number in rounds:
        (answer,) = client.core.responder.answer([Question(client.core.study.run, number, 0.5, 50.0, 4)])
    return answer.position


def welcome(client: ClientService, seen: Position | None, rounds: int) -> Welcome:
    zero = "0" * 32
    return Welcome(client.core.study.digest, client.core.client, zero, seen, rounds, 4 * rounds, "", zero, zero)


def restore(ledger_file: Path, backup: Path) -> None:
    for tail in ("", "-wal", "-shm"):
        Path(f"{ledger_file}{tail}").unlink(missing_ok=True)
    if backup.exists():
        shutil.copy(backup, ledger_file)


def back_up(ledger_file: Path, backup: Path) -> None:
    with Ledger.open(ledger_file) as ledger:
        ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(ledger_file, backup)


def test_a_site_with_a_new_or_an_older_ledger_does_not_answer(tmp_path: Path) -> None:
    one, _ = studies(tmp_path)
    ledger_file, backup = one.sites["site0"].ledger_file, tmp_path / "backup.db"
    answered(one.client("site0"), 1, 2)
    back_up(ledger_file, backup)
    client = one.client("site0")
    seen = answered(client, 3, 4)
    client.core._check_past(welcome(client, seen, 4))  # negative control: its own ledger
    client.core.responder.ledger.close()
    for source, entries in ((backup, 2), (tmp_path / "none", 0)):
        restore(ledger_file, source)
        forget_marks()
        other = one.client("site0")
        with pytest.raises(
            LedgerError, match=f"has {entries} entries of run .* but 4 were seen before.*not the ledger"
        ):
            other.core._check_past(welcome(other, seen, 4))
        other.core.responder.ledger.close()


def test_a_second_study_at_a_restored_site_asks_nobody_again(tmp_path: Path) -> None:
    """Both studies go on after the backup, which knows of the first one's records only. Before, only the study that was
    joined with `--restored` was protected: the other one asked its 40 people again."""
    one, two = studies(tmp_path)
    ledger_file, backup = one.sites["site0"].ledger_file, tmp_path / "backup.db"
    answered(one.client("site0"), 1, 2)
    back_up(ledger_file, backup)
    first, second = one.client("site0"), two.client("site0")
    seen = answered(first, 3)
    answered(second, 1, 2, 3)
    for client in (first, second):
        client.core.responder.ledger.close()
    restore(ledger_file, backup)
    first = one.client("site0", restored=True)
    with pytest.raises(LedgerError, match="nobody has shown since"):  # not before the coordinator has been heard
        answered(first, 4)
    first.core._check_past(welcome(first, seen, 3))
    answered(first, 4, 5)
    for restored in (False, True):
        with pytest.raises(AlreadyAnswered):
            two.client("site0", restored=restored)
    with one.ledger("site0") as ledger:
        spans = ledger.execute("SELECT start, stop FROM answers ORDER BY start").fetchall()
        assert spans == [(0, 4), (4, 8), (8, 12), (12, 16), (16, 20)]  # never 40 to 52, which the second study asked
        ledger.verify()


@pytest.mark.parametrize("restored", [True, False])
def test_records_whose_answer_came_too_late_are_not_asked_again_after_a_restore(tmp_path: Path, restored: bool) -> None:
    """The coordinator has not counted round 3, so the restored ledger holds everything that it has seen. Before, the
    records of round 3 (8 to 12) answered round 4 as well. The ledger is marked by `--restored`, or by hand."""
    one, _ = studies(tmp_path)
    ledger_file, backup = one.sites["site0"].ledger_file, tmp_path / "backup.db"
    seen = answered(one.client("site0"), 1, 2)
    back_up(ledger_file, backup)
    client = one.client("site0")
    answered(client, 3)
    client.core.responder.ledger.close()
    restore(ledger_file, backup)
    if not restored:
        with Ledger.open(ledger_file, restored=True) as ledger:
            mark_restored(ledger)
    client = one.client("site0", restored=restored)
    for _ in range(2):  # a second welcome costs nothing
        client.core._check_past(welcome(client, seen, 3))
    answered(client, 4)
    spans = client.core.responder.ledger.execute("SELECT round, start, stop FROM answers ORDER BY start").fetchall()
    assert spans == [(1, 0, 4), (2, 4, 8), (None, 8, 12), (4, 12, 16)]


def ask(client: ClientService, number: int) -> bytes:
    """The client's signed answer to a round, as it is published."""
    questions = (Question(client.core.study.run, number, 0.5, 50.0, 4),)
    return RoundAnswers.of(client.core.study.digest, client.core.responder.answer(questions)).pack(client.core._key)


def greeted(intake: AnswerIntake, client: ClientService, done: int, restored: Position | None = None) -> Welcome:
    """The welcome to a fresh hello: the client has echoed a nonce."""
    echo, greeting = None, None
    for nonce in ("0" * 32, "1" * 32):
        said = Hello(
            client.core.study.digest, "site0", "2" * 32, client.core.responder.link(), restored, "3" * 32, echo
        )
        greeting = intake.greet("site0", said.pack(client.core._key), done, nonce)
        echo = nonce
    assert greeting is not None
    return greeting.welcome


def test_a_ledger_from_before_an_answer_that_came_too_late_is_found(tmp_path: Path) -> None:
    """Rounds 1 and 2 count, round 3 comes late, and the site's ledger is one from before it. Before, the coordinator
    forgot the link of a late answer, the older ledger held everything it asked for, and 8 to 12 answered again."""
    one, _ = studies(tmp_path)
    ledger_file, backup = one.sites["site0"].ledger_file, tmp_path / "backup.db"
    client = one.client("site0")
    signers = {"site0": client.core._key.public.signer}
    intake = AnswerIntake(one.study.digest, signers, {}, {}, {"site0": 0})

    def open_round(number: int) -> None:
        intake.open({"site0": (Question(one.study.run, number, 0.5, 50.0, 4),)})

    for number in (1, 2):
        open_round(number)
        assert intake.offer("site0", ask(client, number)).outcome == "counted"
        intake.close()
    back_up(ledger_file, backup)
    open_round(3)
    late = ask(client, 3)
    intake.close()
    open_round(4)
    assert intake.offer("site0", late).outcome == "late"
    client.core._check_past(greeted(intake, client, 3))  # negative control: its own ledger
    client.core.responder.ledger.close()
    restore(ledger_file, backup)
    forget_marks()
    older = one.client("site0")
    with pytest.raises(LedgerError, match=r"has 2 entries of run .* but 3 were seen before"):
        older.core._check_past(greeted(intake, older, 3))
    older.core.responder.ledger.close()
    # It is kept with the run: a coordinator that starts again knows it, too.
    run = one.open_run()
    run.journal.set_late_links(intake.late_links)
    intake = AnswerIntake(
        one.study.digest, signers, {"site0": Position(2, b"0" * 16)}, {}, {"site0": 12}, run.journal.late_links()
    )
    open_round(4)
    # Declared as restored, it goes on, and the lost answer, sent once more by somebody, does not bring the link back.
    client = one.client("site0", restored=True)
    shown = greeted(intake, client, 3)
    client.core._check_past(shown)
    assert greeted(intake, client, 3, restored=shown.ledger).ledger == client.core.responder.link()
    assert intake.offer("site0", late).outcome == "late"
    assert greeted(intake, client, 3).ledger == client.core.responder.link()
    assert intake.offer("site0", ask(client, 4)).outcome == "counted"
    run.journal.relink("site0", client.core.responder.link(), 4)
    assert run.journal.late_links() == intake.late_links
    spans = client.core.responder.ledger.execute("SELECT start, stop FROM answers ORDER BY start").fetchall()
    assert spans == [(0, 4), (4, 8), (8, 16), (16, 20)]


def test_a_late_answer_frames_nobody(tmp_path: Path) -> None:
    """A broker that hands out answers in another order puts nobody into quarantine. It has no old question answered
    after a newer one: the coordinator may count on it that no coin is drawn for that round any more."""
    one, _ = studies(tmp_path)
    client = one.client("site0")
    intake = AnswerIntake(one.study.digest, {"site0": client.core._key.public.signer}, {}, {}, {"site0": 0})
    older, answer = ask(client, 1), ask(client, 3)
    with pytest.raises(SiteRefusal, match="round 2 is over: round 3 has been answered"):
        ask(client, 2)
    assert ask(client, 1) == older  # an answer that was given is given again
    intake.open({"site0": (Question(one.study.run, 3, 0.5, 50.0, 4),)})
    assert [intake.offer("site0", each).outcome for each in (older, answer, older)] == ["late", "counted", "late"]
    assert not intake.quarantined


def test_a_second_restore_is_one_too(tmp_path: Path) -> None:
    """All records of the data set were lost in the first one; before, its run went on from the second backup as it was
    (16 to 20 answered rounds 5 and 6). A run that has gone on since the first is not stopped by another one's."""
    one, _ = studies(tmp_path)
    ledger_file, backups = one.sites["site0"].ledger_file, (tmp_path / "one.db", tmp_path / "two.db")
    seen = answered(one.client("site0"), 1, 2)
    for number, backup in zip((3, 5), backups, strict=True):
        back_up(ledger_file, backup)
        client = one.client("site0")
        answered(client, number)  # too late to count
        client.core.responder.ledger.close()
        restore(ledger_file, backup)
        client = one.client("site0", restored=True)
        client.core._check_past(welcome(client, seen, number))
        seen = answered(client, number + 1)
    spans = client.core.responder.ledger.execute("SELECT round, start, stop FROM answers ORDER BY start").fetchall()
    assert spans == [(1, 0, 4), (2, 4, 8), (None, 8, 12), (4, 12, 16), (None, 16, 20), (6, 20, 24)]
    mark_restored(client.core.responder.ledger, "another run")
    answered(client, 7)
    mark_restored(client.core.responder.ledger)  # by hand: every run
    with pytest.raises(LedgerError, match="nobody has shown since"):
        answered(client, 8)


def test_a_coordinator_that_was_put_back_itself_shows_nothing(tmp_path: Path) -> None:
    """The backup of the run's file is older than that of the ledger, and both have asked more since. Before, rounds 4
    and 5 were answered again by the records (12 to 20) that had answered them."""
    one, _ = studies(tmp_path)
    ledger_file, backup = one.sites["site0"].ledger_file, tmp_path / "backup.db"
    seen = answered(one.client("site0"), 1)
    answered(one.client("site0"), 2, 3)
    back_up(ledger_file, backup)
    client = one.client("site0")
    answered(client, 4, 5)
    client.core.responder.ledger.close()
    restore(ledger_file, backup)
    client = one.client("site0", restored=True)
    with pytest.raises(LedgerError, match=r"it knows of 1 rounds, this ledger of 3\..*newest run\.db put back"):
        client.core._check_past(welcome(client, seen, 1))
    with pytest.raises(LedgerError, match="nobody has shown since"):
        answered(client, 4)
    client.core.responder.ledger.close()
    client = one.client("site0")  # the newest file was put back: the same site goes on, with others
    client.core._check_past(welcome(client, None, 5))
    answered(client, 6)
    spans = client.core.responder.ledger.execute("SELECT round, start, stop FROM answers ORDER BY start").fetchall()
    assert spans == [(1, 0, 4), (2, 4, 8), (3, 8, 12), (None, 12, 20), (6, 20, 24)]


def test_an_answer_that_had_not_come_is_no_sign_of_an_older_coordinator(tmp_path: Path) -> None:
    """The backup holds the answer to the open round; the coordinator, which was never put back, has not counted it."""
    one, _ = studies(tmp_path)
    ledger_file, backup = one.sites["site0"].ledger_file, tmp_path / "backup.db"
    seen = answered(one.client("site0"), 1, 2)
    answered(one.client("site0"), 3)
    back_up(ledger_file, backup)
    restore(ledger_file, backup)
    client = one.client("site0", restored=True)
    client.core._check_past(welcome(client, seen, 2))
    answered(client, 3, 4)
    spans = client.core.responder.ledger.execute("SELECT round, start, stop FROM answers ORDER BY start").fetchall()
    assert spans == [(1, 0, 4), (2, 4, 8), (3, 8, 12), (4, 12, 16)]


def test_a_site_whose_ledger_is_gone_takes_other_people(tmp_path: Path) -> None:
    one, _ = studies(tmp_path)
    client = one.client("site0")
    answered(client, 1)
    client.core.responder.ledger.close()
    restore(one.sites["site0"].ledger_file, tmp_path / "none")
    with pytest.raises(AlreadyAnswered, match=r"restored from a backup.*new_people=True"):
        one.client("site0", restored=True)
    one.values = {"site0": np.random.default_rng(6).normal(50.0, 10.0, PEOPLE)}
    assert one.client("site0", restored=True, new_people=True).core.responder.account.state().asked == 0


def test_answers_of_other_clients_to_a_run_of_the_same_name_are_not_this_sites(tmp_path: Path) -> None:
    """One ledger serves everything that is asked here, and an organizer chooses the name of a run. Before, the answers
    of another client to a run of that name were taken for the site's: it could not countersign an honest transcript."""
    one, _ = studies(tmp_path)
    client = one.client("site0")
    answered(client, 1)
    with Ledger.open(one.sites["site0"].ledger_file) as ledger:
        (column,) = shuffle(open_source({"north": np.arange(50.0)}), ledger).values()
        fair, rules = RandomizedResponse.from_epsilon(1.0), SpendingRules(new_people=True)
        other = Responder(one.study.run, column, fair, ledger, OperatingSystemCoins(), rules=rules)
        for number in (1, 2):
            other.answer(Question(one.study.run, number, 0.5, 7.0, 5))
        given = ledger.answers(one.study.run, ONLY_CLIENT)
    assert {number: [each.question.query for each in levels] for number, levels in given.items()} == {1: [50.0]}
    answered(client, 2)
    assert client.core.responder.account.state().asked == 8
