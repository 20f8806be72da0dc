"""The same people in another form, another case, another kind of file: they are recognised, and answer once."""

import datetime
import sqlite3
import unicodedata
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from privatile.client.ledger.integrity import PersonKey
from privatile.client.ledger.ledger import Ledger
from privatile.client.order.shuffle import shuffle
from privatile.client.randomizer import OperatingSystemCoins
from privatile.client.responder import Responder
from privatile.client.sources.databases import open_source
from privatile.client.sources.people import LONGEST_IDENTIFIER, person_text
from privatile.client.sources.source import Source
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Question
from privatile.errors import AlreadyAnswered, DataError, PrivatileError

PEOPLE = 20
NUMBERS = range(PEOPLE)
NAMES = [f"Zoë Straße-O'Neill {k}" for k in range(PEOPLE)]
UUIDS = [uuid.UUID(int=0xA6F00000000040008000000000000000 + k) for k in range(PEOPLE)]
READABLE = [uuid.UUID(int=0x4A2F43CA9D2541C48C587A245A723F00 + k) for k in range(PEOPLE)]
"""Version 4, and valid UTF-8 as bytes."""
HYPHENED = [f"10-11-{k + 1:02}" for k in range(PEOPLE)]
DATES = [datetime.date(1990, 1, 1) + datetime.timedelta(days=k) for k in range(PEOPLE)]


def frame(people: Any, first: float = 0.5) -> pd.DataFrame:
    """Other values than in other files: only the people are the same."""
    return pd.DataFrame({"x": [first + k for k in range(len(people))], "who": people})


def from_csv(folder: Path, people: list[str]) -> Source:
    path = folder / "second.csv"
    path.write_text("x;who\n" + "".join(f"{300 + k};{who}\n" for k, who in enumerate(people)), encoding="utf-8")
    return open_source(path, value="x", person="who")


def from_parquet(folder: Path, people: pa.Array) -> Source:
    path = folder / "second.parquet"
    pq.write_table(pa.table({"x": [500.0 + k for k in range(len(people))], "who": people}), path)
    return open_source(path, value="x", person="who")


def from_json(folder: Path, people: list[str]) -> Source:
    path = folder / "second.json"
    path.write_text("".join(f'{{"x": {k}.5, "who": {who}}}\n' for k, who in enumerate(people)), encoding="utf-8")
    return open_source(path, value="x", person="who")


def from_sql(people: list[object]) -> Source:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (x REAL, who)")
    connection.executemany("INSERT INTO t VALUES (?, ?)", [(9.0 + k, who) for k, who in enumerate(people)])
    return open_source(connection, sql="SELECT x, who FROM t ORDER BY x", value="x", person="who")


def in_memory(people: Any) -> Source:
    return open_source(frame(people, 700.0), value="x", person="who")


FORMS: dict[str, tuple[Any, Callable[[Path], Source]]] = {
    "numbers as text in a CSV": (NUMBERS, lambda folder: from_csv(folder, [f"{k}" for k in NUMBERS])),
    "leading zeros": (NUMBERS, lambda folder: from_csv(folder, [f"{k:05}" for k in NUMBERS])),
    "a plus sign, and minus zero": (
        NUMBERS,
        lambda folder: from_csv(folder, ["-0", *(f"+{k}" for k in NUMBERS[1:])]),
    ),
    "a float column in a CSV": (NUMBERS, lambda folder: from_csv(folder, [f"{k}.0" for k in NUMBERS])),
    "a decimal comma": (NUMBERS, lambda folder: from_csv(folder, [f"{k},0" for k in NUMBERS])),
    "exponents": (NUMBERS, lambda folder: from_csv(folder, [f"{k}0E-1" for k in NUMBERS])),
    "thousands": ([k * 1000 for k in NUMBERS], lambda folder: from_csv(folder, [f"{k},000" for k in NUMBERS])),
    "minus signs": (
        [-k for k in NUMBERS],
        lambda folder: from_csv(folder, [f"\u2212{k}" for k in NUMBERS]),
    ),
    "full-width digits": (
        NUMBERS,
        lambda folder: from_csv(folder, [str(k).translate({48 + d: 0xFF10 + d for d in range(10)}) for k in NUMBERS]),
    ),
    "arabic digits": (
        NUMBERS,
        lambda folder: from_csv(folder, [str(k).translate({48 + d: 0x660 + d for d in range(10)}) for k in NUMBERS]),
    ),
    "a float column in memory": (NUMBERS, lambda folder: in_memory(np.array(NUMBERS, dtype=float))),
    "nullable integers": (NUMBERS, lambda folder: in_memory(pd.array(list(NUMBERS), dtype="Int64"))),
    "polars floats": (
        NUMBERS,
        lambda folder: open_source(
            pl.DataFrame({"x": [1.5 * k for k in NUMBERS], "who": [float(k) for k in NUMBERS]}),
            value="x",
            person="who",
        ),
    ),
    "floats in Parquet": (NUMBERS, lambda folder: from_parquet(folder, pa.array([float(k) for k in NUMBERS]))),
    "narrow floats in Parquet": (
        NUMBERS,
        lambda folder: from_parquet(folder, pa.array([float(k) for k in NUMBERS], pa.float32())),
    ),
    "decimals in Parquet": (
        NUMBERS,
        lambda folder: from_parquet(folder, pa.array([Decimal(f"{k}.00") for k in NUMBERS])),
    ),
    "bytes in Parquet": (NUMBERS, lambda folder: from_parquet(folder, pa.array([b"%d" % k for k in NUMBERS]))),
    "integers in JSON": (NUMBERS, lambda folder: from_json(folder, [f"{k}" for k in NUMBERS])),
    "texts and numbers in JSON": (
        NUMBERS,
        lambda folder: from_json(folder, [f'"{k}"' if k % 2 else f"{k}" for k in NUMBERS]),
    ),
    "texts in a database": (NUMBERS, lambda folder: from_sql([f" {k}" for k in NUMBERS])),
    "floats in a database": (NUMBERS, lambda folder: from_sql([float(k) for k in NUMBERS])),
    "bytes in a database": (NUMBERS, lambda folder: from_sql([b"%d" % k for k in NUMBERS])),
    "capital letters": (NAMES, lambda folder: from_csv(folder, [name.upper() for name in NAMES])),
    "decomposed letters": (
        NAMES,
        lambda folder: from_csv(folder, [unicodedata.normalize("NFD", name) for name in NAMES]),
    ),
    "other blanks": (
        NAMES,
        lambda folder: from_csv(folder, [f"\u00a0{name.replace(' ', '  ')}\t\u200b" for name in NAMES]),
    ),
    "other dashes and apostrophes": (
        NAMES,
        lambda folder: from_csv(folder, [name.replace("-", "\u2011").replace("'", "\u2019") for name in NAMES]),
    ),
    "UUIDs without hyphens": ([str(one) for one in UUIDS], lambda folder: from_csv(folder, [one.hex for one in UUIDS])),
    "UUIDs in braces": (
        [one.hex for one in UUIDS],
        lambda folder: from_csv(folder, [f"{{{one}}}".upper() for one in UUIDS]),
    ),
    "UUIDs in braces without hyphens": (
        [str(one) for one in UUIDS],
        lambda folder: from_csv(folder, [f"{{{one.hex}}}" for one in UUIDS]),
    ),
    "UUIDs as bytes that happen to be UTF-8": (
        [str(one) for one in READABLE],
        lambda folder: from_parquet(folder, pa.array([one.bytes for one in READABLE])),
    ),
    "hyphened numbers that JSON readers take for dates": (
        HYPHENED,
        lambda folder: from_json(folder, [f'"{one}"' for one in HYPHENED]),
    ),
    "the same with one that is no date": (
        [*HYPHENED[1:], "X1"],
        lambda folder: from_json(folder, [f'"{one}"' for one in (*HYPHENED[1:], "X1")]),
    ),
    "numbers that JSON readers take for times": (
        [f"7:{k:02}" for k in NUMBERS],
        lambda folder: from_json(folder, [f'"7:{k:02}"' for k in NUMBERS]),
    ),
    "UUIDs as bytes": ([str(one) for one in UUIDS], lambda folder: from_sql([one.bytes for one in UUIDS])),
    "dates": ([str(day) for day in DATES], lambda folder: from_parquet(folder, pa.array(DATES))),
    "moments": ([str(day) for day in DATES], lambda folder: in_memory(pd.to_datetime([str(day) for day in DATES]))),
    "moments in a CSV": (DATES, lambda folder: from_csv(folder, [f"{day}T00:00:00Z" for day in DATES])),
}


def answered_twice(folder: Path, first: Any, second: Callable[[Path], Source]) -> int:
    """How many people answer again, one after the other, when they come back in another form."""
    key = PersonKey(b"p" * 32)
    mechanism = RandomizedResponse.from_epsilon(1.0)

    def answers(run: str, source: Source, ledger: Ledger) -> int:
        column = shuffle(source, ledger, person_key=key)["all"]
        try:
            site = Responder(run, column, mechanism, ledger, OperatingSystemCoins())
        except AlreadyAnswered:
            return 0
        given = 0
        for number in range(1, column.records + 1):
            try:
                site.answer(Question(run=run, round=number, level=0.5, query=1.0, length=1))
            except AlreadyAnswered:
                break
            given += 1
        return given

    with Ledger.in_memory() as ledger:
        assert answers("first", open_source(frame(first), value="x", person="who"), ledger) == PEOPLE
        return answers("second", second(folder), ledger)


@pytest.mark.parametrize("form", sorted(FORMS))
def test_people_who_come_back_in_another_form_do_not_answer_again(form: str, tmp_path: Path) -> None:
    assert answered_twice(tmp_path, *FORMS[form]) == 0


def test_other_people_do_answer(tmp_path: Path) -> None:
    """The control: what the test above calls 0 is 20 where the people are others, as it was where forms were told
    apart."""
    assert answered_twice(tmp_path, NUMBERS, lambda folder: from_csv(folder, [f"{k}" for k in range(100, 120)])) == 20
    assert answered_twice(tmp_path, NAMES, lambda folder: in_memory([f"Zoe Strasse {k}" for k in NUMBERS])) == 20


def refusal(value: object) -> str:
    with pytest.raises(DataError) as refused:
        person_text(value)
    return str(refused.value)


SECRET = "4711.0815"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "is missing in some rows"),
        (float("nan"), "is missing in some rows"),
        (float("inf"), "is missing in some rows"),
        (pd.NA, "is missing in some rows"),
        (pd.NaT, "is missing in some rows"),
        (np.ma.masked, "is missing in some rows"),
        (np.datetime64("NaT"), "is missing in some rows"),
        (Decimal("NaN"), "is missing in some rows"),
        ("", "is missing in some rows"),
        (" \u200b\u00a0", "is missing in some rows"),
        ("<NA>", "is missing in some rows"),
        ("NaN", "is missing in some rows"),
        (2.0**53, "no longer exact"),
        (-(2.0**53), "no longer exact"),
        (1e300, "no longer exact"),
        ("9007199254740993.0", "no longer exact"),
        ("1e+16", "no longer exact"),
        ("1.2345678901234568E+17", "no longer exact"),
        ("1.0E16", "no longer exact"),
        (np.float64(2**60), "no longer exact"),
        (True, "true and false"),
        (np.bool_(False), "true and false"),
        (SECRET * 400, "more than 1000 characters"),
        (10**4_000, "more than 1000 characters"),
        ([SECRET], "of the kind list"),
        ({SECRET: 1}, "of the kind dict"),
        (object(), "of the kind object"),
    ],
)
def test_an_entry_that_identifies_nobody_is_refused_without_being_shown(value: object, reason: str) -> None:
    assert reason in refusal(value)
    assert SECRET not in refusal(value)


def test_a_number_too_long_for_python_to_write_is_refused() -> None:
    assert "more than 1000 characters" in refusal(10**5_000)


def test_narrow_floats_are_refused_from_where_they_are_not_exact(tmp_path: Path) -> None:
    for column in (np.array([2.0**24] * 3, np.float32), pd.array([2.0**24] * 3, "Float32")):
        with pytest.raises(DataError, match="16777216 or more as floats"):
            list(in_memory(column).batches())
    with pytest.raises(DataError, match="16777216 or more as floats"):
        list(from_parquet(tmp_path, pa.array([2.0**24] * 3, pa.float32())).batches())
    people = [batch.people for batch in from_parquet(tmp_path, pa.array([2.0**24 + 1] * 3)).batches()]
    assert people == [[b"16777217"] * 3]


def test_exact_numbers_stay_exact_however_long() -> None:
    long = "9" * 400
    assert person_text(int(long)) == person_text(long) == person_text(f"00{long}") == person_text(Decimal(long)) == long
    assert person_text(2**53 + 1) == person_text(str(2**53 + 1)) != person_text(2**53)
    assert person_text("1" + "0" * 60) == person_text(10**60) == person_text("1e60") == person_text(Decimal("1E+60"))
    assert person_text("1e999999999") != person_text("1e999999998")
    assert person_text("1e9999999999999") == "1e9999999999999"


DIFFERENT = ["7", "-7", "70", "7.5", "0.7", "7a", "ada", "ada 7", "adá", "1990-01-02", "1990-01-02 10:00", "12e34"]


def test_different_identifiers_stay_different() -> None:
    assert len({person_text(each) for each in DIFFERENT}) == len(DIFFERENT)


@given(st.text(max_size=12) | st.from_regex(r"[-+ ]?[0-9]{0,6}[.,]?[0-9]{0,4}(e[-+]?[0-9]{1,3})?", fullmatch=True))
@example("\u0345\u0301")
@example("I\u0307")
@example("\u1e9e\u03c2\u0149")
def test_a_form_of_a_text_is_the_text(text: str) -> None:
    """In every Unicode form, and in capital or small letters, the same; and the result is a form of itself."""
    try:
        known = person_text(text)
    except PrivatileError:
        return
    assert person_text(known) == known
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert person_text(unicodedata.normalize(form, text)) == known
    ordered = unicodedata.normalize("NFD", text)  # marks in another order become other letters as capitals
    stored = text.encode("utf-8", "ignore")
    as_bytes = () if len(stored) == 16 and not (text.isascii() and text.isprintable()) else (stored,)  # else a UUID
    for other in (ordered.upper(), ordered.lower(), f" {text}\u200b\u3000", *as_bytes):
        if len(other) <= LONGEST_IDENTIFIER and not any("\ud800" <= letter <= "\udfff" for letter in text):
            assert person_text(other) == known


@pytest.mark.parametrize(
    "other", ["ann\U0001d173", "ann\U0001bca0", "\u2800ann", "a\u02d7b", "a\u2043b", "o\u055aneill", "o\ua78cneill"]
)
def test_signs_that_nobody_sees_or_tells_apart_make_no_new_person(other: str) -> None:
    known = {"a": "a-b", "o": "o'neill"}.get(other[0] if other[1] != "n" else "", "ann")
    assert person_text(other) == person_text(known)


@pytest.mark.parametrize("sign", "\u00b4\u02ca\u02cb\u0384\u05f3\u1fbf\u1ffd\u1ffe\u2035`\uff40")
def test_an_accent_that_stands_alone_is_an_apostrophe(sign: str) -> None:
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert person_text(unicodedata.normalize(form, f"O{sign}Neill")) == "o'neill"
    assert person_text("Zoe\u200b\u0301") == person_text("Zo\u00e9"), "with something invisible before the accent"
    # The controls: an accent upon a letter is none, and a group of digits is not read into points.
    assert person_text("Zoe\u0301") != person_text("Zoe'")
    assert person_text("1.234.567") != person_text("1234567")
    assert person_text("20240102") != person_text("2024-01-02")


def test_every_letter_is_recognised_in_both_cases_and_all_forms() -> None:
    strange = []
    for code in range(0x80, 0x20000):
        letter = chr(code)
        if unicodedata.category(letter)[0] in "LN" and (letter.upper() != letter or letter.lower() != letter):
            forms = {letter, letter.upper(), letter.lower(), unicodedata.normalize("NFD", letter)}
            if len({person_text(f"a{form}b") for form in forms}) > 1:
                strange.append(f"{code:x}")
    assert strange == []


def test_a_client_in_a_json_file_is_named_as_written(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('[{"x": 1, "town\'s": "10-11-12"}, {"x": 2, "town\'s": "01-02-03"}]')
    source = open_source(path, value="x", client="town's")
    assert [list(batch.values) for batch in source.batches()] == [[1.0, 2.0]]
    assert source.clients == ["10-11-12", "01-02-03"]
