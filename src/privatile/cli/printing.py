"""Facts on stdout for programs, and texts that every terminal can show."""

from __future__ import annotations

import codecs
import io
import json
import sys

import click


def show_any_text() -> None:
    """Put a question mark for letters that stdout or stderr cannot write (an old locale): better than none at all."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def echo_json(facts: object) -> None:
    """Facts as JSON, without NaN or infinity; in plain ASCII where stdout does not take every letter."""
    ascii_only = codecs.lookup(getattr(sys.stdout, "encoding", None) or "ascii").name != "utf-8"
    click.echo(json.dumps(facts, indent=2, ensure_ascii=ascii_only, allow_nan=False))
