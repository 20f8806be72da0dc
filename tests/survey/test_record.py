"""A survey from `init` to `verify`, in one process; and records that were altered."""

from __future__ import annotations

import asyncio
import copy
import html
import json
import re
import stat
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives import serialization

from privatile.api.online import OnlineQuantile
from privatile.cli import main
from privatile.errors import InputError
from privatile.records import Checks, sign
from privatile.records.keys import KeyPair
from privatile.report.run_page import run_page
from privatile.run.locks import lock_folder
from privatile.run.rounds import Phase
from privatile.run.view import RunView
from privatile.survey.folder import SurveyFolder, read_codes
from privatile.survey.record import release, verify_survey_record
from privatile.survey.service import SurveyService
from privatile.survey.serving import _say_ready, trial_certificate
from privatile.survey.store import SurveyStore
from privatile.survey.study import SurveyStudy
from tests.made_runs import long_run
from tests.survey.kit import Clock, make_study, make_survey, visitors

INIT = ["--title", "What we earn", "--value", "salary", "--unit", "EUR", "--epsilon", "2", "--range", "0", "10000"]


def status(*words: object) -> Result:
    return CliRunner().invoke(main, ["status", *map(str, words)])


def privatile(*words: object) -> Result:
    return CliRunner().invoke(main, ["survey", *map(str, words)])


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> SurveyFolder:
    """A survey of 300 people with salaries around 4,000, closed by command; one answer was late."""
    folder = SurveyFolder(tmp_path_factory.mktemp("survey") / "pay")
    made = privatile("init", folder.path, *INIT, "--stratum", "office=100", "--stratum", "plant=201", "--no-sheet",
                     "--round-answers", 25, "--grace", 0)  # fmt: skip
    assert made.exit_code == 0, made.output
    codes = [one.code for one in read_codes(folder.codes_file)]
    clock = Clock()

    async def everybody() -> None:
        # Deterministic coins: every eighth lies.
        async with visitors(folder, clock=clock) as people:
            order = [codes[(k * 7) % 300] for k in range(300)]
            for k, code in enumerate(order):
                asked = (await people.question(code)).json()
                truth = 2000 + (k * 37 % 100) * 40 > float(asked["query"])
                reply = await people.answer(code, asked["round"], truth != (k % 8 == 0))
                assert reply.json() == {"counted": True}
                if k % 5 == 4:
                    await people.service.look()
            assert (await people.answer(codes[300], 1, True)).json()["reason"] == "late"

    asyncio.run(everybody())
    ended = privatile("close", folder.path, "--yes")
    assert ended.exit_code == 0, ended.output
    return folder


def test_status_says_what_came_and_names_nobody(closed: SurveyFolder) -> None:
    text = status(closed.path).output
    assert "closed" in text
    assert "300 counted" in text
    assert "1 late" in text
    assert "plant, weight 0.6678" in text
    assert "the mixture of 2 strata" in text, "what is a client elsewhere"
    notes = [line[13:] for line in text.splitlines() if line.startswith("note ")]
    assert notes == json.loads(status(closed.path, "--json").output)["caveats"] != []
    facts = json.loads(status(closed.path, "--json").output)
    assert [one["spent"] for one in facts["strata"]] == [100, 201]
    low, high = facts["interval"]
    assert low < 4000 < high
    assert not any(one.code in text + json.dumps(facts) for one in read_codes(closed.codes_file))
    assert privatile("close", closed.path).output == "The survey was closed already.\n"


def test_the_record_verifies_from_the_counts(closed: SurveyFolder, tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    made = privatile("release", closed.path, "-o", record)
    assert made.exit_code == 0, made.output
    checked = CliRunner().invoke(main, ["verify", str(record), "--transcript", str(closed.run_file)])
    assert checked.exit_code == 0, checked.output
    assert "the organiser has signed it" in checked.output
    assert "FLAGGED      late: 1 answer, after the round" in checked.output
    content = record.read_text()
    assert closed.study().page_sha256 in content
    assert not any(one.code in content for one in read_codes(closed.codes_file))


def test_who_reads_of_a_survey_reads_of_strata(closed: SurveyFolder, tmp_path: Path) -> None:
    """One word for one thing in report, text and check; fields of the record keep the name that all runs have."""

    def read(page: str) -> str:
        return html.unescape(re.sub(r"<[^>]+>", " ", re.sub(r"<(style|script|svg)\b.*?</\1>", "", page, flags=re.S)))

    record = release(closed)
    (told,) = record["body"]["results"]
    texts = [
        read(run_page(RunView.read(closed.run_file, drawn=True))),
        RunView.read(closed.run_file).all_results()[0].to_text(),
        verify_survey_record(record, closed.run_file).to_text(),
    ]
    for text in texts:
        assert re.search("strat(a|um)", text)
        assert not re.search("client", text, re.I), text
    assert [one["name"] for one in told["clients"]] == ["office", "plant"]
    # The control: the same page of any other run has clients.
    other = read(run_page(RunView.read(long_run(tmp_path / "run.db", rounds=20), drawn=True)))
    assert "clients" in other
    assert not re.search("strat(a|um)", other)


def test_an_altered_record_is_found(closed: SurveyFolder) -> None:
    record = release(closed)
    assert not verify_survey_record(record, closed.run_file).failed

    def changed(place: str, value: object, *, key: KeyPair | None) -> list[str]:
        other = copy.deepcopy(record)
        *path, last = place.split(".")
        holder = other["body"]
        for step in path:
            holder = holder[int(step) if step.isdigit() else step]
        holder[last] = value
        if key is not None:
            other["signatures"]["signer"] = sign(other["body"], key)
        return verify_survey_record(json.loads(json.dumps(other)), closed.run_file).failed

    for place, value in (
        ("results.0.confidence_interval.low", record["body"]["results"][0]["confidence_interval"]["low"] + 100.0),
        ("answers.office", 101),
        ("survey.epsilon", 1.0),
        ("survey.page_sha256", "0" * 64),
        ("survey.strata.office.codes", 99),
        ("ended_by", "date"),
    ):
        assert changed(place, value, key=None), "the organiser's signature holds for all of it"
        assert changed(place, value, key=closed.key()), "and a signed lie differs from the counts or the study"
    signed_by_another = changed("run", record["body"]["run"], key=KeyPair.generate())
    assert any("signed" in text for text in signed_by_another)


def test_a_record_that_cannot_be_is_refused_without_the_counts(closed: SurveyFolder) -> None:
    record = release(closed)
    assert not verify_survey_record(record).failed
    record["body"]["transcript"]["until"] = time.time() + 86_400.0
    assert "its end is not in the future" in str(verify_survey_record(record).failed)
    record["body"]["answers"]["office"] = 101
    assert "no stratum has more answers than codes" in str(verify_survey_record(record).failed)
    record["body"]["answers"] = {"office": "many"}
    assert "no stratum has more answers than codes" in str(verify_survey_record(record).failed)


@pytest.mark.parametrize(
    ("study", "claims", "wrong"),
    [
        ({}, {}, ""),
        ({}, {"ended_by": "date"}, "it ended as its study says"),
        ({}, {"ended_by": "answers"}, "it ended as its study says"),
        ({}, {"ended_by": "width"}, "it ended as its study says"),
        ({}, {"ended_by": None}, "it ended as its study says"),
        ({}, {"finished": False}, "it ended as its study says"),
        ({}, {"finished": False, "ended_by": None}, ""),
        ({"end_date": "2100-01-01"}, {"ended_by": "date"}, "it ended as its study says"),
        ({"end_date": "2026-01-01"}, {"ended_by": "date"}, ""),
        ({"end_answers": 301}, {"ended_by": "answers"}, "it ended as its study says"),
        ({"end_answers": 300}, {"ended_by": "answers"}, ""),
        ({"end_width": 10.0}, {"ended_by": "width"}, ""),
    ],
)
def test_without_the_counts_a_record_claims_no_end_but_its_studys(
    closed: SurveyFolder, study: dict[str, Any], claims: dict[str, Any], wrong: str
) -> None:
    """Signed by an organiser who lies, about a study that the organiser may have written."""
    record = release(closed)
    body = record["body"]
    body.update(claims)
    body["survey"].update(study)
    told = SurveyStudy.from_dict(body["survey"])
    body["study_hash"], body["run"] = told.digest, told.run

    def found() -> Checks:
        record["signatures"]["signer"] = sign(body, closed.key())
        return verify_survey_record(json.loads(json.dumps(record)))

    assert [text.partition(",")[0] for text in found().failed] == [wrong] * bool(wrong)
    # An interval for a fixed end is one at a fixed end alone.
    body["results"][0]["other_interval"] = {"low": 3900.0, "high": 4100.0, "method": "smooth"}
    is_fixed = not wrong and claims.get("ended_by") in ("date", "answers")
    chosen = [text for text in found().failed if text.startswith("its intervals hold at an end that somebody chose")]
    assert bool(chosen) is not is_fixed
    assert any("public before the first answer" in text for text in found().not_checked) is is_fixed


def test_init_writes_secrets_for_their_owner_alone_and_keeps_no_token(tmp_path: Path) -> None:
    path = tmp_path / "pay"
    made = privatile("init", path, *INIT, "--codes", 3, "--address", "https://pay.example")
    assert made.exit_code == 0, made.output
    for name in ("codes.csv", "links.csv", "sheet.html", "survey.db", "organiser.key", "token.sha256"):
        assert stat.S_IMODE((path / name).stat().st_mode) == 0o600, name
    codes = [one.code for one in read_codes(path / "codes.csv")]
    assert len(set(codes)) == 3
    links = (path / "links.csv").read_text("utf-8-sig")
    assert all(f"https://pay.example/#c={code}" in links for code in codes)
    database = (path / "survey.db").read_bytes()
    assert not any(code.encode() in database for code in codes)
    own_page = next(line.split()[1] for line in made.output.splitlines() if line.startswith("organiser"))
    address, token = own_page.split("#t=")
    assert address == "https://pay.example/organiser"
    assert SurveyFolder(path).opens_with(token)
    assert not any(token.encode() in file.read_bytes() for file in path.iterdir())
    again = privatile("init", path, *INIT, "--codes", 3)
    assert again.exit_code == 2
    assert "is not empty" in again.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--codes", 3, "--epsilon", 11], "epsilon: must lie in"),
        (["--codes", 3, "--stratum", "a=3"], "--codes N, or --stratum NAME=N"),
        (["--stratum", "a"], "NAME=NUMBER OF CODES"),
        (["--stratum", "a=3", "--stratum", "a=4"], "more than once"),
        (["--stratum", "a=3", "--stratum-weight", "b=1"], "which is no stratum"),
        (["--codes", 3, "--end-date", "2020-01-01"], "which is past"),
        (["--codes", 3, "--end-answers", 4], "at most the number of codes, 3; got 4"),
        (["--codes", 3, "--language", "es"], "the page does not speak 'es'. It speaks en, de, fr."),
        (["--codes", 3, "--address", "http://pay.example"], "must begin with https"),
    ],
)
def test_init_refuses_what_makes_no_survey(tmp_path: Path, words: list[object], told: str) -> None:
    refused = privatile("init", tmp_path / "pay", *INIT, *words)
    assert refused.exit_code == 2, refused.output
    assert told in refused.output
    assert not (tmp_path / "pay").exists()


@pytest.mark.parametrize(("words", "few"), [(["--codes", 300], True), (["--codes", 800], False)])
def test_init_warns_where_so_few_answers_will_hardly_give_a_result(
    tmp_path: Path, words: list[object], few: bool
) -> None:
    for number, more in enumerate(([], ["--end-answers", 300])):
        made = privatile("init", tmp_path / str(number), *INIT, *words, *more, "--no-sheet")
        assert made.exit_code == 0, made.output
        assert "needs      at least about 370 answers" in made.output
        assert ("At ε = 2 a first interval takes about 370 answers" in made.output) == (few or bool(more))
        assert ("With --round-answers 5 it takes about 250." in made.output) == (few or bool(more))


def test_the_number_of_answers_before_an_interval_is_about_right() -> None:
    rng, study = np.random.default_rng(1), make_study(epsilon=2.0, round_answers=0)

    def has_interval(answers: float) -> bool:
        median = OnlineQuantile(q=0.5, epsilon={"all": 2.0}, range=(0, 10_000))
        while 25 * median.rounds < answers:
            above = rng.normal(4_000, 900, 25) > median.query
            lies = rng.random(25) < (1.0 - study.mechanism.truth_rate) / 2
            median.update({"all": (int((above ^ lies).sum()), 25)})
        try:
            return bool(median.result())
        except InputError:
            return False

    assert sum(has_interval(study.first_interval_after) for _ in range(8)) >= 5
    assert not any(has_interval(study.first_interval_after / 3) for _ in range(8))


def test_an_edited_study_is_another_study(closed: SurveyFolder, tmp_path: Path) -> None:
    other = SurveyFolder(tmp_path)
    for name in ("survey.toml", "survey.db", "run.db"):
        (tmp_path / name).write_bytes((closed.path / name).read_bytes())
    text = other.study_file.read_text(encoding="utf-8")
    other.study_file.write_text(text.replace("epsilon = 2.0", "epsilon = 1.0"), encoding="utf-8")
    refused = status(tmp_path)
    assert refused.exit_code == 2
    assert "the study was edited" in refused.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--host", "0.0.0.0"], "needs a certificate"),
        (["--host", "0.0.0.0", "--behind-proxy"], "on this machine only"),
        (["--certificate", "x.pem"], "go together"),
        ([], "another page than was printed"),
    ],
)
def test_what_would_send_codes_in_the_open_or_another_page_is_not_served(
    closed: SurveyFolder, monkeypatch: pytest.MonkeyPatch, words: list[str], told: str
) -> None:
    monkeypatch.setattr("privatile.survey.serving.page_sha256", lambda: "0" * 64)
    refused = privatile("serve", closed.path, *words)
    assert refused.exit_code == 2
    assert told in refused.output


def test_a_key_that_is_not_the_certificates_is_refused_before_anything_is_served(
    closed: SurveyFolder, tmp_path: Path
) -> None:
    certificate, key = trial_certificate(tmp_path / "one")
    other = trial_certificate(tmp_path / "other")[1]
    locked, loaded = tmp_path / "locked.key", serialization.load_pem_private_key(key.read_bytes(), None)
    encryption = serialization.BestAvailableEncryption(b"secret")
    locked.write_bytes(loaded.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption))
    for wrong, told in (
        (other, "is not the private key (PEM) of the certificate"),
        (certificate, "is not the private key"),
        (tmp_path / "none.key", "cannot be read (FileNotFoundError)"),
        (locked, "locked with a password"),
    ):
        refused = privatile("serve", closed.path, "--port", 0, "--certificate", certificate, "--key", wrong)
        assert refused.exit_code == 2
        assert told in refused.output
        assert "gateway  " not in refused.output
    with lock_folder(closed.pid_file, "gateway"):
        assert "a gateway is already running" in privatile("serve", closed.path, "--port", 0).output


def test_a_survey_is_released_once_it_is_closed_and_has_an_interval(tmp_path: Path) -> None:
    folder = SurveyFolder(tmp_path / "pay")
    privatile("init", folder.path, *INIT, "--codes", 3, "--no-sheet")
    refused = privatile("release", folder.path, "-o", tmp_path / "record.json")
    assert refused.exit_code == 2
    assert "the survey is not closed" in refused.output
    told = privatile("close", folder.path, "--yes").output
    assert told.startswith("The survey is closed. The survey has no interval, and so nothing to release: at ε = ")
    assert "survey release" not in told
    with pytest.raises(InputError, match=r"no interval.*takes about [0-9,]+ answers"):
        release(folder)
    for more in (["--text"], ["-o", str(tmp_path / "page.html")]):
        said = CliRunner().invoke(main, ["report", str(folder.run_file), *more]).output
        assert "yet" not in said
    assert "No interval: the run ended while it was still searching" in (tmp_path / "page.html").read_text("utf-8")


def test_closing_before_the_stated_end_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def phase(folder: SurveyFolder) -> Phase:
        study = folder.study()
        with SurveyStore.open(folder.store_file, study.digest, 1, read_only=True) as store:
            return store.round().phase

    made = make_survey(tmp_path / "dated", end_date="2126-12-31", end_answers=1_000, strata={"all": 2_000})
    refused = privatile("close", made.folder.path)
    assert (refused.exit_code, phase(made.folder)) == (2, Phase.OPEN)
    told = "0 answers; the survey's end is 2126-12-31 or 1,000 counted answers; closing is for good."
    assert told in " ".join(refused.output.split())
    assert "--yes" in refused.output
    assert not made.folder.close_request.exists(), "the next gateway does not close it"

    monkeypatch.setattr("privatile.cli.options.sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    for reply, code, after in (("n\n", 1, Phase.OPEN), ("y\n", 0, Phase.CLOSED)):
        asked = CliRunner().invoke(main, ["survey", "close", str(made.folder.path)], input=reply)
        assert (asked.exit_code, phase(made.folder)) == (code, after)
        assert told in asked.output
    monkeypatch.undo()
    open_ended = make_survey(tmp_path / "open")
    assert "no stated end" in privatile("close", open_ended.folder.path).output
    over = make_survey(tmp_path / "over", end_date="2020-01-01")
    assert privatile("close", over.folder.path).exit_code == 0, "its end is reached: nothing to ask"
    assert phase(over.folder) is Phase.CLOSED


def test_a_gateway_of_a_closed_survey_says_so(closed: SurveyFolder, tmp_path: Path) -> None:
    async def said(folder: SurveyFolder) -> list[str]:
        service = SurveyService(folder)
        lines: list[str] = []
        await service.start(follow=False)
        try:
            _say_ready(service, "gateway  here", lines.append)
        finally:
            await service.stop()
        return lines

    assert "closed" in asyncio.run(said(closed))[0]
    assert asyncio.run(said(make_survey(tmp_path / "open").folder)) == ["gateway  here"]
