"""The mark: how many changes the codes of a survey had seen, kept outside the survey's folder.

Two files restored from one old backup agree with each other, and codes that were spent since then would answer again.
The mark lies with the user's keys. It is written after a commit, never ahead of one, so codes with fewer changes than
it says are an older copy: refused until `privatile survey serve --restored` says that it is meant. A mark may lag by
the last seconds before a power cut or a kill. Where it was restored with the folder, or on another machine, it shows
nothing.
"""

import os
import time
from pathlib import Path
from typing import Self

from privatile.client.ledger.key_files import key_folder
from privatile.survey.study import SurveyStudy

EVERY_SECONDS = 2.0
"""How much the mark may lag behind a gateway that runs."""


class SurveyMark:
    """The mark of one survey."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written = -EVERY_SECONDS

    @classmethod
    def of(cls, study: SurveyStudy) -> Self:
        """That of a study, in the user's key folder."""
        return cls(key_folder() / f"survey-{study.survey}-{study.digest[:16]}.mark")

    def read(self) -> int:
        """Changes that were seen; 0 where there is no mark, or none that a program wrote."""
        try:
            return int(self.path.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return 0

    @property
    def is_due(self) -> bool:
        """Whether it is time to write it again."""
        return time.monotonic() - self._written > EVERY_SECONDS

    def advance(self, changes: int) -> None:
        """Move the mark up to changes that are on the disk; OSError where it cannot be written."""
        self._written = time.monotonic()
        if changes > self.read():
            self.put(changes)

    def put(self, changes: int) -> None:
        """Set the mark, back too; OSError where it cannot be written."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        draft.touch(mode=0o600)
        draft.write_text(f"{changes}\n", encoding="ascii")
        draft.replace(self.path)
