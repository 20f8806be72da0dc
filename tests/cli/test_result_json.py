"""The JSON of every command that prints results is of one shape, the one that the documentation describes."""

import csv
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner

import privatile
from privatile.cli import main
from privatile.result.caveats import CAVEATS

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "result.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of one level, a run of three and a hopeless one."""
    folder = tmp_path_factory.mktemp("results")
    rng = np.random.default_rng(1)
    made = {"north": rng.normal(50, 10, 900), "south": rng.normal(60, 10, 900)}
    few = {"all": rng.normal(50, 10, 20)}
    common: dict[str, Any] = {"epsilon": 2, "range": (0, 100), "value": "score", "simulate": True, "rounds": 20}
    privatile.estimate(made, save=folder / "one.db", rng=1, **common)
    privatile.estimate(made, q=(0.25, 0.5, 0.9), simultaneous=True, save=folder / "three.db", rng=2, **common)
    privatile.estimate(few, save=folder / "few.db", rng=3, **{**common, "rounds": None})
    privatile.estimate(made, value_kind="continuous", save=folder / "smooth.db", rng=4, **{**common, "rounds": 60})
    (folder / "rows.csv").write_text("pay\n" + "\n".join(f"{value:.2f}" for value in rng.normal(50, 10, 300)) + "\n")
    return folder


@cache
def said(*words: object) -> dict[str, Any]:
    done = CliRunner().invoke(main, [*map(str, words), "--json"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    VALIDATOR.validate(found)
    return found


def test_one_and_several_levels_have_one_shape(home: Path) -> None:
    for name, levels in (("one", [0.5]), ("three", [0.25, 0.5, 0.9]), ("few", [0.5]), ("smooth", [0.5])):
        found = said("report", home / f"{name}.db")
        assert [one["level"] for one in found["results"]] == levels
        assert {one["column"] for one in found["results"]} == {"score"}
        assert all(one["range"] == {"low": 0.0, "high": 100.0} for one in found["results"])
        assert found["reliable"] == (name in ("one", "smooth")) or name == "three"
        assert all(one["simultaneous"] == (name == "three") for one in found["results"])


def test_estimate_prints_that_shape(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(home / name))
    found = said("estimate", home / "rows.csv", "--value", "pay", "--epsilon", 1, "--range", 0, 100)
    (one,) = found["results"]
    assert one["column"] == "pay"
    assert found["reliable"] == one["reliable"] == ("unreliable" not in {each["severity"] for each in one["caveats"]})


def test_a_comparison_has_the_same_entries(home: Path) -> None:
    found = said("compare", home / "one.db", home / "few.db", "--disjoint")
    assert found["first"] == said("report", home / "one.db")["results"][0]
    assert not found["reliable"]
    text = CliRunner().invoke(main, ["compare", str(home / "one.db"), str(home / "few.db"), "--disjoint"]).output
    assert text.startswith("Their difference is not to be relied on")


def test_the_table_as_csv_has_the_same_numbers(home: Path) -> None:
    """A row per level, an empty cell where there is no estimate; a page is another command."""
    for name in ("three", "few"):
        shown = CliRunner().invoke(main, ["report", str(home / f"{name}.db"), "--csv"])
        assert shown.exit_code == 0, shown.output
        rows = list(csv.DictReader(shown.stdout.splitlines()))
        told = said("report", home / f"{name}.db")["results"]
        assert [row["estimate"] for row in rows] == [
            "" if one["estimate"] is None else str(one["estimate"]) for one in told
        ]
        assert [row["low"] for row in rows] == [str(one["confidence_interval"]["low"]) for one in told]
        assert [row["reliable"] for row in rows] == [str(one["reliable"]).upper() for one in told]
    assert rows[0]["estimate"] == ""
    assert CliRunner().invoke(main, ["report", str(home / "few.db"), "--csv", "-o", "x.html"]).exit_code == 2


def test_the_schema_refuses_what_it_does_not_describe(home: Path) -> None:
    """The control: a missing key, an unknown one, an unknown caveat and a list in place of the document fail."""
    found = said("report", home / "one.db")
    (one,) = found["results"]
    for broken in (
        [one],
        one,
        {**found, "schema_version": 2},
        {**found, "results": [{**one, "colour": "blue"}]},
        {**found, "results": [{key: value for key, value in one.items() if key != "reliable"}]},
        {**found, "results": [{**one, "caveats": [{"code": "odd", "severity": "note", "text": ""}]}]},
    ):
        with pytest.raises(jsonschema.ValidationError):
            VALIDATOR.validate(broken)
    assert SCHEMA["$defs"]["caveat"]["properties"]["code"]["enum"] == list(CAVEATS)


def test_report_prints_the_text_of_a_saved_run(home: Path) -> None:
    done = CliRunner().invoke(main, ["report", str(home / "one.db"), "--text"])
    assert done.exit_code == 0
    assert done.output.startswith("The 0.5 quantile (the median) of score")
    assert not (home / "one.html").exists()
    refused = CliRunner().invoke(main, ["report", str(home / "one.db"), "--text", "-o", str(home / "one.html")])
    assert refused.exit_code == 2
    assert "a page or a figure is another command" in refused.output
    assert CliRunner().invoke(main, ["status", str(home / "one.db"), "--json", "--follow"]).exit_code == 2


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_results_become_a_table(home: Path, library: Any) -> None:
    from privatile.run.view import RunView

    pytest.importorskip(library)
    results = RunView.read(home / "three.db").all_results()
    table = results.to_frame(library)
    assert table.shape[0] == 3
    levels = table["level"].to_pylist() if library == "pyarrow" else list(table["level"])
    assert levels == [0.25, 0.5, 0.9]
    assert results[1].to_frame(library).shape == (1, table.shape[1])


def test_a_table_without_its_library_is_a_clear_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from privatile.run.view import RunView

    results = RunView.read(home / "one.db").all_results()
    with pytest.raises(privatile.errors.InputError, match="one of pandas, polars, pyarrow"):
        results.to_frame("excel")  # type: ignore[arg-type]
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(privatile.errors.MissingExtra, match="this needs pandas"):
        results.to_frame()


def test_the_documentation_names_every_caveat_with_its_severity() -> None:
    page = (Path(__file__).parents[2] / "docs" / "tasks" / "results.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:3] for line in page.splitlines() if line.startswith("| `")]
    told = {code: severity.strip() for codes, severity in rows for code in re.findall(r"`([\w-]+)`", codes)}
    assert {code: told.get(code) for code in CAVEATS} == {code: kind.severity for code, kind in CAVEATS.items()}
    assert set(told) - set(CAVEATS) == {"unreliable", "act", "note", "standing"}  # the table of severities
