"""The answering page as files: small, the same hash for everybody, nothing inline, and the mechanism's own numbers."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from privatile.core.mechanism import RandomizedResponse
from privatile.survey import page
from tests.survey import make_vectors

FOLDER = Path(page.__file__).parent
CASES = json.loads(make_vectors.PATH.read_text(encoding="utf-8"))


def test_it_is_small() -> None:
    """What a person downloads, in the longest language, settings aside."""
    sizes = {path: len(page.page_files()[path].gzipped) for path in page.FILES}
    messages = [size for path, size in sizes.items() if "messages" in path]
    assert sum(sizes.values()) - sum(messages) + max(messages) < 10_000, sizes
    for file in page.page_files().values():
        assert gzip.decompress(file.gzipped) == file.body


def test_every_file_is_served_and_hashed() -> None:
    """A file that is served and not hashed would be a door; one that is not listed would be missing."""
    names = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.*") if path.suffix not in (".py", ".pyc")}
    assert names == {*page.FILES.values(), *page.OTHER_FILES.values()}
    asked_for = set(re.findall(r'(?:src|href)="(static/[^"]+)"', (FOLDER / "index.html").read_text(encoding="utf-8")))
    asked_for |= {f"static/{name}" for name in re.findall(r'from "\./([^"]+)"', (FOLDER / "answer.js").read_text())}
    assert asked_for < set(page.FILES)


def test_the_hash_is_what_sha256sum_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        f"{hashlib.sha256((FOLDER / name).read_bytes()).hexdigest()}  {name}\n" for name in sorted(page.FILES.values())
    ]
    assert page.page_sha256() == hashlib.sha256("".join(lines).encode()).hexdigest()
    before = page.page_sha256()
    for cached in (page.page_files, page.page_manifest, page.page_sha256):
        cached.cache_clear()
    served = page.served
    monkeypatch.setattr(page, "served", lambda name: served(name)._replace(body=served(name).body + b" "))
    assert page.page_sha256() != before
    for cached in (page.page_files, page.page_manifest, page.page_sha256):
        cached.cache_clear()


@pytest.mark.process
def test_the_documented_check_gives_the_hash(tmp_path: Path) -> None:
    """The last of the three lines of the page on the protocol, in a folder as the first two leave it."""
    text = (Path(__file__).parents[2] / "docs" / "survey-protocol.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^sha256sum .*$", text, flags=re.M)
    (tmp_path / "messages").mkdir()
    for path, name in page.FILES.items():
        assert path in ("", f"static/{name}")
        (tmp_path / name).write_bytes(page.page_files()[path].body)
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == page.page_sha256()
    (fetched,) = re.findall(r"^for name in (.*?);", text, flags=re.M)
    assert {*fetched.split(), "index.html"} == set(page.FILES.values())


def test_nothing_is_inline_and_nothing_comes_from_elsewhere() -> None:
    """So that a policy without exceptions can be sent, and no weak randomness is near."""
    for name in ("index.html", "organiser.html"):
        text = (FOLDER / name).read_text(encoding="utf-8")
        assert not re.search(r"<style|\son\w+=|style=|<script(?![^>]*\ssrc=)|https?:", text)
    for path in FOLDER.glob("*.js"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"https?://|Math\.random|innerHTML =|eval\(|document\.write", text), path.name


def test_the_vectors_are_those_of_the_mechanism() -> None:
    assert make_vectors.PATH.read_text(encoding="utf-8") == make_vectors.text(), "python -m tests.survey.make_vectors"
    for case in CASES["answers"]:
        mechanism = RandomizedResponse.from_threshold(int(case["threshold"]))
        truth = np.array([float(case["value"]) > float(case["query"])])
        assert mechanism.respond(truth, np.array([int(case["coin"])], np.uint64)).tolist() == [case["answer"]]


@pytest.mark.parametrize("name", make_vectors.GENERATED)
def test_what_scripts_and_the_protocol_share_with_python_is_generated(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == make_vectors.generated(name)


def checked_by_node(script: Path) -> dict[str, object]:
    if shutil.which("node") is None:
        pytest.skip("THE PAGE'S SCRIPT IS NOT TESTED BY NODE: node is not installed")
    checker = Path(__file__).parent / "check_vectors.mjs"
    done = subprocess.run(["node", checker, script, make_vectors.PATH], capture_output=True, text=True, check=True)
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.process
def test_the_script_agrees_with_the_mechanism(tmp_path: Path) -> None:
    assert checked_by_node(FOLDER / "mechanism.js") == {"wrong": [], "checked": sum(map(len, CASES.values()))}
    # The control: a coin that may equal the threshold is found out.
    script = (FOLDER / "mechanism.js").read_text(encoding="utf-8")
    (tmp_path / "broken.js").write_text(script.replace("coin < threshold", "coin <= threshold"), encoding="utf-8")
    assert checked_by_node(tmp_path / "broken.js")["wrong"]
