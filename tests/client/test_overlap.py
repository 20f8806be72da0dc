"""The same records under other names: recognised, refused, added up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privatile.client.ledger.account import SpendingRules
from privatile.client.ledger.datasets import statement
from privatile.client.ledger.integrity import PersonKey
from privatile.client.ledger.ledger import Ledger
from privatile.client.order.shuffle import shuffle
from privatile.client.randomizer import SeededCoins
from privatile.client.responder import Responder
from privatile.client.sources.databases import open_source
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Question
from privatile.errors import AlreadyAnswered, OtherContent

KEY = PersonKey(b"p" * 32)
X = np.random.default_rng(5).normal(size=24)
REGIONS = ["north", "south", "north", "east"] * 6


def rows(**columns: Any) -> np.ndarray[Any, Any]:
    names = list(columns)
    kinds = [(name, float if name in ("pay", "salary") else "U20") for name in names]
    return np.array(list(zip(*columns.values(), strict=True)), dtype=kinds)


FILE = rows(
    salary=X,
    region=REGIONS,
    team=["a", "b", "b"] * 8,
    id=[f"p{k}" for k in range(24)],
    mail=[f"m{k}" for k in range(24)],
)


def run(
    ledger: Ledger, data: object, name: str, *, epsilon: float = 1.0, share: float = 1.0, only: str = "", **options: Any
) -> list[Responder]:
    """Ask `share` of the records of every client."""
    where = {key: options.pop(key, None) for key in ("value", "client", "person")}
    columns = shuffle(open_source(data, **where), ledger, person_key=KEY if where["person"] else None)
    mechanism = RandomizedResponse.from_epsilon(epsilon)
    coins = SeededCoins(np.random.default_rng(0))
    sites = []
    for client, column in columns.items():
        if only in ("", client):
            site = Responder(name, column, mechanism, ledger, coins, rules=SpendingRules(**options))
            length = int(share * column.records)
            if length:
                site.answer(Question(run=name, round=1, level=0.5, query=0.0, length=length))
            sites.append(site)
    return sites


def worst(ledger: Ledger) -> float:
    return max(line.epsilon for line in statement(ledger).datasets)


SPLITS: list[dict[str, Any]] = [{"client": "region"}, {"client": "team"}, {}]


@pytest.mark.parametrize("first", SPLITS)
@pytest.mark.parametrize("second", SPLITS)
def test_another_split_of_one_column(first: dict[str, Any], second: dict[str, Any]) -> None:
    ledger = Ledger.in_memory()
    run(ledger, FILE, "one", value="salary", **first)
    words = "left that may answer" if first == second else "the same column, split among other clients"
    with pytest.raises(AlreadyAnswered, match=words):
        run(ledger, FILE, "two", value="salary", **second)
    run(ledger, FILE, "two", value="salary", **second, spend_again=True)
    assert [line.epsilon for line in statement(ledger).datasets] == pytest.approx(
        [2.0] * len(statement(ledger).datasets)
    )
    if first != second:
        with pytest.raises(AlreadyAnswered, match=r"on top of 2 already spent"):
            run(ledger, FILE, "three", value="salary", **first, spend_again=True, max_epsilon=2.5)


def test_three_splits_add_up_to_three() -> None:
    ledger = Ledger.in_memory()
    for number, split in enumerate(SPLITS):
        run(ledger, FILE, f"run{number}", value="salary", **split, spend_again=True)
    assert worst(ledger) == pytest.approx(3.0)


def test_new_people_may_share_a_column_but_not_a_clients_content() -> None:
    ledger = Ledger.in_memory()
    run(ledger, FILE, "one", value="salary", client="region", share=0.5)
    run(ledger, FILE, "two", value="salary", new_people=True, share=0.5)
    assert worst(ledger) == pytest.approx(2.0)
    with pytest.raises(AlreadyAnswered, match="the same values as client 'all'"):
        run(ledger, {"other": X}, "three", value="salary", new_people=True)


@pytest.mark.parametrize(
    ("data", "options"),
    [
        ({"A": X}, {}),
        ({"a": X}, {"value": "salary"}),
        ({"A": X, "b": X[:5] + 1}, {}),
        (X, {}),
    ],
)
def test_renamed_content(data: object, options: dict[str, Any]) -> None:
    ledger = Ledger.in_memory()
    run(ledger, {"a": X}, "one", epsilon=0.5)
    with pytest.raises(AlreadyAnswered, match=r"0\.5 each is spent; another run over them would make it 1\.5"):
        run(ledger, data, "two", **options)
    run(ledger, data, "two", **options, spend_again=True)
    assert worst(ledger) == pytest.approx(1.5)


def test_a_clients_part_as_a_file_of_its_own() -> None:
    ledger = Ledger.in_memory()
    run(ledger, FILE, "one", value="salary", client="region")
    part = FILE[FILE["region"] == "north"]
    with pytest.raises(AlreadyAnswered, match="0 records left"):
        run(ledger, part, "two", value="salary", client="region")
    others: list[dict[str, Any]] = [{}, {"client": "team"}]
    for options in others:
        with pytest.raises(AlreadyAnswered, match="as client 'north'"):
            run(ledger, part, "two", value="salary", **options)


def test_data_sets_that_overlap_indirectly_are_added_up() -> None:
    ledger = Ledger.in_memory()
    part = FILE[FILE["region"] == "north"]
    run(ledger, part, "part", value="salary")
    run(ledger, FILE, "split", value="salary", client="region", spend_again=True)
    with pytest.raises(AlreadyAnswered, match="Up to epsilon 2 each"):
        run(ledger, FILE, "whole", value="salary")


def test_what_is_the_same_continues() -> None:
    """Parts of one split, twins among them, resumed runs, later runs, and another reader of the same rows."""
    ledger = Ledger.in_memory()
    twins = {"a": X, "b": X, "c": X + 1}
    run(ledger, twins, "one", share=0.5)
    assert [site.available() for site in run(ledger, twins, "one", share=0.5)] == [12, 12, 12]
    run(ledger, dict(twins), "later", share=0.5)
    assert worst(ledger) == pytest.approx(1.0)


def test_a_file_and_a_table_are_the_same_split(tmp_path: Path) -> None:
    ledger = Ledger.in_memory()
    lines = [f"{value!r},{region}" for value, region in zip(X.tolist(), REGIONS, strict=True)]
    (tmp_path / "x.csv").write_text("salary,region\n" + "\n".join(lines) + "\n")
    run(ledger, tmp_path / "x.csv", "one", value="salary", client="region", share=0.5)
    run(ledger, FILE, "two", value="salary", client="region", share=0.5)
    assert worst(ledger) == pytest.approx(1.0)
    assert len(statement(ledger).datasets) == 3


# -- people ------------------------------------------------------------------------------------------------------


def test_people_may_be_split_anew() -> None:
    ledger = Ledger.in_memory()
    run(ledger, FILE, "one", value="salary", client="region", person="id", share=0.5)
    (site,) = run(ledger, FILE, "two", value="salary", person="id", share=0)
    assert site.available() == 12
    assert worst(ledger) == pytest.approx(1.0)


def test_people_who_have_answered_are_said_to_have() -> None:
    ledger = Ledger.in_memory()
    run(ledger, FILE, "one", value="salary", client="region", person="id")
    with pytest.raises(AlreadyAnswered, match=r"0 people left .* Up to epsilon 1 each is spent; .* make it 2\."):
        run(ledger, FILE, "two", value="salary", person="id")


def test_another_person_column_is_refused() -> None:
    ledger = Ledger.in_memory()
    run(ledger, FILE, "one", value="salary", person="id")
    with pytest.raises(OtherContent, match=r"knows people by a column 'id'; got 'mail'.*new_people=True"):
        run(ledger, FILE, "two", value="salary", person="mail")
    assert statement(ledger).people == 24
    run(ledger, FILE, "two", value="salary", person="mail", new_people=True)
    assert statement(ledger).people == 48


def test_nameless_spending_counts_for_people() -> None:
    ledger = Ledger.in_memory()
    run(ledger, FILE, "one", value="salary", client="region")
    with pytest.raises(AlreadyAnswered, match="whose records they were is not known"):
        run(ledger, FILE, "two", value="salary", person="id")
    run(ledger, FILE, "two", value="salary", person="id", spend_again=True)
    assert (statement(ledger).person_epsilon, statement(ledger).nameless_epsilon) == pytest.approx((1.0, 1.0))


def test_people_in_a_csv_file_are_known_however_written(tmp_path: Path) -> None:
    ledger = Ledger.in_memory()
    for name, texts in (("one", "{}"), ("two", "{}.0"), ("three", " {}.00")):
        path = tmp_path / f"{name}.csv"
        path.write_text("id,salary\n" + "".join(f"{texts.format(k)},{k + len(name)}\n" for k in range(30)))
        if name == "one":
            run(ledger, path, name, value="salary", person="id")
            continue
        with pytest.raises(AlreadyAnswered, match="0 people left"):
            run(ledger, path, name, value="salary", person="id")
    assert statement(ledger).people == 30
