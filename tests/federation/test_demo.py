"""The demo: a whole federation in processes of its own, which leaves nothing behind."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from privatile.cli import main
from privatile.errors import InputError
from privatile.federation.operations.demo import NAMES, Demo, prepare, running_demo

pytestmark = pytest.mark.network

SITES = "3" if os.environ.get("PRIVATILE_LONG") else "1"


def test_the_demo_shows_the_answer_beside_the_truth_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = CliRunner().invoke(main, ["federation", "demo", "--once", "--sites", SITES])
    assert done.exit_code == 0, done.output
    low, high = (float(end.replace(",", "")) for end in re.search(r"from ([\d,]+) to ([\d,]+)", done.output).groups())  # type: ignore[union-attr]
    truth = float(re.search(r"true median .* is ([\d,]+)", done.output)[1].replace(",", ""))  # type: ignore[index]
    assert 0.7 * low < truth < 1.4 * high  # once in twenty runs the interval misses it
    assert list(tmp_path.iterdir()) == []
    for process in re.findall(r"process (\d+)", done.output):
        with pytest.raises(ProcessLookupError):
            os.kill(int(process), 0)


def test_without_its_extras_it_says_how_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nats", None)
    done = CliRunner().invoke(main, ["federation", "demo", "--once"])
    assert done.exit_code == 2
    assert "pip install '.[federation,broker,dashboard]'" in done.output


def test_a_process_that_fails_is_named_with_its_last_words(tmp_path: Path) -> None:
    class Ended:
        returncode = 5

        def poll(self) -> int:
            return 5

    demo: Demo = prepare(tmp_path, NAMES[:1], rounds=20, records=400)
    demo.log("coordinator").write_text("one\ntwo\n")
    demo.processes = {"coordinator": Ended()}  # type: ignore[dict-item]
    with pytest.raises(InputError, match=r"coordinator ended with code 5; its last lines:\none\ntwo"):
        demo.wait()
    with pytest.raises(InputError, match="1 to 5 sites"), running_demo(print, sites=9):
        pass
