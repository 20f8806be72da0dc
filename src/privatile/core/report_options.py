"""The options that a run's report goes by: chosen by its user, and part of the run's specification."""

from dataclasses import dataclass

from privatile.core.kinds import (
    CONFIDENCE,
    DITHER,
    FLAG,
    WIDTH,
    Choice,
    Declaration,
    IntervalName,
    Normalizer,
    Target,
    Text,
    ValueKind,
    check_options,
    declaration,
    option,
)
from privatile.core.messages import MISSING, Missing

REPORT_ONLY = ("confidence_level", "interval", "simultaneous", "normalizer", "target", "value_kind")
"""Fields that change how a run is reported, but no question that it asks. What `value_kind` means for the questions is
in the design: `RunSpec` resolves "auto" by it."""


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """The part of a run's settings that a user chooses."""

    confidence_level: float = option(0.95, CONFIDENCE, "Interval", "Of the interval (0.95).", common=True)
    interval: IntervalName = option(
        "default",
        Choice("default", "any-shape", "smooth", "self-normalized", "paper"),
        "Interval",
        "any-shape: holds whatever the distribution (default). smooth: narrower, if the distribution is smooth around "
        "the quantile (default for --value-kind continuous, unless the answers contradict it). self-normalized, with "
        "the critical value for this run's relaxations, or paper: with the asymptotic one.",
    )
    value_kind: str = option(
        "any",
        ValueKind(),
        "Question",
        "What you know about the values, not from the data: any (default), continuous (with a smooth distribution "
        "around the quantile), whole (all are whole numbers) or step=NUMBER (all are multiples of it).",
        common=True,
    )
    until_width: float | None = option(
        None,
        WIDTH,
        "Interval",
        "Stop when the anytime interval, from end to end, is this narrow, and leave the remaining records unasked.",
    )
    simultaneous: bool = option(
        False, FLAG, "Interval", "Intervals of several levels, and of groups, hold all at once, not each by itself."
    )
    target: Target = option(
        "population",
        Choice("population", "file"),
        "Interval",
        "Who the interval is about: the population the records are a sample of (default), or the file's own records "
        "and no one else (narrower).",
    )
    missing: Missing = option(
        "noise",
        Choice(*MISSING),
        "Data",
        "Missing values: answer at random and stay protected (noise, default), leave them out (their number shows), or "
        "refuse the file.",
    )
    design: str = option(
        "auto",
        Text("NAME"),
        "Expert",
        "How records are divided into rounds: auto (the default; it tunes itself: straddle, or tuned for --value-kind "
        "continuous), rounds (equal ones), constant:E, log, power:B, list:E,E,…, or the paper's Algorithm 1 to the "
        "letter: paper-c1, paper-c5, paper-log.",
    )
    normalizer: Normalizer = option("l2", Choice("l2", "l1", "sup"), "Expert", "Of the self-normalised interval (l2).")
    dither: float = option(
        0.0,
        DITHER,
        "Expert",
        "Add a uniform ±WIDTH/2 to each value, as the paper does; the estimand is then the quantile of those. An "
        "honest interval does not need it.",
    )

    def __post_init__(self) -> None:
        check_options(self)

    @property
    def needs_path(self) -> bool:
        """Whether the interval asked for is read from the path of the questions: all self-normalised ones."""
        return self.interval in ("self-normalized", "paper") or self.normalizer != "l2"

    @property
    def declared(self) -> Declaration:
        """What is declared about the values."""
        return declaration(self.value_kind)
