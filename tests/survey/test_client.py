"""The client for programs: one coin whatever the server says, the bit on the disk first, the same bit again."""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
import time
import urllib.error
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from privatile.core.mechanism import RandomizedResponse
from privatile.errors import AlreadyAnswered, DataError, InputError, ProtocolError, StoreError
from privatile.survey.client import AnswerFile, StoredAnswer, SurveyClient, randomized, read_threshold
from privatile.survey.folder import new_code
from privatile.survey.serving import trial_certificate
from tests.survey.fake_server import FakeSurvey, Reply
from tests.survey.make_vectors import PATH as VECTORS

PLANTED = 31415.9265

network = pytest.mark.network


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


def test_the_vectors() -> None:
    cases = json.loads(VECTORS.read_text(encoding="utf-8"))
    for case in cases["answers"]:
        truth = float(case["value"]) > float(case["query"])
        assert randomized(truth, int(case["coin"]), read_threshold(case["threshold"])) is case["answer"]
    for case in cases["thresholds"]:
        if case["accepted"]:
            read_threshold(case["threshold"])
        else:
            with pytest.raises(ProtocolError):
                read_threshold(case["threshold"])


@network
def test_one_bit_leaves_and_the_value_is_nowhere(survey: FakeSurvey, url: str, tmp_path: Path) -> None:
    code = new_code()
    sent = SurveyClient(url, tmp_path / "answers.db", epsilon=0.1).answer(code, PLANTED)
    assert survey.answers == [{"code": code, "round": 12, "answer": sent.answer}]
    assert (sent.query, round(sent.lies_per_100), sent.outcome) == (2750.5, 48, "counted")
    stored = (tmp_path / "answers.db").read_bytes()
    assert code.encode() in stored
    for digits in ("31415", "9265"):
        assert digits.encode() not in stored
        assert digits not in str(survey.requests)
    assert not any(code in heard.path or code in heard.headers for heard in survey.requests)
    assert {len(heard.body) for heard in survey.requests if heard.method == "POST"} == {120}
    assert (tmp_path / "answers.db").stat().st_mode & 0o077 == 0
    # Called again it sends nothing more, and says the same.
    assert SurveyClient(url, tmp_path / "answers.db", epsilon=0.1).answer(code, 0.0) == sent
    assert len(survey.answers) == 1


@network
def test_no_server_gets_a_second_coin(survey: FakeSurvey, url: str, tmp_path: Path) -> None:
    code = new_code()
    client = SurveyClient(url, tmp_path / "answers.db", epsilon=0.1)
    survey.on_answer = lambda body: (500, {"error": "lost"}, {})

    def again() -> None:
        with pytest.raises((ConnectionError, ProtocolError)):
            client.answer(code, PLANTED, patience=0.0)

    again()
    for change in range(12):
        survey.states.clear()
        survey.round, survey.query = 13 + change, str(change)
        survey.facts["survey"] = f"{change:012x}"
        survey.on_answer = [
            lambda body: (200, {"counted": "lost", "again": True}, {}),
            lambda body: (404, {"error": "unknown"}, {}),
            lambda body: (0, None, {}),
            lambda body: (200, [[]], {}),
        ][change % 4]
        again()
    assert survey.questions == 1
    assert len({json.dumps(sent) for sent in survey.answers}) == 1
    # The control: a device that forgets draws again, and at this budget soon says the opposite.
    survey.on_answer = lambda body: (200, {"counted": True}, {})
    fresh: set[bool] = set()
    for number in range(40):
        survey.states.clear()
        fresh.add(SurveyClient(url, tmp_path / f"{number}.db", epsilon=0.1).answer(code, PLANTED).answer)
        if fresh == {True, False}:
            return
    pytest.fail("forty fresh coins and always the same side")


@network
def test_a_lost_question_is_asked_for_again_without_a_warning(survey: FakeSurvey, url: str, tmp_path: Path) -> None:
    lost = iter([True])

    def losing(code: str) -> Reply | None:
        if next(lost, False):
            survey.states[code], survey.visits[code] = "handed", json.loads(survey.requests[-1].body)["visit"]
            return 0, None, {}
        return None

    survey.on_question = losing
    assert SurveyClient(url, tmp_path / "answers.db", epsilon=0.1).answer(new_code(), 1.0).outcome == "counted"
    assert survey.questions == 2


@network
def test_one_answer_per_survey_and_warnings_before_a_second(survey: FakeSurvey, url: str, tmp_path: Path) -> None:
    client = SurveyClient(url, tmp_path / "answers.db", epsilon=0.1)
    client.answer(new_code(), 1.0)
    with pytest.raises(AlreadyAnswered, match="with another code"):
        client.answer(new_code(), 1.0, confirmed=True)
    survey.facts["survey"] = "ffffffffffff"
    with pytest.raises(AlreadyAnswered, match="the same one by another name"):
        client.answer(new_code(), 1.0)
    assert (survey.questions, len(survey.answers)) == (1, 1)
    assert client.answer(new_code(), 1.0, confirmed=True).outcome == "counted"
    handed = new_code()
    survey.states[handed] = "handed"
    with pytest.raises(AlreadyAnswered, match="fetched before"):
        SurveyClient(url, tmp_path / "other.db", epsilon=0.1).answer(handed, 1.0)
    assert (
        SurveyClient(url, tmp_path / "other.db", epsilon=0.1).answer(handed, 1.0, confirmed=True).outcome == "counted"
    )


@network
def test_two_codes_at_once_are_no_way_around_the_warning(survey: FakeSurvey, url: str, tmp_path: Path) -> None:
    """While this one waits for its question another process answers, to another name of the same survey."""
    client = SurveyClient(url, tmp_path / "answers.db", epsilon=0.1)

    def meanwhile(code: str) -> None:
        with AnswerFile.open(tmp_path / "answers.db") as file:
            file.add(StoredAnswer("ffffffffffff", new_code(), url, 1, "1.0", survey.facts["threshold"], True))

    survey.on_question = meanwhile
    with pytest.raises(AlreadyAnswered, match="the same one by another name"):
        client.answer(new_code(), 1.0)
    assert survey.answers == []


def test_no_name_of_a_file_means_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (":memory:", Path(":memory:")):
        with AnswerFile.open(name) as file:
            file.remember_asking("a")
        with AnswerFile.open(name) as file:
            assert file.has_asked("a")


@network
@pytest.mark.parametrize(
    "pieces",
    [[b"hello\r\n\r\n"], [b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n", *[b"{"] * 99]],
    ids=["none", "slow"],
)
def test_what_is_no_http_or_never_ends_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: list[bytes]
) -> None:
    monkeypatch.setattr("privatile.survey.client.REQUEST_SECONDS", 0.2)
    came = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def speak() -> None:
            line, _ = server.accept()
            with line, suppress(OSError):
                line.recv(10_000)
                for piece in pieces:
                    line.sendall(piece)
                    if came.wait(0.05):
                        return

        thread = threading.Thread(target=speak)
        thread.start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}/"
        began = time.monotonic()
        with pytest.raises(ConnectionError, match="cannot be read"):
            SurveyClient(address, tmp_path / "answers.db", epsilon=0.1).answer(new_code(), 1.0, patience=0.0)
        assert time.monotonic() - began < 3.0, "99 pieces take five seconds"
        came.set()
        thread.join()


@network
def test_the_bit_is_on_the_disk_before_it_is_sent(survey: FakeSurvey, url: str, tmp_path: Path) -> None:
    seen: list[Any] = []

    def look(body: dict[str, Any]) -> None:
        with sqlite3.connect(tmp_path / "answers.db") as file:
            seen.extend(file.execute("SELECT code, round, answer, outcome FROM answers"))

    survey.on_answer = look
    code = new_code()
    sent = SurveyClient(url, tmp_path / "answers.db", epsilon=0.1).answer(code, 1.0)
    assert seen == [(code, 12, int(sent.answer), None)]
    with AnswerFile.open(tmp_path / "answers.db") as file:
        stored = file.find("0123456789ab", "")
        assert stored is not None
        with pytest.raises(sqlite3.IntegrityError):
            file.add(stored._replace(survey="another"))


@network
def test_a_survey_that_makes_wait_is_waited_for(
    survey: FakeSurvey, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    replies: Iterator[Any] = iter([(503, {"error": "wait"}, {"Retry-After": "7"}), (0, None, {})])
    survey.on_question = lambda code: next(replies, None)
    survey.on_answer = lambda body: (200, {"counted": False, "reason": "late"}, {})
    monkeypatch.setattr(time, "sleep", pauses.append)
    sent = SurveyClient(url, tmp_path / "answers.db", epsilon=0.1).answer(new_code(), 1.0)
    assert sent.outcome == "late"
    assert pauses == [7.0, 2.0]


@network
def test_declared_multiples_are_the_only_values(survey: FakeSurvey, url: str, tmp_path: Path) -> None:
    client = SurveyClient(url, tmp_path / "answers.db", epsilon=1.0)
    survey.facts["step"] = 0.01
    for between in (1_234.565, float("inf")):
        with pytest.raises(DataError, match=r"multiples of 0\.01 only"):
            client.answer(new_code(), between)
    assert not survey.answers
    assert client.answer(new_code(), 1_234_567.89).outcome == "counted"


@network
def test_refusals(survey: FakeSurvey, url: str, tmp_path: Path) -> None:
    client = SurveyClient(url, tmp_path / "answers.db", epsilon=0.1)
    for status, said in ((404, "does not know the code"), (409, "used already"), (410, "closed"), (302, "refuses")):
        survey.on_question = lambda code, status=status: (status, {}, {"Location": url})  # type: ignore[misc]
        with pytest.raises(ProtocolError, match=said):
            client.answer(new_code(), PLANTED)
    with pytest.raises(InputError, match="22 letters"):
        client.answer("c=" + new_code(), PLANTED)
    with pytest.raises(DataError, match="missing"):
        client.answer(new_code(), float("nan"))
    for query in ("NaN", "1e999", 12, "0x10"):
        survey.on_question = lambda code, query=query: (  # type: ignore[misc]
            200, {"survey": "0123456789ab", "round": 1, "query": query}, {},
        )  # fmt: skip
        with pytest.raises(ConnectionError, match="cannot be read"):
            client.answer(new_code(), PLANTED, patience=0.0)
    # A survey that asks this device alone for more than the card says, up to nearly the truth, gets nothing.
    for epsilon in (0.1001, 10.0):
        survey.facts["threshold"] = str(RandomizedResponse.from_epsilon(epsilon).threshold)
        with pytest.raises(ProtocolError, match=r"told to spend at most 0\.1\. Nothing was sent"):
            client.answer(new_code(), PLANTED)
    survey.facts["threshold"] = str(1 << 64)
    with pytest.raises(ProtocolError, match="hides too little"):
        client.answer(new_code(), PLANTED)
    with pytest.raises(StoreError, match="cannot be used"):
        SurveyClient(url, tmp_path, epsilon=0.1).answer(new_code(), PLANTED)
    with pytest.raises(InputError, match="https"):
        SurveyClient("http://survey.example.org/", tmp_path / "answers.db", epsilon=0.1)
    assert survey.answers == []


@network
@pytest.mark.parametrize(("coin", "answer"), [(b"\x00", True), (b"\xff", False)])
def test_the_coin_is_the_operating_systems(
    survey: FakeSurvey, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, coin: bytes, answer: bool
) -> None:
    asked: list[int] = []

    def urandom(size: int) -> bytes:
        asked.append(size)
        return coin * size

    monkeypatch.setattr("privatile.client.randomizer.os.urandom", urandom)
    assert SurveyClient(url, tmp_path / "answers.db", epsilon=0.1).answer(new_code(), PLANTED).answer is answer
    assert asked == [8], "one coin of 64 bits"


@network
def test_certificates_are_checked(survey: FakeSurvey, tmp_path: Path) -> None:
    """A server that cannot show who it is hears neither the code nor the bit."""
    certificate = trial_certificate(tmp_path)
    with survey.serve(certificate) as url:
        with pytest.raises(ConnectionError, match=r"is not trusted .*cafile"):  # at once, whatever the patience
            SurveyClient(url, tmp_path / "answers.db", epsilon=0.1).answer(new_code(), PLANTED)
        assert survey.requests == []
        client = SurveyClient(url, tmp_path / "answers.db", cafile=tmp_path / "authority.pem", epsilon=0.1)
        assert client.answer(new_code(), PLANTED).outcome == "counted"


@network
def test_nobody_who_listens_at_first_is_told_soon_and_nothing_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    code = new_code()
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # taken, and nobody listens
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        client = SurveyClient(address, tmp_path / "answers.db", epsilon=0.1)
        with pytest.raises(ConnectionError, match=f"nobody listens at {address} .*no coin was drawn.*survey serve"):
            client.answer(code, PLANTED)
    assert sum(pauses) <= 10.0  # of 120 seconds of patience
    with AnswerFile.open(tmp_path / "answers.db") as file:
        assert (file.has_asked(code), file.find("", code)) == (False, None)


@network
def test_a_bit_that_was_drawn_is_delivered_with_all_patience_where_nobody_listens_for_a_while(
    survey: FakeSurvey, url: str, tmp_path: Path
) -> None:
    refusals: dict[str, int] = {}

    def refusing(client: SurveyClient) -> SurveyClient:
        connect = client._opener.open

        def open_(request: Any, timeout: float) -> Any:
            path = request.full_url.removeprefix(url)
            if refusals.get(path, 0):
                refusals[path] -= 1
                raise urllib.error.URLError(ConnectionRefusedError(111, "Connection refused"))
            return connect(request, timeout=timeout)

        client._opener.open = open_  # type: ignore[method-assign, assignment]
        return client

    def client() -> SurveyClient:
        return refusing(SurveyClient(url, tmp_path / "answers.db", epsilon=0.1))

    code = new_code()
    refusals.update(question=4, answer=1000)  # after 1, 3, 7 and 15 seconds, and for ever
    with pytest.raises(ConnectionError, match=r"gives no answer .*stays the same"):
        client().answer(code, PLANTED, patience=20.0)
    with AnswerFile.open(tmp_path / "answers.db") as file:
        stored = file.find("", code)
    assert stored is not None
    refusals |= {"survey.json": 6, "answer": 6}
    assert client().answer(code, PLANTED).answer == stored.answer
    assert (survey.questions, len(survey.answers)) == (1, 1)
    refusals["survey.json"] = 6  # the control: with a code that was not used here
    with pytest.raises(ConnectionError, match="nobody listens"):
        client().answer(new_code(), PLANTED, confirmed=True)


def test_a_value_that_is_no_number_is_refused_in_words(tmp_path: Path) -> None:
    client = SurveyClient("http://localhost:1/", tmp_path / "answers.db", epsilon=1.0)
    for wrong in ("12", None, True):
        with pytest.raises(InputError, match="must be a number; got one of type"):
            client.answer(new_code(), wrong)  # type: ignore[arg-type]
