"""`only` with columns: the records that meet every condition, and the ledger that knows them as parts of one file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privatile
from privatile.api.local_run import prepare
from privatile.errors import AlreadyAnswered, InputError
from privatile.planning.options import Options
from tests.cli.test_estimate import here

ROWS = 2400


def table(missing: bool = False) -> np.ndarray[Any, Any]:
    """Made-up pay of two regions and two sexes; each of the four cells has a level of its own."""
    kinds = [("pay", float), ("region", "U9"), ("sex", "U9"), ("who", "U9")]
    rows = np.empty(ROWS, dtype=kinds)
    rows["region"] = np.where(np.arange(ROWS) % 3 == 0, "north", "south")
    rows["sex"] = np.where(np.arange(ROWS) % 2 == 0, "f", "m")
    rows["who"] = [f"p{i}" for i in range(ROWS)]
    center = 30.0 + 20 * (rows["region"] == "south") + 10 * (rows["sex"] == "m")
    rows["pay"] = center + np.random.default_rng(3).uniform(-1, 1, ROWS)
    if missing:
        rows["region"][:30] = ""
    return rows


def written(folder: Path, rows: np.ndarray[Any, Any]) -> Path:
    path = folder / "pay.csv"
    lines = [f"{row['pay']:.4f},{row['region']},{row['sex']},{row['who']}" for row in rows]
    path.write_text("pay,region,sex,who\n" + "\n".join(lines) + "\n")
    return path


def options(folder: Path, **more: Any) -> Options:
    return Options(
        **{"value": "pay", "epsilon": 4, "range": (0, 100), "ledger": folder / "ledger.db", "rounds": 24, **more}
    )


@pytest.mark.parametrize("form", ["table", "file"])
def test_both_conditions_hold(tmp_path: Path, form: str) -> None:
    data: object = table() if form == "table" else written(tmp_path, table())
    run = prepare(data, options(tmp_path, only={"sex": "m", "region": "south"}), np.random.default_rng(2))
    (client,) = run.spec.clients
    assert (client.name, client.records) == ("south, m", ROWS // 3)
    assert run.spec.value == "pay at south, m"
    if form == "file":
        return  # the same cells: the run is not asked twice
    (result,) = run.complete()
    low, high = result.confidence_interval
    assert low <= 60 <= high
    assert not low <= 50 <= high  # the south as a whole, and its women, lie lower


def test_the_order_of_the_conditions_does_not_matter(tmp_path: Path) -> None:
    orders = ({"sex": "m", "region": "south"}, {"region": "south", "sex": "m"})
    first, second = (prepare(table(), options(tmp_path, only=only), np.random.default_rng(1)) for only in orders)
    assert first.spec.digest == second.spec.digest
    assert first.columns["south, m"].content.digest == second.columns["south, m"].content.digest


def test_one_condition_is_the_client_of_the_same_name(tmp_path: Path) -> None:
    by_condition = prepare(table(), options(tmp_path, only={"region": "north"}), np.random.default_rng(1))
    by_client = prepare(table(), options(tmp_path, client="region", only="north"), np.random.default_rng(1))
    assert by_condition.spec == by_client.spec
    assert by_condition.columns["north"].content == by_client.columns["north"].content


def test_each_record_answers_once_whichever_way_the_file_is_divided(tmp_path: Path) -> None:
    prepare(table(), options(tmp_path, only={"region": "north", "sex": "f"})).complete()
    prepare(table(), options(tmp_path, only={"sex": "m", "region": "north"})).complete()  # other people
    for other in ({"only": {"region": "north"}}, {"client": "sex"}, {}):
        with pytest.raises(AlreadyAnswered, match="same column, split among other clients"):
            prepare(table(), options(tmp_path, **other))
    with pytest.raises(AlreadyAnswered):
        prepare(table(), options(tmp_path, only={"region": "north", "sex": "f"}))


def test_with_a_client_column_each_client_has_its_part(tmp_path: Path) -> None:
    more = {"client": "region", "only": {"sex": "f"}, "epsilon": {"north": 2.0, "south": 4.0}}
    run = prepare(table(), options(tmp_path, **more))
    assert [(client.name, client.records) for client in run.spec.clients] == [
        ("north, f", ROWS // 6),
        ("south, f", ROWS // 3),
    ]
    assert [round(client.mechanism.epsilon) for client in run.spec.clients] == [2, 4]


def test_what_cannot_be_is_refused_with_what_there_is(tmp_path: Path) -> None:
    for only, words in (
        ({"region": "west"}, "which no record has. There is: north, south"),
        ({"pay": "30"}, "cannot form groups"),
        ({"county": "x"}, "there is no column 'county'"),
    ):
        with pytest.raises(InputError, match=words):
            prepare(table(), options(tmp_path, only=only))
    with pytest.raises(InputError, match="no named columns"):
        privatile.estimate(np.arange(99.0), epsilon=1, range=(0, 100), only={"a": "b"}, simulate=True, rng=1)
    rows = table()
    rows["region"][:4], rows["sex"][:4] = ["a, b", "a", "a, b", "a"], ["c", "b, c", "c", "b, c"]
    with pytest.raises(InputError, match="two groups would have the same name"):
        prepare(rows, options(tmp_path, only={"region": "north", "sex": "f"}))


def test_a_slip_lists_the_entries_of_no_column_of_numbers(tmp_path: Path) -> None:
    """A condition on a column of numbers, mistyped, showed the first of them on the terminal."""
    secret = np.random.default_rng(8).integers(10_000, 99_999, 300)
    rows = [f"{value},{number},{number % 20}" for value, number in enumerate([*secret, *secret])]
    (tmp_path / "pay.csv").write_text("pay,debt,shift\n" + "\n".join(rows) + "\n")
    base = ("estimate", "pay.csv", "--value", "pay", "--epsilon", 2, "--range", 0, 600, "--dry-run")
    for words in (("--only", "debt=x"), ("--client", "debt", "--only", "x"), ("--client", "debt", "--leave-out", "x")):
        wrong = here(tmp_path, *base, *words)
        assert wrong.returncode == 2
        assert f"{len(set(secret.tolist()))} different entries" in wrong.stderr
        assert not any(str(number) in wrong.stderr + wrong.stdout for number in secret)
    few = here(tmp_path, *base, "--only", "shift=x")  # twenty entries are no secret
    assert f"There is: {', '.join(sorted(map(str, range(20))))}." in few.stderr


def test_on_the_command_line(tmp_path: Path) -> None:
    written(tmp_path, table(missing=True))
    base = ("estimate", "pay.csv", "--value", "pay", "--epsilon", 2, "--range", 0, 100, "--dry-run")
    done = here(tmp_path, *base, "--only", "region=south", "--only", "sex=f")
    assert done.returncode == 0, done.stderr
    assert "790 records would answer once each" in done.stdout
    assert here(tmp_path, *base, "--only", "south", "--only", "sex=f").returncode == 2
    twice = here(tmp_path, *base, "--only", "sex=m", "--only", "sex=f")
    assert twice.returncode == 2
    assert "take --by sex" in twice.stderr
