"""What the counts of an audit show: findings, in words, each with the check that made it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from privatile.core.mechanism import RandomizedResponse
from privatile.core.words import counted
from privatile.federation.audit.checks import Transcript, run_checks
from privatile.federation.audit.plan import LARGE, RATIO_ALPHA, Plan, Sitting
from privatile.federation.audit.ratio import ratio_bounds
from privatile.federation.audit.scores import more_than

WHOLE_SHARE = 0.25e-4
"""How often an honest client may fail `whole`."""


@dataclass(frozen=True)
class Finding:
    """The answer to one question."""

    name: str
    passed: bool
    text: str


def judge(plan: Plan, transcript: Transcript, rng: np.random.Generator) -> list[Finding]:
    """The findings of one audit whose client has answered every question."""
    findings = [find_ratio(plan, transcript)] if "long" in plan.parts else []
    findings += [find_whole(plan.whole, transcript)] if "whole" in plan.parts else []
    for check in run_checks(plan, transcript, rng) if plan.sittings else ():
        probability = float(check.probability[0])
        seen = "nothing strange" if check.passed[0] else f"{check.worst()}, which honest coins give with"
        chance = f"p = {probability:.2g}" + ("" if check.passed[0] else f"; allowed: {check.share:.2g}")
        findings.append(
            Finding(check.name, bool(check.passed[0]), f"{counted(len(check.labels), 'test')}: {seen} ({chance})")
        )
    return findings


def silent(sitting: str, site: str, number: int) -> Finding:
    """A site that did not answer. On one machine nothing is lost: silence is an answer, and may tell the truth."""
    return Finding("answers", False, f"site {site} did not answer round {number} of sitting {sitting}")


def find_ratio(plan: Plan, transcript: Transcript) -> Finding:
    """Whether e^ε is within the bounds that the large questions give, for a report of 1 and for a report of 0."""
    ((site, asks),) = plan.long.asks.items()
    ones = transcript["long", site][0]
    large = asks.same_truth & (asks.length >= LARGE)
    above, below = large & (asks.above == 1.0), large & (asks.above == 0.0)
    bounds = ratio_bounds(int(ones[above].sum()), int(ones[below].sum()), int(asks.length[above].sum()), RATIO_ALPHA)
    return ratio_finding(plan.epsilon, bounds)


def find_whole(whole: Sitting, transcript: Transcript) -> Finding:
    """Whether the counts of a whole file add up to the records above the query: then each was asked once.

    A difference d needs at least |d| lies, whatever the truths are.
    """
    asked = []
    for site, asks in whole.asks.items():
        records = asks.file.records
        planted, counted = round(float(asks.above[0]) * records), int(transcript[whole.name, site][0].sum())
        lies, whose = np.array(abs(counted - planted)), "people" if asks.file.people else "records"
        chance = float(more_than(lies - 1, np.array(records), np.array((1.0 - asks.rate) / 2.0)))
        asked.append(f"{counted:,} of {records:,} {whose}")
        if len(whole.asks) * chance <= WHOLE_SHARE:
            text = (
                f"site {site}: {planted:,} of {records:,} {whose} are above the query, the counts add up to {counted:,}"
            )
            return Finding("whole", False, f"{text}: some were asked twice or never, or by row in place of by person")
    return Finding("whole", True, f"all were asked, each once: {' and '.join(asked)} are above the query, as planted")


def ratio_finding(epsilon: float, bounds: tuple[tuple[float, float], tuple[float, float]]) -> Finding:
    """The finding from the two intervals of the likelihood ratio."""
    rate = RandomizedResponse.from_epsilon(epsilon).truth_rate
    limit = (1 + rate) / (1 - rate)
    measured = ", ".join(f"{low:.4f} to {high:.4f}" for low, high in bounds)
    least = math.log(max(bounds[0][0], bounds[1][0], 1.0))
    text = f"e^epsilon = {limit:.4f}; measured, for a report of 1 and of 0: {measured}; epsilon is at least {least:.4f}"
    return Finding("ratio", all(low <= limit <= high for low, high in bounds), text)


def answered(transcript: Mapping[tuple[str, str], object]) -> Finding:
    """Every question was answered."""
    return Finding("answers", True, f"every question was answered, by {counted(len(transcript), 'client')}")
