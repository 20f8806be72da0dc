"""`estimate` tells the holder of values declared continuous that lie on heaps, and no one else."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privatile
from privatile.api import local_run
from tests.cli.test_estimate import privatile as privatile_command

AGES = np.random.default_rng(1).normal(45, 15, 3_000).round()
TOLD = "lie on heaps"
OPTIONS: dict[str, Any] = {"epsilon": 1.0, "range": (0, 120), "rounds": 40}


def estimated(data: object, path: Path | None = None, **options: Any) -> Any:
    stated = {**OPTIONS, "value_kind": "continuous", "simulate": True, "rng": 1, **options}
    return privatile.estimate(data, save=path, **stated)


@pytest.mark.parametrize(
    ("data", "options", "told"),
    [
        (AGES, {}, True),
        (AGES, {"value_kind": "any"}, False),
        (AGES, {"value_kind": "whole"}, False),
        (AGES + np.random.default_rng(2).random(3_000), {}, False),
        ({"north": AGES[:1_500], "south": AGES[1_500:]}, {}, True),
        ({"north": AGES[:100], "south": AGES[100:] + np.random.default_rng(2).random(2_900)}, {}, False),
    ],
)
def test_whole_numbers_are_told(
    data: object, options: dict[str, Any], told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    estimated(data, **options)
    assert (TOLD in caplog.text) == told


def test_groups_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    rows = [
        (age if name == "whole" else age + shift, name)
        for (age, name), shift in zip(
            zip(AGES, itertools.cycle(("whole", "smooth")), strict=False),
            np.random.default_rng(2).random(3_000),
            strict=True,
        )
    ]
    table = np.array(rows, dtype=[("age", float), ("kind", "U10")])
    estimated(table, value="age", by="kind")
    told = [record.getMessage() for record in caplog.records if TOLD in record.getMessage()]
    assert len(told) == 1
    assert "1 group (whole)" in told[0]


def test_nothing_of_it_is_in_result_page_or_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that is written is the same to the byte whether the holder was told or not, but for names and times."""

    def written(name: str) -> list[str]:
        results = estimated(AGES, tmp_path / f"{name}.db")
        store = privatile.run.run_file.RunStore.open(tmp_path / f"{name}.db")
        rows = [str(row) for table in ("rounds", "counts") for row in store.query(f"SELECT * FROM {table}")]
        texts = [json.dumps(results.to_dict()), results.to_text(explain=True), *rows]
        return [re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z?|\d{10}\.\d+", "", text.replace(store.run, "")) for text in texts]

    told = written("told")
    assert TOLD in caplog.text
    caplog.clear()
    monkeypatch.setattr(local_run, "has_heaps", lambda *given: False)
    assert written("silent") == told
    assert TOLD not in caplog.text
    assert not any(TOLD in text for text in told)


def test_no_value_is_told(caplog: pytest.LogCaptureFixture) -> None:
    estimated(AGES)
    (message,) = [record.getMessage() for record in caplog.records if TOLD in record.getMessage()]
    assert re.findall(r"\d+", message) == ["5"]  # the rule's own 5%


@pytest.mark.process
def test_the_command_says_it_on_stderr_before_anyone_is_asked(tmp_path: Path) -> None:
    (tmp_path / "ages.csv").write_text("age\n" + "\n".join(f"{age:g}" for age in AGES) + "\n")
    command = (
        "estimate",
        "ages.csv",
        "--value",
        "age",
        "--epsilon",
        1,
        "--range",
        0,
        120,
        "--value-kind",
        "continuous",
    )
    shown = privatile_command(tmp_path, *command, "--dry-run", "--json")
    assert TOLD in shown.stderr
    assert TOLD not in shown.stdout
