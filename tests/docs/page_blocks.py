"""Run every command and code block of a page, in order, in a folder of its own.

    python tests/docs/page_blocks.py PAGE FOLDER

Python blocks share one namespace. The commands of a console block (lines after `$ `) run in bash, which stops at the
first failure. A code block with a caption is written to the file that the caption names. Other blocks are for reading.
"""

from __future__ import annotations

import contextlib
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
NOT_HERE = ("pip install", "make ", "apt-get ", "python apps/flower/simulate.py")
"""Commands that set up the very environment the tests run in (`make test` itself has run them before), and one that
`tests/federation/test_flower.py` runs with draws it knows."""


PORTS = ("47222", "47223", "47224")
"""The ports that pages name; here any free ones, so that two test runs on one machine do not meet."""


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


def commands(body: str) -> str:
    """The commands of a console block, with their continuation lines; output is left out."""
    kept: list[str] = []
    going = False
    for line in body.splitlines():
        if line.startswith("$ ") or going:
            command = line.removeprefix("$ ")
            if not going and command.startswith(NOT_HERE):
                continue
            kept.append(command)
            going = command.endswith("\\")
    return "\n".join(kept)


def free_ports(count: int) -> list[str]:
    """Ports that nobody listens on, no two the same."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [str(probe.getsockname()[1]) for probe in probes]


def with_ports(script: str, ports: dict[str, str]) -> str:
    """The script, with free ports in place of those the page names; one pass, so that none is replaced twice."""
    return re.sub("|".join(ports), lambda match: ports[match[0]], script)


def main(page: Path) -> None:
    """Run them; the first failure ends it with the block's line."""
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    namespace: dict[str, object] = {"__name__": "__page__"}
    for block in blocks(page.read_text(encoding="utf-8")):
        where = f"{page}:{block.line}"
        print(f"--- {where} {block.language}", flush=True)
        if block.language.startswith("file "):
            Path(block.language.removeprefix("file ")).write_text(block.body, encoding="utf-8")
        elif block.language == "python":
            exec(compile(block.body, where, "exec"), namespace)
        elif script := with_ports(commands(block.body), ports):
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], stdin=subprocess.DEVNULL, check=False)
            if done.returncode:
                sys.exit(f"{where}: ended with {done.returncode}:\n{script}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
