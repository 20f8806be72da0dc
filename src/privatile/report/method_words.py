"""How estimate and interval were read from the answers, in words that are true for the run at hand."""

from privatile.estimator.spec import RunSpec
from privatile.result.result import QuantileResult
from privatile.result.sentence import ANY_SHAPE

NAMES = {0.25: "The lower quartile", 0.5: "The median", 0.75: "The upper quartile"}


def short_title(level: float, value: str) -> str:
    """What was estimated, in a few words; the sentence beside it says the rest.

    >>> short_title(0.5, "income"), short_title(0.9, "income")
    ('The median of income', 'The 0.9 quantile of income')
    """
    return f"{NAMES.get(level, f'The {level:g} quantile')} of {value}"


def way_there(first_rounds: int, result: QuantileResult) -> str:
    """What the rounds before averaging were for."""
    if not first_rounds:
        return ""
    if result.design in ("straddle", "open"):
        return (
            f"The first {first_rounds:,} rounds searched for the quantile; from then on the questions lie on both "
            "sides of it, ever closer. "
        )
    if result.design == "tuned":
        return (
            f"The first {first_rounds:,} rounds searched for the quantile and asked around it, partly beyond what is "
            "drawn; from then on the step is fixed. "
        )
    return f"The first {first_rounds:,} rounds searched for the quantile (burn-in). "


OTHER_NAMES = {"any-shape": "whatever the distribution", "smooth": "if smooth", "anytime": "if smooth"}
"""The interval that stands beside the first one, in a few words."""


def how_read(result: QuantileResult) -> str:
    """Where estimate and interval come from."""
    method, any_shape = result.method, result.inference.is_any_shape
    if result.interval_so_far is not None and not result.valid_at_every_look:
        method, any_shape = "anytime", result.anytime_condition == ANY_SHAPE
    if any_shape and result.design in ("straddle", "open"):
        return (
            "The interval ends at the innermost questions that the answers place below and above the quantile: of the "
            "distribution it needs nothing, and it holds at every look. The estimate is where a curve through all "
            "answers so far crosses the level, moved into the interval."
        )
    if any_shape:
        return (
            "The estimate is where the curve through all answers so far crosses the level. The interval holds what "
            "that curve gives, and the questions between which the answers place the quantile."
        )
    if method.startswith("self-normalized"):
        since = " since then" if result.averaged_rounds < result.rounds else ""
        return (
            f"The estimate is the mean of the questions{since}, and the interval comes from how that mean moved on its "
            "way (self-normalised)."
        )
    curve = (
        "The estimate is where the curve through all answers so far crosses the level; how steep the curve is there "
        "and the noise of the answers, which is known by design, give the interval"
    )
    if method.startswith("smooth"):
        return f"{curve}. It needs continuous values whose distribution is smooth around the quantile."
    return f"{curve}, widened so that it holds at every look at once (anytime)."


def looking(spec: RunSpec, result: QuantileResult) -> str:
    """What watching the interval that is drawn means for its confidence."""
    if spec.until_width is not None:
        return (
            f"It stays valid however often one looks: the run stops by itself once it is at most "
            f"{spec.until_width:,.6g} wide."
        )
    if spec.design == "open":
        return "The interval stays valid however often one looks, and whenever the run is ended."
    if result.valid_at_every_look or result.interval_so_far is not None:
        dashed = "; the dashed one holds at the planned end only" if result.other is not None else ""
        return f"The interval stays valid however often one looks{dashed}."
    return "Stopping a run because of what this interval shows voids its confidence."
