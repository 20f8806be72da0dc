"""Question and Answer: they survive the wire unchanged, and nothing else passes."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privatile.core.messages import LARGEST_LENGTH, LONGEST_NAME, Answer, Position, Question
from privatile.errors import ProtocolError

names = st.text(min_size=1, max_size=LONGEST_NAME).filter(str.isprintable)
counts = st.integers(1, LARGEST_LENGTH)
levels = st.floats(0, 1, exclude_min=True, exclude_max=True)
finite = st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
questions = st.builds(
    Question, run=names, round=counts, level=levels, query=finite, length=counts, step=st.none() | positive
)
positions = st.builds(Position, st.integers(0, LARGEST_LENGTH), st.binary(min_size=16, max_size=16))
answers = st.builds(Answer, questions, names, st.integers(0, LARGEST_LENGTH), positions)

GOOD: dict[str, Any] = {"run": "r", "round": 1, "level": 0.5, "query": 1.0, "length": 10, "step": None}
REPLY: dict[str, Any] = {"question": GOOD, "client": "north", "ones": 4, "position": [3, "0" * 32]}


@given(questions)
def test_questions_survive_the_wire(question: Question) -> None:
    assert Question.from_json(question.to_json()) == question
    assert Question.from_json(question.to_json().encode()) == question
    assert Question.from_json(question.to_json()).to_json() == question.to_json()


@given(answers)
def test_answers_survive_the_wire(answer: Answer) -> None:
    assert Answer.from_json(answer.to_json()) == answer


@given(questions, questions)
def test_the_same_text_means_the_same_question(a: Question, b: Question) -> None:
    assert (a.to_json() == b.to_json()) == (a == b) or (a.query == 0 and b.query == 0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("run", ""),
        ("run", "x" * (LONGEST_NAME + 1)),
        ("run", "two\nlines"),
        ("run", 7),
        ("round", 0),
        ("round", -1),
        ("round", 1.0),
        ("round", True),
        ("round", LARGEST_LENGTH + 1),
        ("level", 0.0),
        ("level", 1.0),
        ("level", math.nan),
        ("level", "0.5"),
        ("query", math.inf),
        ("query", math.nan),
        ("query", None),
        ("query", False),
        ("length", 0),
        ("length", 2.5),
        ("step", 0.0),
        ("step", -1.0),
        ("step", math.inf),
        ("step", "1"),
    ],
)
def test_questions_are_strict(field: str, value: object) -> None:
    with pytest.raises(ProtocolError, match=f"^{field} must be"):
        Question.from_dict(GOOD | {field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ones", -1),
        ("ones", 1.0),
        ("ones", True),
        ("client", ""),
        ("client", "\x00"),
        ("position", [-1, "0" * 32]),
        ("position", [True, "0" * 32]),
        ("position", [1, "0" * 31]),
        ("position", [1, "0" * 32, 2]),
    ],
)
def test_answers_are_strict(field: str, value: object) -> None:
    with pytest.raises(ProtocolError, match=f"^{field} must be"):
        Answer.from_dict(REPLY | {field: value})


@pytest.mark.parametrize("field", sorted(GOOD))
def test_a_missing_field_is_refused(field: str) -> None:
    with pytest.raises(ProtocolError, match="exactly the fields"):
        Question.from_dict({key: value for key, value in GOOD.items() if key != field})


def test_an_extra_field_is_refused() -> None:
    with pytest.raises(ProtocolError, match="exactly the fields"):
        Answer.from_dict(REPLY | {"values": [1, 2, 3]})


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "7", '"x"', "[" * 100_000, b"\xff\xfe"])
def test_other_texts_are_refused(text: str | bytes) -> None:
    with pytest.raises(ProtocolError):
        Question.from_json(text)


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_no_text_crashes_the_reader(text: str) -> None:
    with pytest.raises(ProtocolError):
        Answer.from_json(text)


def test_numbers_that_are_not_json_are_refused() -> None:
    with pytest.raises(ProtocolError):
        Question.from_json(json.dumps(GOOD).replace("1.0", "NaN"))


@given(questions, st.data())
def test_an_answer_belongs_to_its_question(question: Question, data: st.DataObject) -> None:
    ones = data.draw(st.integers(0, question.length))
    assert Answer(question, "north", ones).check(question).ones == ones
    other = data.draw(questions.filter(lambda other: other != question))
    with pytest.raises(ProtocolError):
        Answer(other, "north", ones).check(question)
    if question.length < LARGEST_LENGTH:
        with pytest.raises(ProtocolError):
            Answer(question, "north", question.length + 1).check(question)


def test_a_field_given_twice_is_refused() -> None:
    text = json.dumps(GOOD)
    assert Question.from_json(text) == Question(**GOOD)
    with pytest.raises(ProtocolError, match="must be one JSON object"):
        Question.from_json(text.replace("{", '{"query": 9.0, '))
