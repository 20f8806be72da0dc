"""The vote of this organization's people on its way to the log: a file, until the vote is read there."""

from pathlib import Path


class VoteBox:
    """A vote to abort that was not yet seen in the log. The file survives a crash of either side."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @property
    def pending(self) -> bool:
        """Whether a vote is still to be cast."""
        return self._file.exists()

    def put(self) -> None:
        """Have the running peer vote, or the next one that runs."""
        self._file.touch(mode=0o600)

    def done(self) -> None:
        """The vote is in the log."""
        self._file.unlink(missing_ok=True)
