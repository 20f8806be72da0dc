"""Every test here is watched: nothing may look up, or connect to, another machine."""

from __future__ import annotations

import os
import runpy
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from flwr.supercore.task_identity import TaskIdentity

from known_draws import allow_copies

TESTS = Path(__file__).parent
REPOSITORY = TESTS.parents[2]

collect_ignore = ["watch"]
runpy.run_path(str(TESTS / "watch" / "sitecustomize.py"))
os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="privatile-keys-")  # where keys of ledgers are made
allow_copies()
TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # as Flower does before it loads an app


@pytest.fixture(autouse=True)
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder where the watch writes; a test that expects something in `outside` removes the file."""
    folder = tmp_path / "watched"
    folder.mkdir()
    monkeypatch.setenv("PRIVATILE_WATCH", str(folder))
    yield folder
    outside = folder / "outside"
    assert not outside.exists(), outside.read_text()


@pytest.fixture
def environment(tmp_path: Path, watched: Path) -> dict[str, str]:
    """For processes: Flower's commands on the path, a home directory of their own, and the watch."""
    home = tmp_path / "home"
    home.mkdir()
    # Ray asks the cloud's metadata service where it runs, whatever its settings, unless this file exists.
    (home / "ray_bootstrap_config.yaml").write_text("{}\n")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("FLWR_", "RAY_", "XDG_"))}
    paths = [TESTS / "watch", TESTS, REPOSITORY, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **kept,
        "HOME": str(home),
        "XDG_CONFIG_HOME": os.environ["XDG_CONFIG_HOME"],
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
    }
