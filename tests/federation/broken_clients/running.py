"""A broken client runs as `privatile join`."""

from __future__ import annotations

from collections.abc import Sequence

from privatile.cli import main


def run_client(arguments: Sequence[str]) -> None:
    """Run the program with what was broken."""
    main(["join", *arguments])
