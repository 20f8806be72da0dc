"""CSV files as people write them: delimiters, decimal commas, thousands, units; no guess where two readings fit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privatile.client.ledger.account import SpendingRules
from privatile.client.ledger.datasets import statement
from privatile.client.ledger.ledger import Ledger
from privatile.client.order.shuffle import shuffle
from privatile.client.randomizer import SeededCoins
from privatile.client.responder import Responder
from privatile.client.sources.csv import TextFormat
from privatile.client.sources.databases import open_source
from privatile.client.sources.files import FileSource
from privatile.client.sources.source import Columns
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Question
from privatile.errors import AlreadyAnswered, DataError, InputError

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
    (column("1.234", "2.345"), {"decimal": "comma"}, [1234, 2345], "semicolons, -, points"),
    (column("1.234", "2.345"), {"decimal": "."}, [1.234, 2.345], "semicolons, points"),
    (column('"1,234"', delimiter=","), {"thousands": "comma"}, [1234], "commas, -, commas"),
    (column('"1,234"', delimiter=","), {"decimal": "comma", "delimiter": ","}, [1.234], ""),
    (column("1 234,50", f"1{NBSP}234{NARROW}567"), {"thousands": " "}, [1234.5, 1234567], "semicolons, commas, spaces"),
    (column("1'234.50", "1’234"), {"thousands": "'"}, [1234.5, 1234], "semicolons, points, apostrophes"),
    (column("1.234"), {"thousands": "none"}, [1.234], "semicolons, points, nothing"),
    (column("1,234"), {"thousands": "none"}, [1.234], "semicolons, commas, nothing"),
    (column("1.234,50 €", "€ 7", "-€5,5", "8"), {"unit": "€"}, [1234.5, 7, -5.5, 8], "semicolons, commas, points"),
    (column('"$1,234.50"', "-$3", "$-4", delimiter=","), {"unit": "$"}, [1234.5, -3, -4], "commas, points, commas"),
    (column("12 %", "50%"), {"unit": "%"}, [12, 50], "semicolons, -"),
    (column("1", "2"), {}, [1, 2], "semicolons, -"),
    (column("1", "2", delimiter="^"), {"delimiter": "^"}, [1, 2], "'^'s, -"),
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
    told = f"{between} between columns" + ("" if decimals == "-" else f", decimal {decimals}")
    told += "".join(f", {mark} between thousands" for mark in thousands)
    assert source.how_read == f"{tmp_path / 'data.csv'} is read with {told}."


REFUSED: list[tuple[str, dict[str, str], str]] = [
    # Two readings: a factor of a thousand lies between them.
    (column("1.234", "12.500", "7"), {}, r"read in two ways: every point .* decimal='point' or decimal='comma'"),
    (column('"1,234"', "7", delimiter=","), {}, "read in two ways: every comma"),
    (column("1,234", "1.234"), {}, "read in two ways"),
    # A number, but not like the others.
    (column("1_000", "7"), {}, "a number with underscores between its digits"),
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


# -- the same file, read another way ------------------------------------------------------------------------------

COMMA, POINT = {"decimal": "comma"}, {"decimal": "point"}


def asked(ledger: Ledger, path: Path, run: str, said: dict[str, str], by: tuple[str, ...] = (), **rules: Any) -> None:
    """Ask every record of the file, read as said and divided by these columns."""
    source = open_source(path, value="pay", groups=by, text_format=TextFormat(**said))
    for one in shuffle(source, ledger).values():
        mechanism, coins = RandomizedResponse.from_epsilon(1.0), SeededCoins(np.random.default_rng(0))
        site = Responder(run, one, mechanism, ledger, coins, rules=SpendingRules(**rules))
        site.answer(Question(run=run, round=1, level=0.5, query=5.0, length=one.records))


def paid(path: Path, mark: str, first: int = 100) -> Path:
    rows = [f"{'ns'[k % 2]};{'fmm'[k % 3]};{k % 9 + 1}{mark}{first + 37 * k}\n" for k in range(24)]
    path.write_text("region;sex;pay\n" + "".join(rows) + "n;f;\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("mark", [",", "."])
@pytest.mark.parametrize(
    ("first", "by", "second", "then"),
    [
        (COMMA, ("region",), POINT, ("sex",)),
        (POINT, ("region",), COMMA, ("sex",)),
        (COMMA, (), POINT, ("region",)),
        (POINT, ("region",), COMMA, ()),
        (COMMA, ("region",), POINT, ("region",)),
        (COMMA, (), POINT, ()),
        ({"decimal": "comma", "thousands": "none"}, ("region",), {"thousands": "comma"}, ("sex",)),
        (COMMA, ("region",), {"decimal": "comma", "unit": "€"}, ("sex",)),
    ],
)
def test_one_file_read_and_divided_another_way_does_not_answer_again(
    tmp_path: Path, mark: str, first: dict[str, str], by: tuple[str, ...], second: dict[str, str], then: tuple[str, ...]
) -> None:
    if mark == "." and first.get("thousands") == "none":
        first, second = {"decimal": "point"}, {"thousands": "point"}
    path, ledger = paid(tmp_path / "pay.csv", mark), Ledger.in_memory()
    asked(ledger, path, "one", first, by, max_epsilon=1.0)
    with pytest.raises(AlreadyAnswered, match="holds records that have answered before"):
        asked(ledger, path, "two", second, then)
    with pytest.raises(AlreadyAnswered, match="on top of 1 already spent"):
        asked(ledger, path, "two", second, then, spend_again=True, max_epsilon=1.0)
    asked(ledger, path, "two", second, then, spend_again=True, max_epsilon=2.0)
    assert {line.epsilon for line in statement(ledger).datasets} == {2.0}  # parts of a split are not added up


def test_other_text_is_another_file(tmp_path: Path) -> None:
    """The control: what is recognised is the text, and a file of other people is none of it."""
    ledger = Ledger.in_memory()
    asked(ledger, paid(tmp_path / "one.csv", ","), "one", COMMA, ("region",))
    asked(ledger, paid(tmp_path / "two.csv", ",", first=101), "two", POINT, ("sex",))
    assert {line.epsilon for line in statement(ledger).datasets} == {1.0}


def test_a_text_is_known_however_it_comes_in_pieces(tmp_path: Path) -> None:
    def texts(source: FileSource) -> tuple[list[int], bytes]:
        found = [batch.texts for batch in source.batches() if batch.texts is not None]
        return [int(one) for each in found for one in each.lengths], b"".join(each.written for each in found)

    path = tmp_path / "data.csv"
    path.write_text("pay\n" + "\n".join(f'"{entry}"' for entry in ["1,5", "NA", " 7 ", "22"]) + "\n", encoding="utf-8")
    assert texts(FileSource(path, Columns("pay"))) == ([3, 2, 3, 2], b"1,5NA 7 22")
    long = "site;pay\n" + "".join(f"a;{k},5\n" for k in range(300_000))
    lengths, written = texts(source_of(tmp_path, long))
    assert written == "".join(f"{k},5" for k in range(300_000)).encode()
    assert len(lengths) == 300_000
