"""The list of checks of a record: what holds, what fails, what a reader should know, what could not be checked."""

from dataclasses import dataclass, field
from typing import Any

from privatile.core.words import counted, printable
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

    def verdict(self, *, recomputed: bool) -> str:
        """What was verified where nothing fails, in one line; `recomputed`: the run's file was given.

        >>> Checks(passed=["one", "two"], not_checked=["three"]).verdict(recomputed=True)
        "Verified: the result is what the run's counts give; 2 checks hold. Not checked: 1, see above."
        """
        what = "the result is what the run's counts give" if recomputed else "the signatures and the record's own facts"
        told = [f"Verified: {what}; {counted(len(self.passed), 'check')} hold."]
        if not recomputed:
            told.append("The result was not recomputed: give the run's file (--transcript run.db).")
        if self.flagged:
            told.append(f"Read what is flagged above ({len(self.flagged)}).")
        if self.not_checked and recomputed:
            told.append(f"Not checked: {len(self.not_checked)}, see above.")
        return " ".join(told)

    def _by_state(self) -> dict[str, list[str]]:
        """Texts by what became of them. A hostile record may be quoted in one: only what can be printed is shown."""
        kinds = {"holds": self.passed, "FAILS": self.failed, "FLAGGED": self.flagged, "not checked": self.not_checked}
        return {kind: [printable(text) for text in texts] for kind, texts in kinds.items()}

    def to_dict(self, *, recomputed: bool) -> dict[str, Any]:
        """Plain values: whether it is verified, in a sentence too, and the checks with their state.

        >>> Checks(failed=["one"]).to_dict(recomputed=True)["checks"]
        [{'state': 'fails', 'text': 'one'}]
        """
        failing = f"cannot be trusted: {len(self.failed)} of the checks fail"
        return {
            "verified": not self.failed,
            "recomputed": recomputed,
            "verdict": failing if self.failed else self.verdict(recomputed=recomputed),
            "checks": [
                {"state": state.lower(), "text": text} for state, texts in self._by_state().items() for text in texts
            ],
        }

    def to_text(self) -> str:
        """One line per check."""
        return "\n".join(f"{kind:<11}  {text}" for kind, texts in self._by_state().items() for text in texts)
