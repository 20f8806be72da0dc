"""The container image and the compose file: what can be checked without a builder and, where there is one, all."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest

from privatile.cli import main
from privatile.errors import LedgerError
from privatile.federation.operations.serve import ServeOptions, serve_run
from tests.federation.kit import Federation, make_study

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def parses(arguments: list[str]) -> bool:
    """Whether the command line takes these words."""
    context = click.Context(main)
    command: Any = main
    while isinstance(command, click.Group) and arguments:
        command, arguments = command.get_command(context, arguments[0]), arguments[1:]
    try:
        return command is not None and bool(command.make_context("privatile", list(arguments), parent=context))
    except click.UsageError:
        return False


def test_the_image_runs_as_nobody_in_particular_without_tools_or_hidden_volumes() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    final = "\n".join(lines).rpartition("FROM ")[2]
    assert re.search(r"^USER 10001:10001$", final, re.MULTILINE)
    assert "pip install" not in final
    assert "apt-get" not in text
    assert not any(line.startswith("VOLUME") for line in lines)  # an unnamed volume would hide what is missing
    assert "PRIVATILE_REQUIRE_VOLUME=1" in final
    for copied in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        assert all((ROOT / path).exists() for path in copied.split()), copied


def test_the_commands_of_the_compose_file_are_commands() -> None:
    yaml = pytest.importorskip("yaml")
    services = yaml.safe_load((DEPLOY / "compose.yml").read_text())["services"]
    assert set(services) == {"setup", "broker", "coordinator", "north", "south", "east"}
    for name, service in services.items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        if name in ("coordinator", "north", "south", "east"):
            assert parses(service["command"]), name
            mounted = [volume.split(":")[1] for volume in service["volumes"]]
            kept = service["command"][service["command"].index("--site") + 1] if name != "coordinator" else "/study"
            assert any(kept.startswith(folder) for folder in mounted), name  # else it would refuse to start
            if name != "coordinator":
                assert "/var/lib/privatile/keys" in mounted
    script = services["setup"]["command"][0].replace("\\\n", " ").replace("$$", "$")
    called = [line.strip() for line in script.splitlines() if line.strip().startswith("privatile ")]
    assert len(called) == 3
    for line in called:
        assert parses(shlex.split(line.partition(" > ")[0])[1:]), line
    assert not parses(["join", "north.json", "--no-such-option"])  # the control


def test_the_coordinator_refuses_to_start_in_the_containers_own_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = Federation(tmp_path, make_study(1), port=4222)
    table = tmp_path / "mounts"
    table.write_text("overlay / overlay rw 0 0\n")
    monkeypatch.setattr("privatile.core.file_systems.MOUNTS", table)
    monkeypatch.setenv("PRIVATILE_REQUIRE_VOLUME", "1")
    with pytest.raises(LedgerError, match=r"the run's file .* Mount a volume"):
        serve_run(federation.directory, ServeOptions(), lambda line: None)


def builder() -> str | None:
    """A program that builds images here and now: one that is installed, and whose service answers."""
    for name in ("podman", "docker"):
        if (found := shutil.which(name)) and not subprocess.run(
            [found, "info"], capture_output=True, check=False, timeout=60
        ).returncode:
            return found
    return None


@pytest.mark.process
@pytest.mark.skipif("PRIVATILE_LONG" not in os.environ, reason="builds a container image: PRIVATILE_LONG=1")
def test_the_image_is_built_and_refuses_to_run_without_a_volume(capsys: pytest.CaptureFixture[str]) -> None:
    program = builder()
    base = "python:3.12-slim"
    if (
        program is None
        or subprocess.run([program, "image", "inspect", base], capture_output=True, check=False).returncode
    ):
        what = "no podman or docker answers here" if program is None else f"the base image {base} is not at hand"
        with capsys.disabled():
            print(f"\nTHE CONTAINER IMAGE WAS NOT BUILT: {what}.")
        pytest.skip(f"the image was not built: {what}")

    def run(*arguments: str, code: int = 0) -> str:
        done = subprocess.run([str(program), *arguments], capture_output=True, text=True, check=False, timeout=1800)
        assert done.returncode == code, done.stderr[-3000:]
        return done.stdout + done.stderr

    run("build", "-t", "privatile-test", "-f", str(DEPLOY / "Containerfile"), str(ROOT))
    assert "privatile" in run("run", "--rm", "privatile-test", "--version")
    assert run("run", "--rm", "--entrypoint", "id", "privatile-test", "-u").strip() == "10001"
    tools = "command -v gcc cc make pip pip3 && exit 1 || exit 0"
    run("run", "--rm", "--entrypoint", "sh", "privatile-test", "-c", tools)
    asked = "seq 1000 > /tmp/a.csv; privatile estimate /tmp/a.csv --value 1 --epsilon 1 --range 0 2000"
    without = ["run", "--rm", "--entrypoint", "sh", "privatile-test", "-c", asked]
    assert "Mount a volume" in run(*without, code=2)
    volume = ["--volume", "privatile-test-state:/var/lib/privatile/state"]
    volume += ["--volume", "privatile-test-keys:/var/lib/privatile/keys"]
    try:
        assert "95% interval" in run("run", *volume, *without[1:])
    finally:
        run("volume", "rm", "privatile-test-state", "privatile-test-keys")
        run("image", "rm", "privatile-test")
    with capsys.disabled():
        print(f"\nthe container image was built and run with {program}")
