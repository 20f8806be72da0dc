"""The list of checks of a record: what holds, what fails, what a reader should know, what could not be checked."""

from dataclasses import dataclass, field

from privatile.core.words import printable
from privatile.errors import PrivatileError


class VerificationFailed(PrivatileError):
    """A check of a record failed."""


@dataclass
class Checks:
    """What was checked and holds, what fails, what a site wants readers to know, and what could not be checked."""

    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    flagged: list[str] = field(default_factory=list)
    """Holds, and yet says something that may have changed the result."""
    not_checked: list[str] = field(default_factory=list)

    def add(self, text: str, holds: bool, why: str = "") -> bool:
        """Note a check; `why` is added where it fails."""
        (self.passed if holds else self.failed).append(text if holds or not why else f"{text}: {why}")
        return holds

    def to_text(self) -> str:
        """One line per check."""
        kinds = {"holds": self.passed, "FAILS": self.failed, "FLAGGED": self.flagged, "not checked": self.not_checked}
        # A hostile record may be quoted in a text: nothing of it reaches the terminal but what can be printed.
        return "\n".join(f"{kind:<11}  {printable(text)}" for kind, texts in kinds.items() for text in texts)
