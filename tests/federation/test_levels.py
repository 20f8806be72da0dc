"""Several levels over the broker: every record answers about one of them, and every page shows them all."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from privatile.cli import main
from privatile.core.messages import LARGEST_LENGTH, Answer, Position, Question
from privatile.errors import InputError, SiteRefusal
from privatile.federation.operations.record import release, verify_record
from privatile.federation.operations.status import run_results
from privatile.federation.site.limits import check_questions
from privatile.federation.study import ClientAgreement, FederationStudy, load_study, study_toml
from privatile.federation.wire import (
    MAX_ANSWER,
    MAX_ASK,
    MAX_LEVELS,
    RoundAnswers,
    RoundQuestions,
    read_message,
)
from privatile.records import canonical, read_record, write_record
from privatile.records.keys import KeyPair
from tests.federation.kit import Federation, make_study

LEVELS = (0.1, 0.5, 0.9)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    federation = Federation(tmp_path_factory.mktemp("levels"), make_study(2, rounds=20, length=60, levels=LEVELS))
    asyncio.run(federation.run()).store.close()
    return federation


def call(*arguments: str) -> str:
    done = CliRunner().invoke(main, list(arguments))
    assert done.exit_code == 0, done.output
    return done.output


# -- the study file ------------------------------------------------------------------------------------------------


def test_a_study_file_has_a_level_or_levels(tmp_path: Path) -> None:
    several, one = make_study(levels=LEVELS, rounds=10), make_study(levels=(0.5,))
    for study in (several, one):
        path = tmp_path / "study.toml"
        path.write_text(study_toml(study))
        assert load_study(path) == study
        assert load_study(path).digest == study.digest
    assert tomllib.loads(study_toml(several))["levels"] == [0.1, 0.5, 0.9]
    assert tomllib.loads(study_toml(one))["level"] == 0.5
    assert "levels" not in one.to_dict()
    # One level written as a list is the same study, to the hash.
    plain = one.to_dict()
    plain["levels"] = [plain.pop("level")]
    assert FederationStudy.from_dict(plain).digest == one.digest
    assert replaced(several, levels=[0.5, 0.1, 0.9]).digest != several.digest


def replaced(study: FederationStudy, **changes: Any) -> FederationStudy:
    return FederationStudy.from_dict({**study.to_dict(), **changes})


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"level": 0.5}, "exclude each other"),
        ({"levels": []}, "a list of finite numbers"),
        ({"levels": 0.5}, "a list of finite numbers"),
        ({"levels": [0.1, "0.5"]}, "a list of finite numbers"),
        ({"levels": [0.1, 1.0]}, r"inside \(0, 1\); got 1\.0"),
        ({"levels": [0.1, 0.1]}, "differ from each other"),
        ({"levels": [k / 100 for k in range(1, MAX_LEVELS + 2)]}, f"1 to {MAX_LEVELS} levels"),
        ({"rounds": 14}, "times the number of levels, 42"),
    ],
)
def test_levels_that_break_a_rule_are_named(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        replaced(make_study(levels=LEVELS, rounds=10), **changes)


def test_clients_with_levels_of_their_own_go_with_one_level() -> None:
    terms = {"a": ClientAgreement(1.0, 0.5, 100, 0.4), "b": ClientAgreement(1.0, 0.5, 100, 0.6)}
    assert make_study(terms, levels=(0.5,)).asked_levels == (0.5,)
    with pytest.raises(InputError, match="levels of their own"):
        make_study(terms, levels=LEVELS)


@pytest.mark.slow
def test_questions_that_no_message_could_hold_are_refused_with_the_study() -> None:
    def study(levels: int) -> FederationStudy:
        terms = {f"client{k:05d}": ClientAgreement(1.0, 1 / 4000, 10_000 + k % 2) for k in range(4000)}
        return make_study(terms, levels=tuple((k + 1) / 60 for k in range(levels)))

    def ask(made: FederationStudy) -> int:
        # The longest a question gets: all of a client's records in one.
        asked = {
            name: tuple(Question(made.run, 10, level, 2 / 3, terms.records) for level in made.asked_levels)
            for name, terms in made.clients.items()
        }
        return len(RoundQuestions.of(made.digest, asked).pack(KeyPair.generate()))

    assert 0.98 * MAX_ASK < ask(study(13)) < MAX_ASK
    with pytest.raises(InputError, match="fewer levels"):
        study(14)


def test_the_most_levels_fit_into_an_answer() -> None:
    key = KeyPair.generate()
    answers = tuple(
        Answer(
            Question("f" * 12 + "-" + "f" * 16, LARGEST_LENGTH, (k + 2 / 3) / 1e5, 0.0, LARGEST_LENGTH),
            "n" * 40,
            LARGEST_LENGTH,
            Position(LARGEST_LENGTH),
        )
        for k in range(MAX_LEVELS)
    )
    message = RoundAnswers.of("0" * 64, answers)
    assert read_message(message.pack(key), key.public.signer, MAX_ANSWER) == message


def test_init_takes_several_levels(tmp_path: Path) -> None:
    folder = tmp_path / "fed"
    call(
        "federation", "init", str(folder), "--add-client", "north", "--epsilon", "1", "--records", "3000", "--range",
        "0", "100", "--rounds", "60", "--q", "0.1", "--q", "0.5", "--q", "0.9",
    )  # fmt: skip
    assert load_study(folder / "study.toml").levels == LEVELS
    assert "levels" in call("status", str(folder))
    shown = call(
        "enroll", str(folder / "invitations" / "north.json"), "--site", str(tmp_path / "site"), "--max-epsilon", "1"
    )
    assert "0.1, 0.5, 0.9 (each record answers about one of them)" in shown


# -- the site ------------------------------------------------------------------------------------------------------


def test_a_site_answers_only_about_the_levels_of_the_study() -> None:
    study = make_study(1, rounds=10, length=6, levels=LEVELS)
    asked = [Question(study.run, 1, level, 50.0, 2) for level in study.asked_levels]
    check_questions(study, asked)
    check_questions(study, asked[1:])  # a level may be over before the others
    for wrong in ([asked[0], asked[0]], [*asked, Question(study.run, 1, 0.25, 50.0, 2)]):
        with pytest.raises(SiteRefusal, match="level that the study does not ask"):
            check_questions(study, wrong)


def test_a_site_answers_only_its_own_study() -> None:
    study = make_study(2, rounds=4, length=6)
    asked = Question(study.run, 4, study.spec.plan().level, 100.0, 6)
    check_questions(study, (asked,))
    for changed in ({"run": "another"}, {"round": 5}, {"query": 101.0}, {"level": 0.25}):
        with pytest.raises(SiteRefusal):
            check_questions(study, (Question(**{**asked.to_dict(), **changed}),))


def test_a_question_whose_step_does_not_fit_the_mode_is_refused() -> None:
    cohort = make_study(2, rounds=4, length=6)
    local = make_study(2, rounds=4, length=6, mode="local")
    steps = local.spec.plan().steps  # type: ignore[attr-defined]
    for study, good, bad in (
        (cohort, (None,), (0.1, 1e-9, 1e300)),
        (local, tuple(float(step) / 6 for step in steps), (None, float(steps.max()) / 6 * 1.001, 1e300)),
    ):
        for step in good:
            check_questions(study, (Question(study.run, 1, 0.5, 50.0, 6, step),))
        for step in bad:
            with pytest.raises(SiteRefusal, match="step"):
                check_questions(study, (Question(study.run, 1, 0.5, 50.0, 6, step),))


# -- what is published ---------------------------------------------------------------------------------------------


def test_record_status_and_report_show_every_level(finished: Federation, tmp_path: Path) -> None:
    folder = str(finished.directory.path)
    path = tmp_path / "record.json"
    write_record(release(finished.directory), path)
    record = read_record(path)
    results = record["body"]["results"]
    assert [one["level"] for one in results] == pytest.approx(LEVELS)
    # These few answers locate no quantile: the record has no number in its place.
    assert [one["estimate"] for one in results] == [None] * 3
    estimates = [result.estimate for result in run_results(finished.directory)]
    assert estimates == sorted(estimates)
    assert len(set(estimates)) == 3
    assert record["body"]["spent"]["site0"]["records"] == 20 * 60
    checked = verify_record(record, finished.directory.store_file)
    assert checked.failed == []
    for level in LEVELS:
        assert any(f"at level {level:g} is the one the counts give" in text for text in checked.passed)
    assert any("all 40 signatures" in text for text in checked.passed)  # one per round and client, over all its counts
    assert "levels       0.1, 0.5, 0.9\n" in call("status", folder)
    assert json.loads(call("status", folder, "--json"))["levels"] == [0.1, 0.5, 0.9]
    call("report", folder, "-o", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    for result in run_results(finished.directory):
        assert result.estimand in page


@pytest.mark.parametrize("level_index", range(3))
def test_tampering_with_any_level_is_found(finished: Federation, level_index: int) -> None:
    record = copy.deepcopy(release(finished.directory))
    record["body"]["results"][level_index]["confidence_interval"]["low"] += 1e-6
    signature = finished.directory.key().sign(canonical(record["body"]))
    record["signatures"]["signer"] = base64.b64encode(signature).decode()
    (failed,) = verify_record(record, finished.directory.store_file).failed
    assert f"at level {LEVELS[level_index]:g}" in failed


def test_a_level_left_out_of_the_record_is_found(finished: Federation) -> None:
    record = copy.deepcopy(release(finished.directory))
    del record["body"]["results"][1]
    assert "the record has one result per level" in verify_record(record, finished.directory.store_file).failed
