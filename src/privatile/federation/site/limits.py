"""The site decides: limits in the site's own file, whatever a coordinator says.

max_epsilon       the most that one record (or person) may pay over its life, all studies together
values            columns that may be asked about; empty: the one the operator names on the command line
min_cohort        the fewest records a question may ask; under local privacy one is fine
coordinators      fingerprints of the coordinators this site answers; empty: the one of the invitation
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

from privatile.core.messages import Question
from privatile.errors import InputError, SiteRefusal
from privatile.federation.setup.invitation import Invitation
from privatile.federation.wire.keys import same_fingerprint


@dataclass(frozen=True)
class SiteLimits:
    """A site's limits.

    >>> SiteLimits(max_epsilon=1.0).min_cohort
    1
    """

    max_epsilon: float
    values: tuple[str, ...] = ()
    min_cohort: int = 1
    coordinators: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        wrong = []
        if not 0.0 < self.max_epsilon < math.inf:
            wrong.append(f"max_epsilon must be a positive number; got {self.max_epsilon!r}.")
        if self.min_cohort < 1:
            wrong.append(f"min_cohort must be at least 1; got {self.min_cohort!r}.")
        if wrong:
            raise InputError("\n".join(wrong))

    def refusals(self, invitation: Invitation, value: str, spent: float = 0.0) -> list[str]:
        """Every reason not to take part in this study with this column; empty when there is none."""
        terms = invitation.study.clients[invitation.client]
        reasons = []
        if spent + terms.epsilon > self.max_epsilon:
            before = f" on top of {spent:g} already spent" if spent else ""
            reasons.append(
                f"the study asks epsilon {terms.epsilon:g}{before}; this site's policy allows "
                f"{self.max_epsilon:g} per person for life."
            )
        if self.values and value not in self.values:
            reasons.append(f"column {value!r} is not among those this site's policy allows.")
        if self.coordinators and not any(
            same_fingerprint(known, invitation.coordinator.fingerprint) for known in self.coordinators
        ):
            reasons.append(
                f"the coordinator {invitation.coordinator.fingerprint} is not among those this site's policy allows."
            )
        return reasons

    def check_question(self, question: Question) -> None:
        """Refuse a cohort smaller than the site allows."""
        if question.length < self.min_cohort:
            raise SiteRefusal(
                f"round {question.round} asks {question.length} records at once; this site's policy wants at least "
                f"{self.min_cohort}."
            )


def load_policy(path: Path) -> SiteLimits:
    """Read a policy file; all errors at once."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no policy here. `privatile enroll` writes one to start from.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: cannot be read as TOML ({type(error).__name__}).") from None
    known = {item.name for item in fields(SiteLimits)}
    wrong = [f"{path}: {key!r:.60} is not a setting of a policy. Known: {', '.join(sorted(known))}."
             for key in table if key not in known]  # fmt: skip
    number = table.get("max_epsilon")
    if isinstance(number, bool) or not isinstance(number, int | float):
        wrong.append(f"{path}: max_epsilon must be given, as a number: the most one person may pay for life.")
    least = table.get("min_cohort", 1)
    if isinstance(least, bool) or not isinstance(least, int):
        wrong.append(f"{path}: min_cohort must be a whole number; got {least!r:.60}.")
    for key in ("values", "coordinators"):
        given = table.get(key, [])
        if not isinstance(given, list) or not all(isinstance(entry, str) for entry in given):
            wrong.append(f"{path}: {key} must be a list of texts.")
    if wrong:
        raise InputError("\n".join(wrong))
    try:
        return SiteLimits(float(table["max_epsilon"]), tuple(table.get("values", ())), least,
                      tuple(table.get("coordinators", ())))  # fmt: skip
    except InputError as error:
        raise InputError("\n".join(f"{path}: {line}" for line in str(error).splitlines())) from None


def policy_toml(max_epsilon: float, coordinator: str) -> str:
    """A policy to start from: this study's budget and this study's coordinator, nothing more."""
    return (
        "# This site's limits. The client refuses what exceeds them, whatever a coordinator says.\n"
        f"max_epsilon = {max_epsilon!r}  # the most one person may pay for life, all studies together\n"
        "values = []  # columns that may be asked about; empty: the one named when joining\n"
        "min_cohort = 1  # fewest records a question may ask; under local privacy one is fine\n"
        f'coordinators = ["{coordinator}"]  # fingerprints of coordinators this site answers\n'
    )
