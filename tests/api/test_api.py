import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privatile
from privatile.api.local_run import prepare
from privatile.client.ledger.ledger import Ledger
from privatile.client.order.shuffle import shuffle
from privatile.client.randomizer import OperatingSystemCoins
from privatile.client.responder import Responder
from privatile.client.sources.databases import open_source
from privatile.core.mechanism import RandomizedResponse
from privatile.errors import AlreadyAnswered, InputError, PrivatileError
from privatile.planning.options import Options
from privatile.run.run_file import RunStore

RNG = np.random.default_rng(12)


def test_unequal_clients_are_estimated_and_no_record_answers_twice(tmp_path: Path) -> None:
    """n_k from 500 to 50,000: every record's place in its client's order is used exactly once."""
    sizes = {"tiny": 500, "small": 3_000, "large": 50_000}
    data = {name: RNG.normal(10.0, 2.0, size) for name, size in sizes.items()}
    result = privatile.estimate(data, epsilon=2, range=(0, 20), ledger=tmp_path / "ledger.db")
    assert {client.name: client.asked for client in result.clients} == sizes
    low, high = result.interval(0.9999)
    assert low < 10.0 < high
    with sqlite3.connect(tmp_path / "ledger.db") as database:
        for name, size in sizes.items():
            rows = database.execute("SELECT start, stop, length FROM answers WHERE client = ? ORDER BY start", (name,))
            position = 0
            for start, stop, length in rows:
                assert start == position
                assert stop - start == length
                position = stop
            assert position == size
    database.close()


def test_a_table_a_column_and_a_mapping_are_all_data(tmp_path: Path) -> None:
    values, regions = RNG.normal(size=600), np.repeat(["a", "b"], 300)
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    arrow = pytest.importorskip("pyarrow")
    plain = {"x": values, "region": regions}
    kinds = {
        "pandas": pandas.DataFrame(plain),
        "polars": polars.DataFrame(plain),
        "pyarrow": arrow.table(plain),
    }
    for name, table in kinds.items():
        result = privatile.estimate(
            table, value="x", client="region", epsilon=1, range=(-5, 5), ledger=tmp_path / f"{name}.db"
        )
        assert [client.name for client in result.clients] == ["a", "b"]
        assert result.records == 600
    single = privatile.estimate(values, epsilon=1, range=(-5, 5), ledger=tmp_path / "single.db")
    assert [client.name for client in single.clients] == ["all"]


def test_a_database_query_is_data(tmp_path: Path) -> None:
    base = sqlite3.connect(":memory:")
    base.execute("CREATE TABLE people (region TEXT, pay REAL)")
    base.executemany("INSERT INTO people VALUES (?, ?)", [("a" if i % 2 else "b", float(i)) for i in range(400)])
    result = privatile.estimate(
        base,
        sql="SELECT * FROM people ORDER BY rowid",
        value="pay",
        client="region",
        epsilon=1,
        range=(0, 400),
        ledger=tmp_path / "ledger.db",
    )
    assert result.records == 400


def test_other_data_for_the_same_client_and_column_is_refused_unless_new_people(tmp_path: Path) -> None:
    options: dict[str, Any] = {"epsilon": 1, "range": (-5, 5), "ledger": tmp_path / "ledger.db", "value": "x"}
    privatile.estimate({"a": RNG.normal(size=200)}, **options)
    other = {"a": RNG.normal(size=200)}
    with pytest.raises(PrivatileError, match="new_people=True"):
        privatile.estimate(other, **options)
    assert privatile.estimate(other, new_people=True, **options).records == 200


def test_a_second_run_says_what_it_would_cost(tmp_path: Path) -> None:
    data = {"a": RNG.normal(size=200)}
    options: dict[str, Any] = {"range": (-5, 5), "ledger": tmp_path / "ledger.db"}
    privatile.estimate(data, epsilon=1, **options)
    with pytest.raises(AlreadyAnswered, match=r"would make it 1\.5"):
        privatile.estimate(data, epsilon=0.5, **options)


def test_not_private_must_be_named_and_is_marked(tmp_path: Path) -> None:
    data = {"a": RNG.normal(size=500)}
    result = privatile.estimate(data, not_private=True, range=(-5, 5), ledger=tmp_path / "ledger.db")
    assert "not-private" in {caveat.code for caveat in result.caveats}
    assert result.facts()["epsilon"] is None
    with pytest.raises(InputError, match="there is no default"):
        privatile.estimate(data, range=(-5, 5))


def test_dither_and_targets_are_named(tmp_path: Path) -> None:
    data = {"a": np.repeat([1.0, 2.0, 3.0, 4.0], 500)}
    options: dict[str, Any] = {"epsilon": 2, "range": (0, 6), "value": "pay"}
    result = privatile.estimate(data, dither=1.0, ledger=tmp_path / "one.db", **options)
    assert "dithered by ±0.5" in result.estimand
    whole = privatile.estimate(data, ledger=tmp_path / "a.db", **options)
    file = privatile.estimate(data, target="file", ledger=tmp_path / "b.db", **options)
    assert (whole.target, file.target) == ("population", "file")
    assert "file" in {caveat.code for caveat in file.caveats}


def test_a_run_read_in_another_way_is_the_same_run(tmp_path: Path) -> None:
    """Another confidence level asks no new question: a saved run is shown again, wider."""
    data = {"a": RNG.normal(size=2000)}
    options: dict[str, Any] = {"epsilon": 2, "range": (-5, 5), "ledger": tmp_path / "l.db", "save": tmp_path / "r.db"}
    first = privatile.estimate(data, **options)
    second = privatile.estimate(data, confidence_level=0.9999, **options)
    assert second.run == first.run
    assert second.estimate == first.estimate
    (low, high), (first_low, first_high) = second.confidence_interval, first.confidence_interval
    assert low <= first_low < first_high <= high
    assert high - low > first_high - first_low
    # Neither does a grid, nor the other one of its two intervals; values to be asked as continuous ones do.
    whole = privatile.estimate(data, value_kind="whole", **options)
    assert (whole.run, whole.confidence_interval) == (first.run, first.confidence_interval)
    assert whole.grid_values is not None
    assert 0.0 in whole.grid_values
    chosen = [{caveat.code for caveat in one.caveats} >= {"chosen-later"} for one in (first, second, whole)]
    assert chosen == [False, False, True]
    smooth = privatile.estimate(data, interval="smooth", **options)
    assert first.other is not None
    assert (smooth.run, smooth.confidence_interval) == (first.run, first.other.interval)
    asked = privatile.estimate(data, value_kind="continuous", design="straddle", **options)
    assert (asked.run, asked.confidence_interval) == (first.run, first.other.interval)
    with pytest.raises(PrivatileError, match="another run"):
        privatile.estimate(data, value_kind="continuous", **options)
    with pytest.raises(PrivatileError, match="another run"):
        privatile.estimate(data, dither=0.5, **options)


def test_a_file_is_never_simulated(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("x\n" + "\n".join(str(i) for i in range(100)))
    with pytest.raises(InputError, match="made-up data in memory"):
        privatile.estimate(tmp_path / "data.csv", value="x", epsilon=1, range=(0, 99), simulate=True, rng=1)


def test_a_simulation_has_no_ledger(tmp_path: Path) -> None:
    """It would look as if a ledger had been kept, and the same records could answer again."""
    book, made_up = tmp_path / "ledger.db", {"a": np.arange(999.0)}
    options: dict[str, Any] = {"epsilon": 1, "range": (0, 999), "simulate": True, "rng": 1}
    with pytest.raises(InputError, match=r"nothing of it is written to a ledger\. Leave out ledger"):
        privatile.estimate(made_up, ledger=book, **options)
    rows = np.array([(k, f"p{k}") for k in range(999)], dtype=[("x", float), ("who", "U4")])
    with pytest.raises(InputError, match="Leave out ledger"):
        privatile.estimate(rows, value="x", by="who", ledger=str(book), **options)
    key = tmp_path / "person.key"
    assert privatile.estimate(rows, value="x", person="who", person_key=key, **options).records == 999
    assert list(tmp_path.iterdir()) == []  # nor does it make a key of people


def test_the_file_is_the_whole_file_however_many_levels_or_runs_share_it(tmp_path: Path) -> None:
    data = {"a": RNG.normal(size=3000)}
    options: dict[str, Any] = {"epsilon": 3, "range": (-5, 5), "target": "file"}
    first = privatile.estimate(data, q=[0.3, 0.7], save=tmp_path / "r.db", ledger=tmp_path / "l.db", **options)
    assert len(first) == 2
    spec = RunStore.open(tmp_path / "r.db").spec
    assert [client.records for client in spec.at_level(0)] == [1500]
    assert [client.file_size for client in spec.at_level(0)] == [3000]


def test_choices_and_files_are_checked_before_anyone_is_asked(tmp_path: Path) -> None:
    data = {"a": RNG.normal(size=200)}
    base: dict[str, Any] = {"epsilon": 1, "range": (-5, 5), "ledger": tmp_path / "l.db"}
    for change, text in (
        ({"mode": "banana"}, "mode must be one of"),
        ({"local_level": "banana"}, "local_level must be one of"),
        ({"missing": "banana"}, "missing must be one of"),
        ({"rounds": 25.5}, "whole number"),
        ({"save": tmp_path / "l.db"}, "two files"),
        ({"range": (-1e308, 1e308)}, "two finite numbers"),
    ):
        with pytest.raises(PrivatileError, match=text):
            privatile.estimate(data, **{**base, **change})
    assert list(tmp_path.iterdir()) == []


def test_a_schedule_that_cannot_fit_is_said_before_what_the_ledger_refuses(tmp_path: Path) -> None:
    data = {"a": RNG.normal(size=40)}
    options: dict[str, Any] = {"epsilon": 1, "range": (-5, 5), "ledger": tmp_path / "l.db"}
    privatile.estimate(data, **options)
    with pytest.raises(InputError, match="records of the smallest client, 40; got 41"):
        privatile.estimate(data, rounds=41, **options)
    with pytest.raises(AlreadyAnswered, match="0 records left"):
        privatile.estimate(data, rounds=40, **options)


def test_giving_up_an_unfinished_run_frees_what_it_had_reserved(tmp_path: Path) -> None:
    """With `new_run` the second run may ask all that the first had reserved and not asked, and nobody answers twice."""
    records = np.random.default_rng(5).normal(50, 10, 20_000)
    options = Options(q=0.5, epsilon=1, range=(0, 100), ledger=tmp_path / "ledger.db")

    def stop_early(done: int, planned: int) -> None:
        if done >= 3:
            raise KeyboardInterrupt

    first = prepare(records, options)
    with pytest.raises(KeyboardInterrupt):
        first.complete(stop_early)
    asked = sum(responder.account.state().asked for responder in first._responders)
    assert first.store is not None
    first.store.close()
    first.ledger.close()
    second = prepare(records, replace(options, new_run=True))
    assert second.store is None
    assert 0 < asked < len(records)
    assert second.spec.clients[0].records == len(records) - asked


def test_all_clients_of_a_run_reserve_their_records_or_none(tmp_path: Path) -> None:
    """Another run takes those of the second client after this one was prepared: the first one's stay free."""
    data = {name: RNG.normal(10.0, 2.0, 600) for name in ("north", "south")}
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        with ledger.transaction():
            pass
        refused = prepare(data, Options(epsilon=1, range=(0, 20), ledger=tmp_path / "ledger.db"))
        columns = shuffle(open_source(data), ledger)

        def other(client: str) -> Responder:
            coin = RandomizedResponse.from_epsilon(1.0)
            return Responder("other", columns[client], coin, ledger, OperatingSystemCoins())

        north = other("north")
        other("south").reserve(600)
        with pytest.raises(AlreadyAnswered, match="600 by run 'other'"):
            refused.complete()
        refused.ledger.close()
        assert north.available() == 600


def test_a_keyword_that_is_none_of_the_functions_is_named_as_python_names_it() -> None:
    with pytest.raises(TypeError, match=r"^estimate\(\) got an unexpected keyword argument 'epsilonn'.*'epsilon'\?$"):
        privatile.estimate([1.0, 2.0], epsilonn=1, range=(0, 1))
    with pytest.raises(TypeError, match=r"Known: .*epsilon"):
        privatile.estimate([1.0, 2.0], zzz=1, range=(0, 1))


def test_every_public_name_is_listed() -> None:
    assert set(privatile.__all__) <= set(dir(privatile))
    assert all(hasattr(privatile, name) for name in dir(privatile))
