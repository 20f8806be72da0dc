"""CSV files as people write them: delimiters, decimal commas, thousands, units; no guess where two readings fit."""

from pathlib import Path

import numpy as np
import pytest

from privatile.client.sources.files import FileSource
from privatile.client.sources.opening import open_source
from privatile.client.sources.text_format import TextFormat
from privatile.errors import DataError, InputError

SECRET = "471147"


def source_of(folder: Path, text: str, **said: str) -> FileSource:
    path = folder / "data.csv"
    path.write_text(text, encoding="utf-8")
    source = open_source(path, value="pay", text_format=TextFormat(**said))
    assert isinstance(source, FileSource)
    return source


def values(source: FileSource) -> list[float]:
    return [float(value) for batch in source.batches() for value in batch.values]


def column(*entries: str, delimiter: str = ";") -> str:
    return f"site{delimiter}pay\n" + "".join(f"a{delimiter}{entry}\n" for entry in entries)


NBSP, NARROW = "\u00a0", "\u202f"

READ: list[tuple[str, dict[str, str], list[float], str]] = [
    # What is found out.
    (column("1.234,56", "12", "-0,5", "1.234.567"), {}, [1234.56, 12, -0.5, 1234567], "semicolons, commas, points"),
    (column("7,25", "1.234"), {}, [7.25, 1234], "semicolons, commas, points"),
    (column("1.5", "1.234", delimiter="\t"), {}, [1.5, 1.234], "tabs, points"),
    (column("1.234", "0.125"), {}, [1.234, 0.125], "semicolons, points"),
    (column("1.234", "9.875", delimiter=","), {}, [1.234, 9.875], ""),
    (column('"1,234.50"', "3", delimiter=","), {}, [1234.5, 3], "commas, points, commas"),
    (column('"1,5"', '"2,25"', delimiter=","), {}, [1.5, 2.25], "commas, commas"),
    (column("1e3", "2.5e-1", ".5", "-inf", "NA"), {}, [1000, 0.25, 0.5, -np.inf, np.nan], "semicolons, points"),
    # What is given.
    (column("1.234", "2.345"), {"decimal": "comma"}, [1234, 2345], "semicolons, commas, points"),
    (column("1.234", "2.345"), {"decimal": "."}, [1.234, 2.345], "semicolons, points"),
    (column('"1,234"', delimiter=","), {"thousands": "comma"}, [1234], "commas, points, commas"),
    (column('"1,234"', delimiter=","), {"decimal": "comma", "delimiter": ","}, [1.234], ""),
    (column("1 234,50", f"1{NBSP}234{NARROW}567"), {"thousands": " "}, [1234.5, 1234567], "semicolons, commas, spaces"),
    (column("1'234.50", "1’234"), {"thousands": "'"}, [1234.5, 1234], "semicolons, points, apostrophes"),
    (column("1.234"), {"thousands": "none"}, [1.234], "semicolons, points, nothing"),
    (column("1,234"), {"thousands": "none"}, [1.234], "semicolons, commas, nothing"),
    (column("1.234,50 €", "€ 7", "-€5,5", "8"), {"unit": "€"}, [1234.5, 7, -5.5, 8], "semicolons, commas, points"),
    (column('"$1,234.50"', "-$3", "$-4", delimiter=","), {"unit": "$"}, [1234.5, -3, -4], "commas, points, commas"),
    (column("12 %", "50%"), {"unit": "%"}, [12, 50], "semicolons, points"),
    (column("1", "2", delimiter="^"), {"delimiter": "^"}, [1, 2], "'^'s, points"),
    (column("1.5", delimiter="\t"), {"delimiter": "tab", "decimal": "point"}, [1.5], ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said", "expected", "words"), READ)
def test_numbers_as_people_write_them(
    tmp_path: Path, text: str, said: dict[str, str], expected: list[float], words: str
) -> None:
    source = source_of(tmp_path, text, **said)
    assert str(values(source)) == str([float(number) for number in expected])
    if not words:  # as usual, or as it was given
        assert source.how_read == ""
        return
    between, decimals, *thousands = words.split(", ")
    told = f"{between} between columns, decimal {decimals}" + "".join(
        f", {mark} between thousands" for mark in thousands
    )
    assert source.how_read == f"{tmp_path / 'data.csv'} is read with {told}."


REFUSED: list[tuple[str, dict[str, str], str]] = [
    # Two readings: a factor of a thousand lies between them.
    (column("1.234", "12.500", "7"), {}, r"read in two ways: every point .* decimal='point' or decimal='comma'"),
    (column('"1,234"', "7", delimiter=","), {}, "read in two ways: every comma"),
    (column("1,234", "1.234"), {}, "read in two ways"),
    # A number, but not like the others.
    (column("1.5", "2,5"), {}, "record 2 .* written otherwise than the rest.*decimal points.*decimal='comma'"),
    (column("1,5", "2.5"), {"decimal": "comma"}, "record 2 .* written otherwise.*decimal commas.*decimal='point'"),
    (column("1,23,456.5", "1.5"), {}, "record 1 .* written otherwise"),
    # No numbers.
    (column("5", "2024-03-01"), {}, "record 2 after the header holds a date. A date is no number: .* days since"),
    (column("31.12.2024", "5"), {}, "record 1 after the header holds a date"),
    (column("1. März 2024"), {}, "holds a date"),
    (column("12:30"), {}, "holds a time of day"),
    (column("5", "$5"), {}, "record 2 .* an amount with a currency sign. .* unit='EUR'"),
    (column("1.234,50 €"), {}, "currency sign"),
    (column("CHF 1'234"), {}, "currency sign"),
    (column("5 €", "5 $"), {"unit": "€"}, "record 2 .* currency sign"),  # two currencies are never one column
    (column("70 kg"), {}, "a number with a unit.*unit='kg'"),
    (column("1 234,50"), {}, "blanks between its thousands. thousands='space' reads it"),
    (column(f"1{NARROW}234"), {}, "thousands='space'"),
    (column("1'234.50"), {}, "thousands='apostrophe'"),
    (column("5", "about five"), {}, "record 2 after the header holds something else"),
    (column("12 34"), {"thousands": "space"}, "holds something else"),
]


@pytest.mark.parametrize(("text", "said", "words"), REFUSED)
def test_what_is_no_number_is_named_and_not_shown(tmp_path: Path, text: str, said: dict[str, str], words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        values(source_of(tmp_path, text, **said))
    told = str(caught.value)
    shown = [
        entry for line in text.splitlines()[1:] for entry in line.split(";")[1:] if len(entry) > 3 and entry in told
    ]
    assert shown == []
    assert caught.value.__context__ is None


@pytest.mark.parametrize("entry", ["{}.12.2024", "{} €", "x{}", "1.5,{}"])
def test_no_error_shows_a_planted_value(tmp_path: Path, entry: str) -> None:
    with pytest.raises(DataError) as caught:
        values(source_of(tmp_path, column("1.5", entry.format(SECRET))))
    assert SECRET not in str(caught.value)


def test_late_rows_decide_too(tmp_path: Path) -> None:
    """The whole file is looked at: 5,000 rows in two readings, and one that tells."""
    many = ["1.234"] * 5_000
    with pytest.raises(DataError, match="two ways"):
        values(source_of(tmp_path, column(*many)))
    assert values(source_of(tmp_path, column(*many, "0,5")))[:2] == [1234.0, 1234.0]
    assert values(source_of(tmp_path, column(*many, "0.5")))[:2] == [1.234, 1.234]


def test_weights_are_written_like_the_values(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("pay;w\n1.234;0,5\n2.000;1,25\n")
    (batch,) = open_source(path, value="pay", weight="w").batches()
    assert batch.values.tolist() == [1234.0, 2000.0]
    assert batch.weights is not None
    assert batch.weights.tolist() == [0.5, 1.25]


def test_both_columns_are_named_where_either_may_be_meant(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("pay;w\n1;1.250\n2;2.500\n")
    with pytest.raises(DataError, match="columns 'pay' and 'w' can be read in two ways"):
        list(open_source(path, value="pay", weight="w").batches())


def test_formats_that_cannot_be(tmp_path: Path) -> None:
    for said, words in (
        ({"decimal": "dot"}, "decimal must be point or comma; got 'dot'"),
        ({"thousands": "-"}, "thousands must be"),
        ({"delimiter": "ab"}, "delimiter must be"),
        ({"delimiter": "5"}, "delimiter must be"),
        ({"unit": "5"}, "unit must be"),
        ({"decimal": "point", "thousands": "."}, "two marks"),
    ):
        with pytest.raises(InputError, match=words):
            TextFormat(**said)
    (tmp_path / "data.json").write_text('[{"pay": 1}, {"pay": 2}]')
    for data in (tmp_path / "data.json", {"a": [1, 2]}):
        with pytest.raises(InputError, match="decimal are for CSV files"):
            open_source(data, value="pay", text_format=TextFormat(decimal="comma"))
    # A delimiter that is given is the only one tried.
    with pytest.raises(DataError, match="no column 'pay'"):
        source_of(tmp_path, "site;pay\na;1\n", delimiter=",")
