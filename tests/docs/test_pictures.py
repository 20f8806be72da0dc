"""The pictures of the documentation show what the code shows now."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "docs" / "_static"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.process
def test_the_screenshots_were_made_from_these_pages(tmp_path: Path) -> None:
    """Words, structure, style and scripts of the pages are those of the day the pictures were taken."""
    screenshots = script("screenshots")
    now = screenshots.made_from(screenshots.finished_report(tmp_path)).splitlines()
    then = (STATIC / "screens" / "made-from.txt").read_text(encoding="utf-8").splitlines()
    changed = sorted({line.partition("  ")[2] for line in {*now} ^ {*then}})
    assert not changed, f"out of date: {', '.join(changed)}. Run `make screenshots`, look at them, and commit them."


def test_what_is_not_seen_does_not_count() -> None:
    words = script("screenshots").words
    assert words("<p>51,500 of run-ab12</p><svg><line/></svg>") == words("<p>7 of run-cd34</p><svg/></svg>")
    assert words("<p>estimate</p>") != words("<p>mean</p>")


@pytest.mark.process
@pytest.mark.parametrize("name", ["one-bit", "moving-question", "average"])
def test_the_figures_say_what_the_script_says(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    """Every word of a picture; the curves are seeded, but drawn with other digits by other versions."""
    folder = tmp_path_factory.getbasetemp() / "figures"
    if not folder.exists():
        subprocess.run([sys.executable, ROOT / "docs" / "figures.py", folder, "2"], check=True, capture_output=True)
    texts = [
        re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text(encoding="utf-8"))
        for path in (folder / f"{name}.svg", STATIC / "how" / f"{name}.svg")
    ]
    assert texts[0] == texts[1]
    assert len(texts[0]) > 3
