"""The round's only owner, without a broker: answers in, verdicts out."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import pytest

from privatile.core.messages import Answer, Position, Question
from privatile.errors import ProtocolError
from privatile.federation.coordinator.intake import MAX_OFFENCES, AnswerIntake
from privatile.federation.wire import Hello, RoundAnswers
from privatile.records.keys import KeyPair, verify

STUDY = "ab" * 32
KEY = KeyPair.generate()
QUESTION = Question("run", 3, 0.5, 10.0, 20)


def link(sequence: int) -> Position:
    return Position(sequence, sequence.to_bytes(16, "big"))


def answer(
    ones: int = 7,
    sequence: int = 9,
    number: int = 3,
    study: str = STUDY,
    key: KeyPair = KEY,
    asked: Question = QUESTION,
) -> bytes:
    answered = Answer(replace(asked, round=number), "a", ones, link(sequence))
    return RoundAnswers.of(study, [answered]).pack(key)


def signed(body: bytes) -> bytes:
    return body + b"\n" + base64.b64encode(KEY.sign(body))


def hello(ledger: Position, restored: Position | None = None, echo: str | None = None) -> bytes:
    return Hello(STUDY, "a", "1" * 32, ledger, restored, "2" * 32, echo).pack(KEY)


def open_intake(**state: object) -> AnswerIntake:
    defaults = {"links": {"a": link(8)}, "asked": {"a": 40, "b": 40}}
    intake = AnswerIntake(STUDY, {"a": KEY.public.signer}, **{**defaults, **state})  # type: ignore[arg-type]
    intake.open({"a": (QUESTION,), "b": (QUESTION,)})
    return intake


def test_answers_become_counts_and_links() -> None:
    intake = open_intake()
    assert intake.missing == ["a", "b"]
    assert intake.offer("a", answer()).outcome == "counted"
    assert intake.offer("a", answer()).outcome == "duplicate"
    assert intake.missing == ["b"]
    assert intake.counts() == [[7, None]]
    intake.close()
    assert not intake.is_open
    assert intake.offer("a", answer()).outcome == "late"
    intake.open({"a": (replace(QUESTION, round=4),)})
    assert intake.offer("a", answer(number=4)).outcome == "forked"  # the ledger's link of round 3 came again


@pytest.mark.parametrize(
    ("payload", "outcome", "reason"),
    [
        (answer(number=2), "late", ""),
        (answer(number=4), "ahead", "a later round"),
        (answer(ones=21), "rejected", "ones must be a whole number"),
        (answer(study="cd" * 32), "foreign", "another study"),
        (answer(key=KeyPair.generate()), "unsigned", "expected signer"),
        (hello(link(9)), "foreign", "not an answer"),
        (signed(b'{"kind":"answer"}'), "rejected", "missing"),
        (b"noise", "unsigned", "one line of JSON"),
        (answer() + b" " * 9000, "unsigned", "bytes"),
        (answer(sequence=8), "forked", "entry 8 was seen before"),
    ],
)
def test_what_does_not_count(payload: bytes, outcome: str, reason: str) -> None:
    verdict = open_intake().offer("a", payload)
    assert verdict.outcome == outcome
    assert reason in verdict.reason
    assert "21" not in verdict.reason


def test_an_answer_written_in_another_way_is_rejected() -> None:
    # Its signature would not hold for the text that `verify` writes from the run's file.
    body = answer().rpartition(b"\n")[0]
    spaced = body.replace(b",", b", ", 1)
    assert json.loads(spaced) == json.loads(body)
    assert open_intake().offer("a", signed(spaced)).outcome == "rejected"
    assert open_intake().offer("a", signed(body)).outcome == "counted"


def test_offences_lead_to_quarantine_until_readmitted() -> None:
    intake = open_intake()
    verdicts = [intake.offer("a", answer(ones=21 + k)) for k in range(MAX_OFFENCES)]
    assert [bool(verdict.quarantine) for verdict in verdicts] == [False] * (MAX_OFFENCES - 1) + [True]
    assert intake.offer("a", answer()).outcome == "ignored"
    assert intake.readmit("a")
    assert not intake.readmit("a")
    assert intake.offer("a", answer(ones=30)).quarantine == ""
    assert intake.offer("a", answer()).outcome == "counted"


def test_one_signed_answer_sent_again_and_again_is_one_offence() -> None:
    """Before, anybody who had recorded one bad answer could have its client quarantined."""
    intake = open_intake()
    body, _, signature = answer(ones=21).rpartition(b"\n")
    outcomes = [intake.offer("a", payload).outcome for payload in (body + b"\n" + signature,) * 10]
    assert outcomes == ["rejected"] + ["stale"] * 9
    assert not intake.quarantined
    assert intake.offer("a", answer()).outcome == "counted"
    # Not in later rounds either, where only what is malformed has no round of its own.
    malformed = [signed(b'{"kind":"answer"}'), signed(b'{"kind":"answer","study":1}')]
    for number in range(4, 9):
        intake.close()
        intake.open({"a": (replace(QUESTION, round=number),)})
        for payload in malformed * 5:
            assert not intake.offer("a", payload).quarantine
        assert intake.offer("a", answer(number=number, sequence=6 + number)).outcome == "counted"


def test_answers_to_later_rounds_never_end_in_quarantine() -> None:
    """A coordinator that was restored from an older copy asks again what honest clients have answered."""
    intake = open_intake()
    for number in range(4, 20):
        verdict = intake.offer("a", answer(number=number))
        assert (verdict.outcome, verdict.quarantine) == ("ahead", "")
    assert not intake.quarantined
    assert intake.offer("a", answer()).outcome == "counted"


def test_a_count_clears_offences() -> None:
    intake = open_intake()
    for number in range(3, 20):
        for k in range(MAX_OFFENCES - 1):
            assert intake.offer("a", answer(ones=21 + k, number=number)).outcome == "rejected"
        assert intake.offer("a", answer(number=number, sequence=6 + number)).outcome == "counted"
        intake.close()
        intake.open({"a": (replace(QUESTION, round=number + 1),)})
    assert not intake.quarantined


def test_stored_answers_do_not_add_to_offences() -> None:
    intake = open_intake()
    for _ in range(2 * MAX_OFFENCES):
        assert intake.offer("a", answer(ones=21), from_storage=True).outcome == "stale"
    assert intake.offer("a", answer()).outcome == "counted"


def test_rubbish_on_an_answer_subject_never_harms_the_client_it_names() -> None:
    """Anybody may have put it there: a broker's reply, a recorded message, another client's key."""
    intake = open_intake()
    rubbish = [b"noise", b"", answer(key=KeyPair.generate()), answer(study="cd" * 32), hello(link(9)), answer(number=2)]
    for payload in rubbish * 5:
        verdict = intake.offer("a", payload)
        assert verdict.outcome in ("unsigned", "foreign", "late")
        assert not verdict.quarantine
    assert not any(intake.offer("stranger", b"noise").quarantine for _ in range(5))
    assert intake.offer("a", answer()).outcome == "counted"


def test_bad_and_repeated_answers_in_turn_end_in_quarantine() -> None:
    """Before, every repeated answer cleared the offences, and every bad one wrote a row: without end."""
    intake = open_intake()
    assert intake.offer("a", answer()).outcome == "counted"
    outcomes = [intake.offer("a", payload).outcome for k in range(100) for payload in (answer(ones=21 + k), answer())]
    assert outcomes.count("rejected") == MAX_OFFENCES
    assert list(intake.quarantined) == ["a"]


def test_two_different_answers_are_a_fork_and_neither_counts() -> None:
    intake = open_intake()
    assert intake.offer("a", answer(sequence=9)).outcome == "counted"
    verdict = intake.offer("a", answer(sequence=10))
    assert verdict.outcome == "forked"
    assert "two copies" in verdict.quarantine
    assert intake.counts() == [[None, None]]
    assert list(intake.quarantined) == ["a"]


def test_keys_are_replaced_and_revoked_in_mid_round() -> None:
    intake, new = open_intake(), KeyPair.generate()
    assert intake.replace_signers({"a": KEY.public.signer, "b": new.public.signer}) == ([], [])
    assert intake.replace_signers({"a": new.public.signer}) == (["a"], ["b"])
    assert intake.offer("a", answer()).outcome == "unsigned"
    assert intake.offer("a", answer(key=new)).outcome == "counted"


def test_an_answer_names_the_key_that_signed_it() -> None:
    """Its signature holds under no other, whatever becomes of the client's key before the round closes."""
    for after in ({"a": KeyPair.generate().public.signer}, {}):
        intake = open_intake()
        assert intake.offer("a", answer()).outcome == "counted"
        intake.replace_signers(after)
        assert intake.answers["a"].signer == KEY.public.signer
        assert verify(KEY.public.signer, answer().rpartition(b"\n")[0], base64.b64decode(intake.answers["a"].signature))


def test_hellos() -> None:
    intake = open_intake()
    greeting = intake.greet("a", hello(link(8)), 2, "3" * 32)
    assert greeting is not None
    assert greeting.restored is None
    assert (greeting.welcome.ledger, greeting.welcome.round, greeting.welcome.records) == (link(8), 2, 60)
    assert (greeting.welcome.nonce, greeting.welcome.echo) == ("3" * 32, "2" * 32)
    intake.offer("a", answer())
    greeting = intake.greet("a", hello(link(9)), 2, "4" * 32)
    assert greeting is not None
    assert (greeting.welcome.ledger, greeting.welcome.round) == (link(9), 3)
    assert intake.greet("stranger", b"noise", 2, "5" * 32) is None
    with pytest.raises(ProtocolError, match="not a hello"):
        intake.greet("a", answer(), 2, "5" * 32)


def test_a_recorded_hello_is_not_fresh_and_moves_no_ledger() -> None:
    intake = open_intake()
    declared = hello(link(5), restored=link(8), echo="3" * 32)
    for nonce in ("3" * 32, "4" * 32):
        intake.greet("a", hello(link(8)), 2, nonce)
    greeting = intake.greet("a", hello(link(5), restored=link(8)), 2, "5" * 32)  # declares, but echoes nothing
    assert greeting is not None
    assert (greeting.fresh, greeting.restored, greeting.welcome.ledger) == (False, None, link(8))
    greeting = intake.greet("a", declared, 2, "6" * 32)
    assert greeting is not None
    assert greeting.fresh
    assert greeting.restored == greeting.welcome.ledger == link(5)
    greeting = intake.greet("a", declared, 2, "7" * 32)  # the same one again
    assert greeting is not None
    assert (greeting.fresh, greeting.restored) == (False, None)
    assert intake.offer("a", answer(sequence=6)).outcome == "counted"


def test_a_restore_waits_while_an_answer_of_the_lost_ledger_stands() -> None:
    """Its link would come back when the round closes, and the restored ledger be taken for a fork."""
    intake = open_intake()
    assert intake.offer("a", answer(sequence=9)).outcome == "counted"
    for nonce in ("3" * 32, "4" * 32):
        intake.greet("a", hello(link(9)), 2, nonce)
    greeting = intake.greet("a", hello(link(5), restored=link(9), echo="3" * 32), 2, "5" * 32)
    assert greeting is not None
    assert (greeting.fresh, greeting.restored, greeting.welcome.ledger) == (True, None, link(9))
    assert intake.counts() == [[7, None]]
    intake.close()
    intake.open({"a": (replace(QUESTION, round=4),)})
    greeting = intake.greet("a", hello(link(5), restored=link(9), echo="4" * 32), 3, "6" * 32)
    assert greeting is not None
    assert greeting.restored == greeting.welcome.ledger == link(5)
    assert intake.offer("a", answer(number=4, sequence=6)).outcome == "counted"


def test_a_restore_that_cannot_be_welcomed_changes_nothing() -> None:
    intake = open_intake(quarantined={"a": "a reason\nof two lines"})
    intake.readmit("a")
    intake.greet("a", hello(link(8)), 2, "3" * 32)
    intake.quarantine("a", "a reason\nof two lines")
    with pytest.raises(ProtocolError, match="printable"):
        intake.greet("a", hello(link(5), restored=link(8), echo="3" * 32), 2, "4" * 32)
    intake.readmit("a")
    assert intake.offer("a", answer(sequence=6)).outcome == "forked"  # the ledger's last link is still entry 8
