"""What the program says, as text: help, errors, results, pages and the JSON of commands; one snapshot file for each.

`python -m tests.golden.make snapshots` writes them again. Do that only where a sentence is meant to change. Results are
those of the stored files (`stored`), so nothing in them is drawn. No snapshot depends on which extensions are
installed: they have tests of their own.
"""

from __future__ import annotations

import ast
import html
import json
import logging
import os
import re
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
from click.testing import CliRunner, Result

import privatile
from privatile import __version__
from privatile.cli import main as command
from privatile.errors import PrivatileError
from privatile.report.survey_pages import SurveyPages
from privatile.run.view import RunView
from privatile.survey.page import LANGUAGES
from tests.golden import stored, wrong
from tests.golden.make import pretty

logging.getLogger("privatile").addHandler(logging.NullHandler())  # what is logged is in no snapshot, as below pytest

FOLDER = Path(__file__).parent
JSON = FOLDER / "results.json"
WIDTH = {"COLUMNS": "100", "NO_COLOR": "1", "LC_ALL": "C.UTF-8"}

CHANGES = (
    (rf"\b({re.escape(__version__)}|0\.1\.0)\b", "(version)"),
    (r"\(build [0-9a-f]{12}\)", "(build)"),
    (r"run-[0-9a-f]{16}", "(run)"),
    (r"ledger-[0-9a-f]{32}\.key", "(key)"),
    (r"/\S*/(?=snapshots-here/)", "/"),
    (r"within (1e-09|0\.001) standard errors", "within (a tolerance)"),  # the second in a file of another build
)
"""What differs between versions, machines or days, and what stands for it."""


def settled(text: str) -> str:
    """Text without what changes by itself."""
    for pattern, word in CHANGES:
        text = re.sub(pattern, word, text)
    # Processors differ in the last digits.
    text = re.sub(r"\d+\.\d{9,}", lambda found: f"{float(found[0]):.8g}", text)
    return "".join(line.rstrip() + "\n" for line in text.splitlines())


def called(*words: object) -> Result:
    """A command's end, printed for a terminal of 100 columns."""
    # Without a handler of its own a warning is printed, with one, as in a test run, it is not.
    with patch("privatile.core.extensions.installed", list), patch("logging.lastResort", logging.NullHandler()):
        return CliRunner().invoke(command, [str(word) for word in words], env=WIDTH)


def line(words: Sequence[object]) -> str:
    """A command as it is typed."""
    return "$ privatile " + " ".join(str(word) if str(word).split() == [str(word)] else repr(word) for word in words)


@contextmanager
def stored_files(unpack: Callable[[Path], None] = stored.unpack) -> Iterator[Path]:
    """The stored files, in the working folder, with the user's folders beside them."""
    with tempfile.TemporaryDirectory() as place:
        folder, before = Path(place).resolve() / "snapshots-here", Path.cwd()
        folder.mkdir()
        unpack(folder)
        with patch.dict(os.environ, {"XDG_CONFIG_HOME": str(folder / "config"), "XDG_STATE_HOME": str(folder)}):
            os.chdir(folder)
            try:
                yield folder
            finally:
                os.chdir(before)


# -- help ------------------------------------------------------------------------------------------------------------


def commands(group: click.Group = command, *path: str) -> list[tuple[str, ...]]:
    """Every command and group by its words, in the order of the help."""
    found = [path]
    for name in group.list_commands(click.Context(group)):
        one = group.get_command(click.Context(group), name)
        found += commands(one, *path, name) if isinstance(one, click.Group) else [(*path, name)]
    return found


def help_texts() -> str:
    """`--help` of every command."""
    with patch("privatile.core.extensions.installed", list):
        every = commands()
    return "\n".join(f"{line((*words, '--help'))}\n{called(*words, '--help').output}" for words in every)


# -- results ---------------------------------------------------------------------------------------------------------

ASK = ("--value", "pay", "--client", "region", "--epsilon", 2, "--range", 0, 100, "--rounds", 30)
SAVED = ("estimate", "data.csv", *ASK, "--person", "who", "--ledger", "ledger.db", "--save", "run.db", "--yes")
PLAN = ("plan", "--q", 0.8, "--add-client", "north=20000,1,1", "--add-client", "south=5000,2,3")
TOLD: tuple[tuple[object, ...], ...] = (
    SAVED,
    ("report", "going.db"),
    ("report", "going.db", "--value-kind", "whole"),
    ("report", "levels.db"),
    ("report", "groups"),
    ("report", "groups", "--simultaneous"),
    ("report", "federation/organizer"),
    ("report", "survey"),
    ("compare", "groups/f.db", "groups/m.db", "--disjoint"),
    ("ledger", "show", "ledger.db"),
    ("ledger", "show", "federation/north/ledger.db"),
    ("ledger", "verify", "ledger.db"),
    (*PLAN, "--width", 0.02),
    (*PLAN, "--spread", 12),
    ("plan", "--epsilon", 1, "--width", 2000, "--population", "lognormal:median=48000,sigma=0.6"),
    ("status", "survey"),
    ("status", "federation/organizer"),
    ("status", "run.db"),
    ("verify", "record.json"),
    ("verify", "record.json", "--transcript", "federation/organizer/run.db"),
    ("verify", "survey-record.json", "--transcript", "survey/run.db"),
)
"""Commands that say something about the stored files, as text and as JSON."""

TEXT_ONLY: tuple[tuple[object, ...], ...] = (
    (*SAVED, "--explain"),
    ("estimate", "data.csv", *ASK, "--ledger", "new.db", "--dry-run"),
    ("report", "levels.db", "--csv"),
    ("simulate", "show", "store.db"),
)

PAGES = ("run.db", "going.db", "levels.db", "groups", "federation/organizer", "survey", "store.db")


def told(words: Sequence[object]) -> str:
    """What a command prints, with its exit code if that is not 0."""
    done = called(*words)
    code = f"(exit {done.exit_code})\n" if done.exit_code else ""
    return f"{line(words)}\n{done.stdout}{code}"


def result_texts() -> str:
    """Results and other facts as text."""
    with stored_files():
        texts = [(*words, "--text") if words[0] == "report" else words for words in TOLD]
        return settled("\n".join(map(told, (*texts, *TEXT_ONLY))))


def json_results() -> dict[str, Any]:
    """The same with `--json`, by command."""
    with stored_files():
        found = {}
        for words in TOLD:
            text = called(*words, "--json").stdout
            for pattern, word in CHANGES:
                text = re.sub(pattern, word, text)
            found[line((*words, "--json"))] = json.loads(text)
        return found


def words_of(page: str) -> str:
    """The words of a page, a line for each element."""
    page = re.sub(r"(?s)<(script|style)\b.*?</\1>|<!--.*?-->", "", page)
    page = re.sub(r"</?(b|a|i|em|strong|span|code|sub|sup|small|abbr)\b[^>]*>", "", page)
    parts = (" ".join(html.unescape(part).split()) for part in re.split(r"<[^>]*>", page))
    return "\n".join(part for part in parts if part)


def page_texts() -> str:
    """The words of the pages about the stored files."""
    with stored_files() as folder:
        parts = []
        for source in PAGES:
            done = called("report", source, "-o", "page.html")
            assert done.exit_code == 0, done.output
            page = words_of((folder / "page.html").read_text(encoding="utf-8"))
            parts.append(f"{line(('report', source, '-o', 'page.html'))}\n{page}\n")
        parts += [f"HTML of run.db\n{words_of(RunView.read('run.db').all_results()[0].to_html())}\n"]
        facts, pages = json.loads(called("status", "survey", "--json").stdout), SurveyPages()
        parts += [f"survey, {name}\n{words_of(pages.live(facts, name))}\n" for name in LANGUAGES]
        parts += [f"survey, organiser\n{words_of(pages.organiser(facts))}\n"]
        return settled("\n".join(parts))


# -- errors ----------------------------------------------------------------------------------------------------------


def error_texts() -> str:
    """What is said about every command and call that is refused."""
    with stored_files() as folder:
        wrong.prepare(folder)
        parts = []
        for words in wrong.COMMANDS:
            done = called(*words)
            assert done.exit_code in (1, 2), (words, done.output)
            assert isinstance(done.exception, SystemExit), (words, done.exception)
            parts.append(f"{line(words)}\n{done.stdout}{done.stderr}(exit {done.exit_code})\n")
        for name, call in wrong.CALLS.items():
            try:
                call()
            except (PrivatileError, TypeError) as error:
                parts.append(f">>> {name}\n{type(error).__name__}: {error}\n")
            else:
                raise AssertionError(f"{name} is not refused")
        return settled("\n".join(parts))


# -- all sentences ---------------------------------------------------------------------------------------------------

SOURCES = Path(privatile.__file__).parent


def sentences() -> str:
    """Every text of more than two words in the sources and templates, sorted; {} stands for what is filled in."""
    found: set[str] = set()
    for path in SOURCES.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        left_out = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # docstrings
        left_out |= {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in nodes:
            if isinstance(node, ast.JoinedStr | ast.Constant) and id(node) not in left_out:
                parts = node.values if isinstance(node, ast.JoinedStr) else [node]
                texts = (part.value if isinstance(part, ast.Constant) else "{}" for part in parts)
                found.add(" ".join("".join(text for text in texts if isinstance(text, str)).split()))
    for path in (*SOURCES.rglob("messages/*.json"), *SOURCES.rglob("words/*.json")):
        found.update(json.loads(path.read_text(encoding="utf-8")).values())
    for path in SOURCES.rglob("*.toml"):
        told = strings(tomllib.loads(path.read_text(encoding="utf-8")))
        found.update(re.sub(r"\{[^}]*\}", "{}", text) for text in told)
    for path in (*SOURCES.rglob("*.html"), *SOURCES.rglob("*.j2")):
        text = re.sub(r"(?s)\{%.*?%\}|\{#.*?#\}", "\n", path.read_text(encoding="utf-8"))
        found.update(words_of(re.sub(r"(?s)\{\{.*?\}\}", "{}", text)).splitlines())
    for path in SOURCES.rglob("*.js"):
        found.update(" ".join(text.split()) for text in JS_TEXT.findall(path.read_text(encoding="utf-8")))
    said = (text for text in sorted(found) if len(re.findall(r"\w{2,}", text)) > 2 and not NO_WORDS.match(text))
    return "".join(f"{text}\n" for text in said)


def strings(plain: Any) -> Iterator[str]:
    """All texts of a table, the names of its keys not."""
    if isinstance(plain, dict):
        for value in plain.values():
            yield from strings(value)
    elif isinstance(plain, str):
        yield plain


NO_WORDS = re.compile(r"(SELECT|INSERT|UPDATE|DELETE|CREATE|DROP|PRAGMA|ALTER) |[\w.{}/-]*$|\(\[")
"""SQL, names of modules and files, patterns."""

JS_TEXT = re.compile(r"""(?<![\w\\])["'`]([A-Za-z$][^"'`\n]* [^"'`\n]* [^"'`\n]*)["'`]""")

SNAPSHOTS: dict[str, Callable[[], str]] = {
    "sentences.txt": sentences,
    "help.txt": help_texts,
    "errors.txt": error_texts,
    "results.txt": result_texts,
    "pages.txt": page_texts,
}


def make() -> None:
    """Write them."""
    for name, text in SNAPSHOTS.items():
        (FOLDER / name).write_text(text(), encoding="utf-8")
    JSON.write_text(pretty(json_results()) + "\n", encoding="utf-8")
