"""How other commands reach a running coordinator: small files in a folder, read every second, and SIGTERM.

Files survive a crash of either side; a request is removed when it is read.
"""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Control:
    """The folder of requests."""

    folder: Path

    def request(self, action: str, client: str = "") -> None:
        """Ask for `abort`, for `close`, or to `readmit` a client."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.folder / (f"{action}.{client}" if client else action)).touch()

    def take(self) -> list[tuple[str, str]]:
        """Remove every request and give its action and client."""
        try:
            names = sorted(os.listdir(self.folder))  # noqa: PTH208  (the cheapest way to list a folder)
        except FileNotFoundError:
            return []
        found = []
        for name in names:
            (self.folder / name).unlink(missing_ok=True)
            action, _, client = name.partition(".")
            found.append((action, client))
        return found
