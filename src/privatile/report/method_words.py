"""How estimate and interval were read from the answers, in words that are true for the run at hand."""

from privatile.estimator.spec import RunSpec
from privatile.result.result import QuantileResult

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
    if result.design == "auto":
        return (
            f"The first {first_rounds:,} rounds searched for the quantile and asked around it, partly beyond what is "
            "drawn; from then on the step is fixed. "
        )
    return f"The first {first_rounds:,} rounds searched for the quantile (burn-in). "


def how_read(result: QuantileResult) -> str:
    """Where estimate and interval come from."""
    method = result.method
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
    if method.startswith("plug-in"):
        return f"{curve} (plug-in)."
    if method.startswith("anytime"):
        return f"{curve}, widened so that it holds at every look at once (anytime)."
    if method.startswith("wider"):
        return (
            "The slope of the curve through the answers is not known well enough, so the interval is the wider of two: "
            "the one read from that curve, and the one from how the mean of the questions moved."
        )
    return (
        "The answers do not lie on a smooth curve whose slope is known, so the interval is the widest of three: the "
        "one read from the curve, the one from how the mean of the questions moved, and the questions between which "
        "the quantile lies."
    )


def looking(spec: RunSpec) -> str:
    """What watching the interval means for its confidence."""
    if spec.until_width is not None:
        return (
            f"It stays valid however often one looks: the run stops by itself once it is at most "
            f"{spec.until_width:,.6g} wide."
        )
    return "Stopping a run because of what this interval shows voids its confidence."
