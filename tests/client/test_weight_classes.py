"""Weight classes: narrow, large enough for every round, and no costlier than they must be."""

import hashlib
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privatile.client.ledger.ledger import Ledger
from privatile.client.order import shuffle as shuffling
from privatile.client.order import weights as weight_classes
from privatile.client.order.shuffle import ShuffledColumn, shuffle
from privatile.client.order.weights import (
    AgreedClass,
    ClassRule,
    WeightClass,
    WeightTally,
    grouped,
    takes_part,
    variance_factor,
)
from privatile.client.sources.databases import open_source
from privatile.core.arrays import Floats
from privatile.errors import DataError, InputError

MASTER = bytes(range(32))


def classes_of(weights: Floats, rule: ClassRule | None = None) -> tuple[WeightClass, ...]:
    tally = WeightTally()
    for part in np.array_split(weights, 3):  # as batches come
        tally.add(part)
    return weight_classes.weight_classes({"all": tally}, rule or ClassRule())["all"]


def survey(records: int, seed: int = 1) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    table = np.zeros(records, dtype=[("x", float), ("w", float), ("site", "U5"), ("who", "U9")])
    table["x"], table["w"] = rng.normal(50, 10, records), np.exp(rng.uniform(math.log(0.2), math.log(8), records))
    table["site"], table["who"] = rng.choice(["north", "south"], records), [f"p{k}" for k in range(records)]
    return table


def taking_part(columns: Any) -> set[float]:
    """The values of all who take part; here no two are alike."""
    return {float(value) for column in columns.values() for value in values_of(column)}


def values_of(column: ShuffledColumn) -> list[float]:
    return [float(value) for block in column.blocks(0, column.records) for value in block.values]


def shuffled(table: Any, master: bytes = MASTER, **options: Any) -> Any:
    rule = options.pop("rule", ClassRule())
    return shuffle(open_source(table, value="x", weight="w", **options), Ledger.in_memory(master=master), classes=rule)


@pytest.mark.parametrize("spread", ["log-uniform", "log-normal", "few values", "alike"])
@pytest.mark.parametrize("records", [300, 5_000, 40_000])
def test_an_ordinary_survey_gets_classes_it_can_be_asked_in(spread: str, records: int) -> None:
    rng = np.random.default_rng(records)
    weights = {
        "log-uniform": np.exp(rng.uniform(math.log(0.2), math.log(8.0), records)),
        "log-normal": np.clip(np.exp(rng.normal(0.0, 0.6, records)), 0.2, 8.0),
        "few values": rng.choice([1.0, 1.5, 2.0, 3.0], records),
        "alike": np.full(records, 2.5),
    }[spread]
    found = classes_of(weights)
    assert sum(one.records for one in found) == records
    assert math.fsum(one.total for one in found) == pytest.approx(weights.sum())
    assert all(before.high < after.low for before, after in pairwise(found))
    assert min(one.expected for one in found) >= 40
    if spread in ("few values", "alike"):
        assert variance_factor(found) == 1.0  # nobody is left out
        assert {one.high / one.low for one in found} == {1.0}
    if records == 40_000 or (records, spread) == (5_000, "log-uniform"):
        assert variance_factor(found) < 1.1


def test_no_class_is_wider_than_a_factor_of_1_2_where_records_suffice() -> None:
    rng = np.random.default_rng(4)
    found = classes_of(np.exp(rng.uniform(math.log(0.2), math.log(8.0), 30_000)))
    assert max(one.high / one.low for one in found) <= 1.2
    assert variance_factor(found) < 1.1
    # Stated rounds and several levels need larger classes, which costs.
    wide = classes_of(np.exp(rng.uniform(math.log(0.2), math.log(8.0), 5_000)), ClassRule(levels=3, rounds=100))
    assert min(one.expected for one in wide) >= 300
    assert variance_factor(wide) > variance_factor(found)


def test_no_other_grouping_of_few_bins_costs_less() -> None:
    """All 2^9 groupings of ten bins, tried one by one."""
    rng = np.random.default_rng(5)
    bins = [
        WeightClass(w, 1.3 * w, n, 1.15 * w * n, 1.33 * w * w * n)
        for w, n in zip(1.4 ** np.arange(10.0), rng.integers(5, 90, 10).tolist(), strict=True)
    ]

    def cost(edges: list[int]) -> float:
        total, whole = 0.0, sum(one.squares for one in bins)
        for first, last in pairwise(edges):
            part = weight_classes.joined(bins[first:last])
            if part.expected < 60:
                return math.inf
            kept = 1.0 - min(weight_classes.SEARCH / part.expected, 0.9)
            total += part.total * part.high / kept / whole + weight_classes.ONE_MORE
            total += weight_classes.TOO_WIDE * (part.high > 1.2 * part.low)
        return total

    found = grouped(bins, 60)
    edges = [0, *(1 + next(k for k, one in enumerate(bins) if one.high == part.high) for part in found)]
    ways = ([0, *(k + 1 for k in range(9) if mask >> k & 1), 10] for mask in range(1 << 9))
    assert cost(edges) == pytest.approx(min(map(cost, ways)))
    assert 1 < len(found) < 10


def test_a_record_takes_part_in_proportion_to_its_weight() -> None:
    rng = np.random.default_rng(6)
    draws = rng.integers(0, 1 << 64, size=200_000, dtype=np.uint64)
    for weight in (0.0, 0.25, 0.9, 1.0):
        share = takes_part(np.full(len(draws), weight), 1.0, draws).mean()
        assert share == pytest.approx(weight, abs=0.004)
    assert takes_part(np.ones(1), 1.0, np.array([2**64 - 1], dtype=np.uint64)).all()


def test_classes_stand_for_the_weighted_file() -> None:
    """Shares of the classes times those who take part give the weighted mean; without the draw it is another one."""
    table = survey(30_000)
    table["x"] += 30.0 * np.log(table["w"])
    columns = shuffled(table)
    total = table["w"].sum()
    assert sum(column.weights.total for column in columns.values()) == pytest.approx(total)
    mean = sum(column.weights.total / total * np.mean(values_of(column)) for column in columns.values())
    truth = np.average(table["x"], weights=table["w"])
    assert mean == pytest.approx(truth, abs=1.0)
    assert abs(table["x"].mean() - truth) > 20.0


# -- the draw is made once ---------------------------------------------------------------------------------------


def test_the_same_people_take_part_however_often_the_file_is_read() -> None:
    table = survey(4_000)
    first = taking_part(shuffled(table))
    assert len(first) < 3_900
    assert taking_part(shuffled(table)) == first
    # In small memory, through a spill file, the same.
    source = open_source(table, value="x", weight="w")
    assert taking_part(shuffle(source, Ledger.in_memory(master=MASTER), memory_rows=600)) == first
    # Control: with another ledger's key others take part.
    assert taking_part(shuffled(table, master=b"k" * 32)) != first


def test_the_draw_is_part_of_the_format() -> None:
    """Another definition of the draw would ask others after an update: a digest of who takes part, kept here."""
    table = np.zeros(3_000, dtype=[("x", float), ("w", float)])
    table["x"], table["w"] = np.arange(3_000.0), 1.0 + np.arange(3_000.0) % 50 / 100
    places = ",".join(str(int(value)) for value in sorted(taking_part(shuffled(table))))
    assert hashlib.sha256(places.encode()).hexdigest()[:16] == "215cdf6124633a34"


def test_with_a_person_column_the_order_of_the_rows_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from privatile.client.ledger.integrity import PersonKey

    table = survey(4_000)
    key = PersonKey(b"p" * 32)

    def people(rows: Any) -> set[float]:
        source = open_source(rows, value="x", weight="w", person="who")
        return taking_part(shuffle(source, Ledger.in_memory(master=MASTER), person_key=key))

    first = people(table)
    mixed = np.random.default_rng(9).permutation(table)
    assert people(mixed) == first
    # Control: without people the draw goes by position, and a re-sorted file is another file to the ledger.
    assert taking_part(shuffled(mixed)) != taking_part(shuffled(table))
    monkeypatch.setattr(shuffling, "takes_part", lambda weights, high, draws: np.ones(len(weights), dtype=np.bool_))
    assert len(people(table)) == 4_000


def test_an_agreed_class_asks_its_own_records_and_refuses_a_source_with_clients() -> None:
    table = survey(2_000)
    inside, outside = (1.0, 3.0), (3.0000001, 1e9)
    table["w"] = np.clip(table["w"], 1.0, None)
    column = shuffled(table, rule=AgreedClass(inside, (inside, outside)))[AgreedClass(inside, ()).name]
    own = set(table["x"][table["w"] <= inside[1]].tolist())
    asked = taking_part({"one": column})
    assert asked < own
    assert abs(len(asked) - table["w"][table["w"] <= inside[1]].sum() / inside[1]) < 5 * math.sqrt(len(own))
    source = open_source(table, value="x", weight="w", client="site")
    with pytest.raises(InputError, match="without a client column"):
        shuffle(source, Ledger.in_memory(master=MASTER), classes=AgreedClass(inside, (inside, outside)))


# -- where weights come from -------------------------------------------------------------------------------------


def test_files_tables_and_databases_give_the_same_classes(tmp_path: Path) -> None:
    import sqlite3

    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    table = survey(900)
    columns = {name: table[name].tolist() for name in ("x", "w", "site")}
    arrow = pa.table(columns)
    pq.write_table(arrow, tmp_path / "data.parquet")
    rows = list(zip(*columns.values(), strict=True))
    (tmp_path / "data.csv").write_text("x,w,site\n" + "\n".join(f"{x!r},{w!r},{site}" for x, w, site in rows) + "\n")
    (tmp_path / "data.json").write_text(str([dict(zip(columns, row, strict=True)) for row in rows]).replace("'", '"'))
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE t (x REAL, w REAL, site TEXT)")
    database.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    known = {name: sorted(values_of(column)) for name, column in shuffled(table, client="site").items()}
    assert any(name.startswith("north, weight 0.2") for name in known)
    sources: list[tuple[Any, dict[str, Any]]] = [
        (tmp_path / "data.csv", {}),
        (tmp_path / "data.parquet", {}),
        (tmp_path / "data.json", {}),
        (arrow, {}),
        (database, {"sql": "SELECT x, w, site FROM t ORDER BY rowid"}),
    ]
    for data, options in sources:
        found = shuffled(data, client="site", **options)
        assert {name: sorted(values_of(column)) for name, column in found.items()} == known


@pytest.mark.parametrize(
    ("wrong", "words"),
    [(math.nan, "is missing"), (math.inf, "is infinite"), (-31.75, "is negative")],
)
def test_a_weight_that_is_none_is_refused_without_being_shown(tmp_path: Path, wrong: float, words: str) -> None:
    table = survey(300)
    table["w"][77] = wrong
    with pytest.raises(DataError, match=f"record 78 {words}") as refused:
        shuffled(table)
    assert "31.75" not in str(refused.value)
    entry = {"is missing": "", "is infinite": "inf"}.get(words, repr(wrong))
    pairs = zip(table["x"].tolist(), table["w"].tolist(), strict=True)
    lines = [f"{x!r},{entry if k == 77 else repr(w)}" for k, (x, w) in enumerate(pairs)]
    (tmp_path / "data.csv").write_text("\n".join(["x,w", *lines]))
    with pytest.raises(DataError, match=f"record 78 {words}"):
        shuffled(tmp_path / "data.csv")


def test_words_in_the_place_of_weights_are_refused_without_being_shown(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("x,w\n1,2\n2,secret\n")
    with pytest.raises(DataError, match=r"column 'w' .* must hold numbers; record 2") as refused:
        shuffled(tmp_path / "data.csv")
    assert "secret" not in str(refused.value)


def test_the_column_that_is_asked_about_is_no_weight() -> None:
    cases: tuple[dict[str, Any], ...] = ({"weight": "x"}, {"weight": "site", "client": "site"})
    for named in cases:
        with pytest.raises(InputError, match="a column of its own"):
            open_source(survey(30), value="x", **named)
    with pytest.raises(InputError, match="no named columns"):
        open_source({"all": [1.0, 2.0]}, weight="w")


def test_weight_zero_is_not_asked() -> None:
    table = survey(2_000)
    table["w"][:500] = 0.0
    part = taking_part(shuffled(table))
    assert part.isdisjoint(table["x"][:500].tolist())
    table["w"] = 0.0
    with pytest.raises(DataError, match="weight 0"):
        shuffled(table)
