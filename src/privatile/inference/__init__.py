"""From answers to an estimate with an interval.

A run's answers allow several intervals: the curve through all of them (`curve`, `smooth`), the average of the path with
its own spread (`self_normalized`), tests and questions that bracket the quantile (`any_shape`) and the confidence
sequence (`anytime`). They read the rounds of a run as `trajectory` holds them. `reading.read` is the one rule that
decides which of them a result shows.
"""

from privatile.inference.inference import Inference, from_ends
from privatile.inference.reading import Reading, as_displayed, read
from privatile.inference.trajectory import Trajectory

__all__ = ["Inference", "Reading", "Trajectory", "as_displayed", "from_ends", "read"]
