"""From an interval to words: the result of a run, its caveats and diagnostics, and the comparison of two results.

`summary.summarize` makes a `QuantileResult` from a run's state; text, HTML and JSON are made from its one list of rows.
"""

from privatile.result.compare import Comparison, compare
from privatile.result.result import Caveat, ConfidenceInterval, OtherReading, QuantileResult, Results, ValueTest
from privatile.result.shown import ClientFacts, Row
from privatile.result.summary import summarize

__all__ = [
    "Caveat",
    "ClientFacts",
    "Comparison",
    "ConfidenceInterval",
    "OtherReading",
    "QuantileResult",
    "Results",
    "Row",
    "ValueTest",
    "compare",
    "summarize",
]
