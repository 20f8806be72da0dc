"""A broken client runs as `privatile join`, or as `privatile peer run` where its first argument is a peer's folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from privatile.cli import main


def run_client(arguments: Sequence[str]) -> None:
    """Run the program with what was broken."""
    main([*(["peer", "run"] if Path(arguments[0]).is_dir() else ["join"]), *arguments])
