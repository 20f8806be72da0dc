"""What a user reads: one rule for one question, options where they belong, nothing that leaks from the inside."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import privatile
from privatile.cli import main
from privatile.errors import ClientTooSmall, InputError
from privatile.estimator.tuned import chosen_rounds
from privatile.report.groups import page_of, results_of

SAID_BY_RESULTS = Path(privatile.__file__).parent / "result"


def called(*words: object) -> Result:
    return CliRunner().invoke(main, [*map(str, words)])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of three levels, and one level of each."""
    folder = tmp_path_factory.mktemp("words")
    rng = np.random.default_rng(1)
    common: dict[str, Any] = {"epsilon": 4, "range": (0, 100), "value": "score", "simulate": True, "rounds": 20}
    for name, center in (("a", 40.0), ("b", 60.0)):
        made = {"all": rng.normal(center, 10.0, 900)}
        privatile.estimate(made, save=folder / f"{name}.db", rng=1, **common)
        privatile.estimate(made, q=(0.25, 0.5), save=folder / f"{name}-levels.db", rng=2, **common)
    return folder


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    return tmp_path


def test_a_comparison_of_two_runs_is_the_same_whatever_else_is_asked_for(home: Path, tmp_path: Path) -> None:
    """The smaller one first, so that a table of all pairs would turn it round."""
    runs = ("compare", home / "a.db", home / "b.db", "--disjoint", "--json")
    plain = json.loads(called(*runs).stdout)
    assert plain["kind"] == "privatile comparison"
    assert plain["difference"] < 0.0
    for more in (("--simultaneous",), ("-o", tmp_path / "d.html")):
        assert json.loads(called(*runs, *more).stdout) == plain
    assert "a − b" in (tmp_path / "d.html").read_text(encoding="utf-8")


def test_several_runs_with_several_levels_have_a_title(home: Path) -> None:
    page = page_of(results_of([home / "a-levels.db", home / "b-levels.db"]))
    assert "<title>2 quantiles of score in 2 runs</title>" in page


def test_the_holder_alone_is_told_how_many_values_are_missing(own: Path) -> None:
    rows = own / "days.csv"
    rows.write_text("days\n" + "\n".join("" if k % 10 == 0 else str(k % 40) for k in range(600)) + "\n")
    done = called("estimate", rows, "--value", "days", "--epsilon", 4, "--range", 0, 50, "--yes", "--rounds", 20)
    assert done.exit_code == 0, done.output
    assert "60 of 600 records without days: they answer at random (--missing noise)" in done.stderr
    assert "60 of 600" not in done.stdout
    assert "missing values  answered at random, if there were any" in done.stdout
    full = own / "full.csv"
    full.write_text("days\n" + "\n".join(f"{k % 37}.5" for k in range(600)) + "\n")
    done = called("estimate", full, "--value", "days", "--epsilon", 4, "--range", 0, 50, "--dry-run", "--new-people")
    assert done.exit_code == 0, done.output
    assert "without days" not in done.stderr


@pytest.mark.parametrize("more", [(), ("--decimal", "comma"), ("--thousands", "none"), ("--unit", "_kg")])
def test_a_number_with_an_underscore_is_none_however_the_file_is_read(own: Path, more: tuple[str, ...]) -> None:
    rows = own / "rows.csv"
    rows.write_text("a;days\n" + "x;1_000\n" * 50)
    done = called("estimate", rows, "--value", "days", "--epsilon", 1, "--range", 0, 9, "--dry-run", *more)
    assert done.exit_code == 2, done.output
    assert "a number with underscores between its digits" in done.output
    rows.write_text("a;days\n" + "x;1000\n" * 50)  # the control
    assert called("estimate", rows, "--value", "days", "--epsilon", 1, "--range", 0, 9, "--dry-run").exit_code == 0


def test_decimals_are_named_where_there_are_some(own: Path) -> None:
    for text, words in (("4", "semicolons between columns."), ("4,5", "semicolons between columns, decimal commas.")):
        rows = own / "rows.csv"
        rows.write_text("a;days\n" + f"x;{text}\n" * 50)
        done = called("estimate", rows, "--value", "days", "--epsilon", 1, "--range", 0, 9, "--dry-run")
        assert f"is read with {words}" in done.output


def test_what_is_said_on_the_command_line_is_no_setting(own: Path) -> None:
    (own / "o.toml").write_text('data = "d.csv"\nepsilon = 1\nrange = [0, 9]\nyes = true\nkeep = true\n')
    done = called("estimate", own / "o.toml")
    assert done.exit_code == 2
    assert re.search(r"yes: goes on the command line: .*--yes", done.output)
    assert re.search(r"keep: goes on the command line: .*--keep", done.output)
    with pytest.raises(InputError, match="simultaneous must be true or false; got 'yes'"):
        privatile.estimate([1.0], epsilon=1, range=(0, 9), simultaneous="yes", simulate=True, rng=1)
    with pytest.raises(TypeError, match=r"log is gone\. Use scale"):
        privatile.estimate([1.0], epsilon=1, range=(1, 9), log=True, simulate=True, rng=1)


def test_the_error_of_a_small_client_speaks_to_the_user(own: Path) -> None:
    with pytest.raises(ClientTooSmall, match=r"east has 7\. Leave it out, or merge it"):
        chosen_rounds(None, 7, "east")
    with pytest.raises(InputError, match=r"there are 7\. Ask more people"):
        chosen_rounds(None, 7)
    rows = own / "rows.csv"
    lines = ["f,north,4\n", "m,north,5\n"] * 900 + ["f,far east,4\n", "m,far east,5\n"] * 7
    rows.write_text("sex,region,days\n" + "".join(lines))
    base = ("estimate", rows, "--value", "days", "--client", "region", "--epsilon", 1, "--range", 0, 9, "--dry-run")
    same = "Without --client region all records are one client's, and the quantile is the same."
    left_out = "eave it out with --leave-out 'far east', or merge it"
    said = called(*base).output
    assert f"far east has 14. {same} Or l{left_out}" in said
    assert (
        f"far east has 14. L{left_out}" in called(*base, "--client-weights", "equal").output
    )  # another quantile without
    # Of groups the client is named, not its cell; and each of the two ways goes through.
    assert f"far east, f has 7. {same} Or l{left_out}" in called(*base, "--by", "sex").output
    assert called(*base, "--by", "sex", "--leave-out", "far east").exit_code == 0
    assert called(*base[:4], *base[6:], "--by", "sex").exit_code == 0


def options_named(text: str) -> list[str]:
    """Options of the command that a module names in texts, its docstrings apart."""
    tree = ast.parse(text)
    documented = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    texts = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented
    ]
    return [found for text in texts for found in re.findall(r"--[a-z][a-z-]+", text)]


def test_results_name_no_option_of_the_command() -> None:
    """A result is read in Python as well, and its JSON anywhere."""
    assert options_named('"""A --scale log."""\nx = f"{1} with --simultaneous"') == ["--simultaneous"]
    found = {path.name: options_named(path.read_text(encoding="utf-8")) for path in SAID_BY_RESULTS.glob("*.py")}
    assert {name: named for name, named in found.items() if named} == {}
