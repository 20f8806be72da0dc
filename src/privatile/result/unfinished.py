"""The result of a run that has not ended: which of its intervals is valid at a time that somebody chose while looking.

The fixed-time interval holds at the planned end. Whoever may choose when to stop can wait until it says what they like;
the anytime interval holds at all rounds at once. One rule for pages, release records and `privatile verify`.
"""

from dataclasses import replace

from privatile.result.result import Caveat, QuantileResult
from privatile.result.severity import most_important_first


def unfinished(result: QuantileResult, planned: int) -> QuantileResult:
    """The result with the caveat that its design would have gone on, for at most `planned` rounds; 0: without end."""
    if not planned:
        text = f"The run goes on; {result.records:,} have answered so far. Its interval is valid at any time."
        return replace(result, caveats=most_important_first(Caveat("goes-on", text), *result.caveats))
    text = f"The run is unfinished: {result.rounds:,} of at most {planned:,} rounds. "
    if result.valid_at_every_look:
        text += "Its interval is valid at any time."
    else:
        percent = f"{100 * result.confidence_level:g}%"
        text += (
            f"The {percent} interval holds at the planned end only, not at a time that somebody chose while looking. "
        )
        if result.anytime is None:
            text += "No interval is valid at such a time yet."
        else:
            low, high = result.ends_shown(result.anytime)
            text += f"Valid at such a time is the anytime interval, {low} to {high}."
    other = result.other
    # The smooth one holds at the end only, unless the run stops by its width; the any-shape one may be the anytime
    # interval, which stands first.
    if other is not None and not other.at_every_look:
        left_out = result.valid_at_every_look or other.interval == result.anytime
        other = None if left_out else other._replace(condition=f"{other.condition}, at the planned end only")
    return replace(result, other=other, caveats=most_important_first(Caveat("unfinished", text), *result.caveats))
