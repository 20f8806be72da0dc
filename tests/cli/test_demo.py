"""The demo shows what it says, with the truth of the very table it leaves behind."""

import csv
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from click.testing import CliRunner

import privatile.core.sample_tables as sample
from privatile.cli import main
from privatile.errors import InputError


def test_the_demo_shows_the_answer_beside_the_truth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeded = np.random.default_rng
    monkeypatch.setattr("numpy.random.default_rng", lambda seed=5: seeded(seed))  # the same answers every time
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    done = CliRunner().invoke(main, ["demo"])
    assert (done.exit_code, done.stderr) == (0, "")
    with (tmp_path / "salaries.csv").open() as file:
        truth = median(float(row["salary"]) for row in csv.DictReader(file))
    facts = {line[2:17].strip(): line[17:] for line in done.output.splitlines() if line.startswith("  ")}
    assert facts["true median"] == f"{truth:,.0f}"
    low, _, rest = facts["95% interval"].partition(" … ")
    high, _, verdict = rest.partition(", ")
    ends = [float(end.replace(",", "")) for end in (low, high)]
    assert ends[0] <= float(facts["estimate"].replace(",", "")) <= ends[1]
    assert (ends[0] <= truth <= ends[1], verdict) == (True, "holds the truth")
    assert facts["time"].endswith(" s")
    assert max(map(len, done.output.splitlines())) <= 80
    # Nothing else is left, and no ledger: the people of a demo are nobody's.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["salaries.csv", "waiting.csv"]


def test_a_file_of_the_reader_is_never_overwritten(tmp_path: Path) -> None:
    sample.write_tables(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    sample.write_tables(tmp_path)  # its own tables may lie there already
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    (tmp_path / "waiting.csv").write_text("mine\n")
    with pytest.raises(InputError, match=r"waiting\.csv is here already and is not the demo's table"):
        sample.write_tables(tmp_path)
    assert (tmp_path / "waiting.csv").read_text() == "mine\n"
