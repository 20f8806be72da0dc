"""Lines that are not run, held against what they name: a target of the Makefile, an extra, a command and an option."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterable
from pathlib import Path

import click

from privatile.cli import main

ROOT = Path(__file__).parents[2]
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
HERE = (".", "./apps/flower", "./apps/leaderless")
"""How our packages are named where they are installed: from a clone, as long as they are on no index."""

REQUIREMENT = re.compile(r"(?P<name>\.[\w/-]*|[\w-]+)(?:\[(?P<extras>[\w,-]+)\])?")


def stale_setup(line: str) -> str:
    """What is wrong with a line that sets up an environment; empty when nothing is."""
    words = [word for word in shlex.split(line, comments=True) if not word.startswith("-")]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    if words[:1] == ["make"]:
        made = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.M))
        return _first(f"the Makefile makes no {word}" for word in words[1:] or ["nothing"] if word not in made)
    if words[:2] == ["pip", "install"] and "-r" in shlex.split(line, comments=True):
        return _first(f"there is no {word}" for word in words[2:] or ["file"] if not (ROOT / word).is_file())
    if words[:2] == ["pip", "install"]:
        return _first(_stale_requirement(word) for word in words[2:] or [""])
    if words[:2] == ["apt-get", "install"]:
        installed = re.findall(r"apt-get install [^;&]*", makefile)
        known = {word for line in installed for word in line.split()}
        return _first(f"the Makefile installs no {word}" for word in words[2:] or ["nothing"] if word not in known)
    return f"nobody knows how to check {line!r}"


def _first(wrong: Iterable[str]) -> str:
    return next((text for text in wrong if text), "")


def _stale_requirement(word: str) -> str:
    found = REQUIREMENT.fullmatch(word)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if found is None or found["name"] not in HERE:
        return f"{word} is not our package, or not where it can be had"
    extras = set((found["extras"] or "").split(",")) - {""}
    unknown = sorted(extras - set(project["optional-dependencies"]))
    return f"there is no extra {unknown[0]}" if unknown else ""


def stale_spans(text: str) -> list[str]:
    """What is wrong with the commands that stand inside sentences: `privatile …`, `make …`, `pip install …`."""
    found = []
    for span in SPAN.findall(re.sub(r"^ *```.*?^ *```$", "", text, flags=re.S | re.M)):
        line = " ".join(span.split())
        if line.startswith(("make ", "pip install ", "apt-get ")):
            found.append(stale_setup(line))
        elif line.startswith("privatile "):
            found.append(stale_command(line))
    return [wrong for wrong in found if wrong]


def stale_command(line: str) -> str:
    """Whether a command and the options that a sentence names are there."""
    command: click.Command = main
    context = click.Context(main)
    words = re.split(r"\s+", line)[1:]
    while isinstance(command, click.Group) and words and re.fullmatch(r"[a-z][a-z-]*", words[0]):
        found = command.get_command(context, words.pop(0))
        if found is None:
            return f"{line!r}: no such command"
        command = found
    known = {option for parameter in command.params for option in parameter.opts} | {"--help", "--version"}
    unknown = [word for word in words if re.fullmatch(r"--[a-z-]+", word) and word not in known]
    return f"{line!r}: no option {unknown[0]}" if unknown else ""
