"""Run every command and code block of a page, in order, in a folder of its own.

    python tests/docs/page_blocks.py PAGE FOLDER

Python blocks share one namespace. The commands of console blocks (lines after `$ `) run in one bash, as in a reader's
terminal; the first failure ends it. A code block with a caption is written to the file that the caption names. Other
blocks are for reading.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(
    r"^(?P<fence>`{3,}|~{3,})(?P<language>\{code-block\} \w+|[\w-]*)[^\n]*\n(?P<body>.*?)^(?P=fence)[ \t]*$",
    re.S | re.M,
)
CAPTION = re.compile(r":caption: (?P<name>[\w.-]+)\n+(?P<content>.*)", re.S)
SETUP = ("pip install", "make ", "apt-get ")
"""Commands that set up the very environment the tests run in: `make test` itself has run them before. They are not run
again but held against what they name (stale_lines.py)."""

ELSEWHERE = ("python -m privatile_flower.simulate",)
"""What another test runs, with draws it knows: apps/flower/tests/test_runs.py."""

PORTS = ("27222", "27223", "27224", "27225", "27226", "27227", "9464", "8443")
"""The ports that pages name; here any free ones, so that two test runs on one machine do not meet."""

SHORTER = {"--replications 1000": "--replications 2", "--off 0.1": "--off 0.4"}
"""What would take minutes runs with as few replications and reports as it can."""

if "PRIVATILE_LONG" not in os.environ:
    SHORTER |= {
        "--replications 200": "--replications 8",
        "replications = 60": "replications = 6",
        "replications = 20\n": "replications = 4\n",
        "rng.normal(0, 1, 2_000) for k in range(10)": "rng.normal(0, 1, 400) for k in range(10)",
    }


class Block(NamedTuple):
    """One fenced block."""

    language: str
    body: str
    line: int


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page that are executed; indented ones (inside lists) too."""
    found = []
    for match in FENCE.finditer(re.sub(r"^ {2,}(?=```)", "", text, flags=re.M)):
        captioned = CAPTION.match(match["body"]) if match["language"].startswith("{") else None
        line = text[: match.start()].count("\n") + 1
        if captioned:
            found.append(Block(f"file {captioned['name']}", captioned["content"], line))
        elif match["language"] in ("python", "console"):
            lines = match["body"].splitlines()
            indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
            body = "\n".join(line[indent:] for line in lines)
            found.append(Block(match["language"], body, line))
    return found


def lines(body: str) -> list[str]:
    """The commands of a console block, each with its continuation lines; output is left out."""
    kept: list[str] = []
    going = False
    for line in body.splitlines():
        if going:
            kept[-1] += "\n" + line
        elif line.startswith("$ "):
            kept.append(line.removeprefix("$ "))
        else:
            continue
        going = line.endswith("\\")
    return kept


def commands(body: str) -> str:
    """Those of a block that are run."""
    return "\n".join(line for line in lines(body) if not line.startswith(SETUP + ELSEWHERE))


def free_ports(count: int) -> list[str]:
    """Ports that nobody listens on, no two the same; not those that systems give to connections meanwhile."""
    found: list[str] = []
    for port in random.sample(range(20_000, 32_000), 1000):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            found.append(str(port))
        if len(found) == count:
            break
    return found


def adapted(script: str, changes: dict[str, str]) -> str:
    """The script with free ports in place of those the page names; one pass, so that none is replaced twice."""
    return re.sub("|".join(map(re.escape, changes)), lambda match: changes[match[0]], script)


class Shell:
    """One bash for all blocks of a page: its jobs, variables and folder live on from block to block."""

    def __init__(self) -> None:
        self._said, told = os.pipe()
        self._bash = subprocess.Popen(["bash", "-euo", "pipefail"], stdin=subprocess.PIPE, pass_fds=[told], text=True)
        os.close(told)
        self._told = told

    def run(self, script: str) -> bool:
        """Whether every command of the script succeeded. What is started in the background continues."""
        if self._bash.stdin is None:
            return False
        # The commands read nothing, and only bash itself keeps the pipe on which it says that it is done.
        body = f"{{ {script}\n}} < /dev/null {self._told}>&-\necho >&{self._told}\n"
        with contextlib.suppress(BrokenPipeError):
            self._bash.stdin.write(body)
            self._bash.stdin.flush()
            return os.read(self._said, 1) == b"\n"
        return False


def main(page: Path) -> None:
    """Run them; the first failure ends it with the block's line."""
    changes = {**dict(zip(PORTS, free_ports(len(PORTS)), strict=True)), **SHORTER}
    namespace: dict[str, object] = {"__name__": "__page__"}
    shell = Shell()
    for block in blocks(page.read_text(encoding="utf-8")):
        where = f"{page}:{block.line}"
        print(f"--- {where} {block.language}", flush=True)
        if block.language.startswith("file "):
            content = adapted(block.body, SHORTER)
            Path(block.language.removeprefix("file ")).write_text(content, encoding="utf-8")
        elif block.language == "python":
            exec(compile(adapted(block.body, changes), where, "exec"), namespace)
        elif script := commands(block.body):
            script = adapted(script, changes)
            if not shell.run(script):
                sys.exit(f"{where}: failed:\n{script}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
