"""The example in another language answers once, by the same vectors."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from privatile.survey.folder import new_code
from tests.survey.fake_server import FakeSurvey, Reply
from tests.survey.make_vectors import PATH as VECTORS

EXAMPLE = Path(__file__).parents[2] / "examples" / "survey_client.mjs"
PLANTED = "31415.9265"

pytestmark = pytest.mark.process


def node(*arguments: object) -> subprocess.CompletedProcess[str]:
    if shutil.which("node") is None:
        pytest.skip("THE EXAMPLE FOR NODE.JS IS NOT TESTED: node is not installed")
    command = ["node", str(EXAMPLE), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_it_is_short_and_agrees_with_the_vectors(tmp_path: Path) -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 60
    count = len(json.loads(VECTORS.read_text(encoding="utf-8"))["answers"])
    assert node("--vectors", VECTORS).stdout == f"{count} vectors, 0 wrong\n"


def test_it_answers_once(tmp_path: Path) -> None:
    survey = FakeSurvey(epsilon=0.1)
    code, file = new_code(), tmp_path / "answer.json"
    lost: Iterator[Reply] = iter([(0, None, {})])
    survey.on_answer = lambda body: next(lost, None)
    with survey.serve() as url:
        greedy = node(f"{url}#c={code}", 0.09, PLANTED, file)
        assert "more than epsilon 0.09" in greedy.stderr
        survey.facts["step"] = 0.5
        assert "multiples of 0.5" in node(f"{url}#c={code}&e=0.1", 0.1, PLANTED, file).stderr
        assert survey.questions == 0
        survey.facts["step"] = None
        done = node(f"{url}#c={code}&e=0.1", 0.1, PLANTED, file)
        assert done.returncode == 0, done.stderr
        assert "counted" in done.stdout
        # Told that it was lost, it sends the same bit; another code gets nothing.
        survey.states.clear()
        survey.facts["survey"], survey.round = "ffffffffffff", 99
        assert node(f"{url}#c={code}", 0.1, "1", file).stdout == done.stdout
        other = node(f"{url}#c={new_code()}", 0.1, "1", file)
        assert other.returncode == 1
        assert "never answers twice" in other.stderr
    assert len(survey.answers) == 3
    assert len({json.dumps(sent) for sent in survey.answers}) == 1
    assert survey.questions == 1
    assert "31415" not in str(survey.requests) + file.read_text(encoding="utf-8")
