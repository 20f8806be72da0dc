"""From an interval to words: the result of a run, its caveats and diagnostics, and the comparison of two results.

`summary.summarize` makes a `QuantileResult` from a run's state; text, HTML and JSON are made from its one list of rows.
"""

from privatile.result.caveats import CAVEATS, Caveat, caveat
from privatile.result.compare import Comparison, compare
from privatile.result.result import ConfidenceInterval, OtherReading, QuantileResult, Results, ValueTest
from privatile.result.shown import ClientFacts, Row
from privatile.result.summary import summarize

__all__ = [
    "CAVEATS",
    "Caveat",
    "ClientFacts",
    "Comparison",
    "ConfidenceInterval",
    "OtherReading",
    "QuantileResult",
    "Results",
    "Row",
    "ValueTest",
    "caveat",
    "compare",
    "summarize",
]
