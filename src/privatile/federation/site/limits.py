"""What a site answers: the study it agreed to, within the limits of its own file, whatever a coordinator says.

The file `policy.toml` in the site's folder, one for all studies; nothing in it is taken from an invitation:

    max_epsilon    the most that one person may spend for life, all studies together; without a person column two
                   studies of different columns count twice
    values         columns that may be asked about; empty: the one that the operator names when joining
    min_cohort     the fewest records that a question may ask; under local privacy one is fine
    coordinators   fingerprints of those who may ask: coordinators, or rosters of an extension; empty: the invitation's
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Protocol

from msgspec import Meta

from privatile.core.decoding import read_toml
from privatile.core.messages import Question
from privatile.errors import InputError, SiteRefusal
from privatile.federation.study import FederationStudy
from privatile.records.keys import same_fingerprint

ROUNDING = 1e-9
"""Relative difference allowed between a step and the study's own: processors round the last digits differently."""


COUNT_TWICE = (
    "Two studies of different columns without a person column count twice: whose records they are is not known."
)
"""What a site's operator must know of the limit."""


class Invited(Protocol):
    """What a site is asked to take part in: an invitation of a coordinator, or of an extension."""

    @property
    def client(self) -> str:
        """The site's name in the study."""

    @property
    def study(self) -> FederationStudy:
        """What is asked."""

    @property
    def asked_by(self) -> tuple[str, str]:
        """Who asks, in a word and by its fingerprint."""


@dataclass(frozen=True)
class SiteLimits:
    """A site's limits.

    >>> SiteLimits(max_epsilon=1.0).min_cohort
    1
    """

    max_epsilon: Annotated[float, Meta(gt=0, description="a positive number: the most one person may spend for life")]
    values: tuple[str, ...] = ()
    min_cohort: Annotated[int, Meta(ge=1, description="a whole number from 1")] = 1
    coordinators: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0.0 < self.max_epsilon < math.inf:
            raise InputError(f"max_epsilon must be a positive number; got {self.max_epsilon!r}.")
        if self.min_cohort < 1:
            raise InputError(f"min_cohort must be at least 1; got {self.min_cohort!r}.")

    def refusals(self, invitation: Invited, value: str) -> list[str]:
        """Every reason not to take part in this study with this column; empty when there is none."""
        reasons = self.epsilon_refusals(invitation)
        if self.values and value not in self.values:
            reasons.append(f"column {value!r} is not among those this site's limits allow.")
        who, fingerprint = invitation.asked_by
        if self.coordinators and not any(same_fingerprint(known, fingerprint) for known in self.coordinators):
            reasons.append(f"the {who} {fingerprint} is not among those this site's limits allow.")
        return reasons

    def epsilon_refusals(self, invitation: Invited) -> list[str]:
        """Of these the one that is known as soon as somebody is invited: the study asks too much of a person."""
        epsilon = invitation.study.clients[invitation.client].epsilon
        if epsilon <= self.max_epsilon:  # what was spent before is in the ledger, which refuses by itself
            return []
        allowed = f"this site's limits allow {self.max_epsilon:g} per person for life"
        return [f"the study asks epsilon {epsilon:g}; {allowed}."]

    def check_length(self, question: Question) -> None:
        """Refuse a question that asks fewer records than the site allows."""
        if question.length < self.min_cohort:
            raise SiteRefusal(
                f"round {question.round} asks {question.length} records at once; this site's limits ask for at least "
                f"{self.min_cohort}."
            )


def check_questions(study: FederationStudy, questions: Sequence[Question]) -> None:
    """Refuse what the agreed study does not cover, whatever the coordinator signs."""
    low, high = study.range
    levels = [question.level for question in questions]
    if len(set(levels)) < len(levels) or not set(levels) <= set(study.asked_levels):
        raise SiteRefusal("the question is about a level that the study does not ask for, or twice about one.")
    for question in questions:
        if question.run != study.run:
            raise SiteRefusal("the question is of another run, or of another version of the study than this site's.")
        if question.round > study.rounds and not study.is_open:
            raise SiteRefusal(f"round {question.round} is beyond the study's {study.rounds} rounds.")
        if not low <= question.query <= high:
            raise SiteRefusal("the question lies outside the study's range.")
        if (question.step is not None) != (study.mode == "local"):
            has = "has no step" if question.step is None else "has a step"
            raise SiteRefusal(
                f"the question {has}; the study's mode is {study.mode}, and only in local mode there is one."
            )
        if question.step is not None and question.step * question.length > study.largest_step * (1.0 + ROUNDING):
            raise SiteRefusal("the question's step is larger than any of the study's own schedule.")


def refused(reasons: Sequence[str], cure: str) -> SiteRefusal:
    """The error for a study that a site's limits refuse; `cure` says where its people can allow more."""
    listed = "\n- ".join(reasons)
    return SiteRefusal(
        f"this site's limits refuse the study:\n- {listed}\n{cure} if this site agrees to more, or take part in "
        "another study."
    )


def no_limits(path: Path) -> InputError:
    """The error for a site that has not decided on its limits."""
    return InputError(
        f"{path}: this site has no limits yet. Decide the most that one person may spend for life, all studies "
        "together. Say it once: with --max-epsilon NUMBER when you enroll, or in this file: max_epsilon = NUMBER"
    )


def read_limits(path: Path) -> SiteLimits:
    """Read a site's limits; all errors at once."""
    if not path.exists():
        raise no_limits(path)
    document = read_toml(path)
    return document.finish(document.decode(SiteLimits))


def limits_toml(max_epsilon: float) -> str:
    """Limits to start from: the site's own most for life, nothing more."""
    return (
        "# This site's limits. The client refuses what exceeds them, whatever a coordinator says.\n"
        f"max_epsilon = {float(max_epsilon)!r}  # the most one person may spend for life, all studies together\n"
        f"# {COUNT_TWICE}\n"
        "values = []  # columns that may be asked about; empty: the one named when joining\n"
        "min_cohort = 1  # the fewest records a question may ask; under local privacy one is fine\n"
        "coordinators = []  # fingerprints of the coordinators this site answers; empty: that of each invitation\n"
    )
