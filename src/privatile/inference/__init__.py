"""From answers to an estimate with an interval.

A run's answers allow several intervals: the curve through all of them (`tuned_reading`), the average of the path with
its own spread (`self_normalized`), the questions that bracket the quantile (`bracket`) and the confidence sequence
(`anytime`). They read the rounds of a run as `trajectory` holds them; `curve` is the fit, and `variance` what known
ranks or a file as the target take off the variance. `choice.choose_interval` is the one rule that decides which of them
a result shows.
"""

from privatile.inference.choice import Evidence, as_displayed, choose_interval, gather_evidence
from privatile.inference.inference import Inference, from_ends
from privatile.inference.trajectory import Trajectory

__all__ = ["Evidence", "Inference", "Trajectory", "as_displayed", "choose_interval", "from_ends", "gather_evidence"]
