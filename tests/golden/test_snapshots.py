"""Help, errors, results, pages and JSON say what they said (`python -m tests.golden.make snapshots` writes them)."""

from __future__ import annotations

import copy
import difflib
import json

import pytest

from tests.golden.differences import differences
from tests.golden.snapshots import FOLDER, JSON, SNAPSHOTS, json_results, settled


@pytest.mark.slow
@pytest.mark.parametrize("name", SNAPSHOTS)
def test_what_is_said_is_what_was_said(name: str) -> None:
    kept, found = (FOLDER / name).read_text(encoding="utf-8"), SNAPSHOTS[name]()
    changed = [*difflib.unified_diff(kept.splitlines(), found.splitlines(), "kept", "now", n=1, lineterm="")]
    assert not changed, "\n".join(changed[:60])


@pytest.mark.slow
def test_the_json_of_commands_is_what_it_was() -> None:
    kept, found = json.loads(JSON.read_text(encoding="utf-8")), json_results()
    assert list(kept) == sorted(found)
    changed = list(differences(kept, found))
    assert not changed, "\n".join(changed[:40])
    # The negative control: one number, and one field.
    other = copy.deepcopy(found)
    (command,) = (name for name in found if name.startswith("$ privatile compare"))
    other[command]["difference"] *= 1 + 1e-6
    del other[command]["caveats"]
    assert len(list(differences(kept, other))) == 2


def test_only_what_changes_by_itself_is_left_out() -> None:
    text = "run-0123456789abcdef of 45, privatile 0.1.0: 0.12345678901234"
    assert settled(text) == "(run) of 45, privatile (version): 0.12345679\n"
    assert settled("run-1 of 46") != settled("run-1 of 45")
