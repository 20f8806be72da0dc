"""Tables from outside: every error at once, with its place, its rule and the kind it got."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from privatile.core.decoding import Document, decode_json, json_value, parse_json, parse_toml, read_toml
from privatile.errors import InputError


@dataclass
class Part:
    epsilon: float
    records: Annotated[int, Meta(ge=1, description="a whole number of at least 1")] = 1

    def __post_init__(self) -> None:
        if self.epsilon > 9:
            raise InputError(f"epsilon must be at most 9; got {self.epsilon:g}.")


@dataclass
class Whole:
    title: str
    mode: Literal["cohort", "local"] = "cohort"
    parts: Mapping[str, Part] = field(default_factory=dict)
    rows: tuple[Part, ...] = ()
    note: str | None = None


def errors(document: Document) -> list[str]:
    made = document.decode(Whole)
    assert made is None
    with pytest.raises(InputError) as refused:
        document.finish(made)
    return str(refused.value).splitlines()[1:]


def test_a_document_becomes_nested_dataclasses() -> None:
    document = parse_toml('title = "t"\n[parts.a]\nepsilon = 1\n[[rows]]\nepsilon = 2\nrecords = 3', "x.toml")
    assert document.finish(document.decode(Whole)) == Whole("t", parts={"a": Part(1.0)}, rows=(Part(2.0, 3),))
    document = Document({"title": "t", "note": None}, "x.json")
    assert document.finish(document.decode(Whole)) == Whole("t")


@dataclass
class Spent:
    epsilon: float
    more: dict[str, int] = field(default_factory=dict)


def test_a_key_that_an_object_has_twice_is_refused_however_deep() -> None:
    """Readers differ in which of the two they take."""
    decoder = msgspec.json.Decoder(Spent)
    text = b'{"epsilon": 1, "more": {"a": 1}}'
    assert decode_json(text, decoder) == Spent(1.0, {"a": 1})
    assert parse_json(text, "x") == json_value(text) == {"epsilon": 1, "more": {"a": 1}}
    for twice in (
        b'{"epsilon": 9, "epsilon": 1}',
        b'{"epsilon": 1, "more": {"a": 1, "a": 1}}',
        b'{"epsilon": 1, "more": {"a": 1, "\\u0061": 2}}',
    ):
        assert decoder.decode(twice).epsilon == 1.0  # the decoder alone takes the last
        with pytest.raises(msgspec.ValidationError, match="an object has a key twice"):
            decode_json(twice, decoder)
        with pytest.raises(InputError, match="x cannot be read: it: an object has a key twice"):
            parse_json(twice, "x")
    with pytest.raises(InputError, match="not valid TOML"):
        parse_toml("epsilon = 9\nepsilon = 1", "x.toml")


def test_every_error_is_reported_with_its_place() -> None:
    text = 'mode = "locl"\n[parts.a]\nepsilon = true\nrecords = 0\n[parts.b]\n[[rows]]\nepsilon = 10\n[colour]'
    assert errors(parse_toml(text, "x.toml")) == [
        "  title: is missing. It must be a text.",
        "  line 1, mode: must be one of cohort, local; got 'locl'.",
        "  line 3, parts.a.epsilon: must be a finite number; got true or false.",
        "  line 4, parts.a.records: must be a whole number of at least 1; got a whole number.",
        "  line 5, parts.b.epsilon: is missing. It must be a finite number.",
        "  line 6, rows[1]: epsilon must be at most 9; got 10.",
        "  line 8, colour: there is no such setting. Known: title, mode, parts, rows, note.",
    ]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ("17", "a text"),
        (math.nan, "a number that is not finite"),
        (None, "nothing"),
        ([1, "a"], "a list of 2 whole numbers and texts"),
        ({"a": 1}, "a table"),
    ],
)
def test_the_kind_is_shown_and_never_the_value(given: Any, kind: str) -> None:
    document = Document({"title": "t", "parts": {"a": {"epsilon": given}}}, "the study")
    assert errors(document) == [f"  parts.a.epsilon: must be a finite number; got {kind}."]


def test_files_that_are_no_tables_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    with pytest.raises(InputError, match=r"x\.toml cannot be read: no such file"):
        read_toml(path)
    path.write_bytes(b"\xff")
    with pytest.raises(InputError, match="not UTF-8"):
        read_toml(path)
    path.write_text("a = ")
    with pytest.raises(InputError, match="not valid TOML"):
        read_toml(path)
