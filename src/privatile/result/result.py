"""QuantileResult: what was estimated, the estimate, its interval, what it cost, its caveats; and several levels.

QuantileResult: what was estimated, the estimate, its interval, what it cost, and its caveats.

One list of rows feeds the text, the HTML and the JSON.

The results of one run with several levels, together.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from privatile.core.scale import Scale, units_inside, working_range
from privatile.core.text import CLIENTS, PartWords
from privatile.errors import InputError
from privatile.inference.inference import Inference
from privatile.result.caveats import Caveat
from privatile.result.document import AsDocument, Library, frame, results_document
from privatile.result.shown import (
    ClientFacts,
    Condition,
    Row,
    Shown,
    client_rows_of,
    rows_of,
    shown_of,
    shown_rows_of,
)
from privatile.result.tables import as_html, as_text, levels_table

if TYPE_CHECKING:
    from pandas import DataFrame


class ConfidenceInterval(NamedTuple):
    """Both ends, in units of the data."""

    low: float
    high: float


class OtherReading(NamedTuple):
    """The second interval of the same answers: what it holds under, and how to get it as the first."""

    interval: ConfidenceInterval
    method: str
    condition: Condition
    """When it holds: a key of `CONDITIONS`."""
    how: str
    """In words, how to have it reported first."""
    at_every_look: bool = False
    """Whether it is valid however often it is looked at: beside the interval of a run that stops by its width."""
    at_planned_end: bool = False
    """Whether, of a run that is unfinished, it will hold at the planned end only."""


class ValueTest(NamedTuple):
    """A two-sided test of "the quantile is `value`"; rejects at α iff the value lies outside the (1 − α) interval."""

    value: float
    statistic: float
    p_value: float


@dataclass(frozen=True)
class QuantileResult(AsDocument):
    """A quantile with its confidence interval under local differential privacy."""

    estimand: str
    level: float
    estimate: float
    confidence_interval: ConfidenceInterval
    confidence_level: float
    method: str
    target: str
    rounds: int
    averaged_rounds: int
    records: int
    design: str
    mode: str
    clients: tuple[ClientFacts, ...]
    caveats: tuple[Caveat, ...]
    run: str
    simulated: bool
    inference: Inference = field(repr=False, compare=False)
    scale: Scale = field(repr=False)
    diagnostics: tuple[Row, ...] = ()
    """What the design chose and what the run shows about itself."""
    anytime: ConfidenceInterval | None = None
    """The interval at this look that is valid however often the run is looked at; none without a slope."""
    anytime_condition: Condition | None = None
    """When that interval holds, as `condition` says it of `confidence_interval`; none without one."""
    valid_at_every_look: bool = False
    """Whether `confidence_interval` itself is that interval; otherwise it holds at the planned end only."""
    condition: Condition = "smooth"
    """When the interval holds: a key of `CONDITIONS`."""
    other: OtherReading | None = None
    """The other reading of the same answers; none where there is none, or the answers contradict it."""
    contradiction: str = ""
    """In words, what in the answers contradicts a smooth distribution or the declared grid; else empty."""
    value_kind: str = "any"
    """What was declared about the values."""
    grid_values: tuple[float, ...] | None = None
    """Where a grid was declared: the values of it that the interval leaves; none where they are too many."""
    explanation: tuple[str, ...] = ()
    """Why the run asked what it asked, in sentences."""
    classes: tuple[ClientFacts, ...] = ()
    """Of weighted records, the facts of every weight class; `clients` are those whose records they are."""
    simultaneous: bool = False
    """Whether the confidence is that of all levels of the run at once."""
    missing: str = "noise"
    """What became of missing values: "noise", "drop" or "fail"."""
    parts: PartWords = CLIENTS
    """What `clients` are called in words."""
    column: str = ""
    """What the numbers are: the name of their column, or what a study calls them."""
    date: str | None = field(default=None, compare=False)
    """When the run began (UTC, ISO 8601); none for a run without a file."""
    reporter: Callable[[str | Path], Path] | None = field(default=None, repr=False, compare=False)
    """Makes a report of the run behind this result; set by whatever ran it."""

    def report(self, path: str | Path = "report.html") -> Path:
        """Write a page about the run (.html: one file, no network needed) or a figure of it (.svg, .pdf, .png)."""
        if self.reporter is None:
            raise InputError(
                "this result does not know its rounds, so there is nothing to draw. Estimate with "
                "save='run.db' and make the page from that file: privatile report run.db."
            )
        return self.reporter(path)

    def interval(self, confidence_level: float) -> ConfidenceInterval:
        """The interval at another confidence level."""
        return interval_in_units(self.inference, self.scale, confidence_level)

    def test(self, value: float) -> ValueTest:
        """Two-sided test of "the quantile is `value`" (in units), by inverting the displayed interval."""
        low, high = self.scale.low, self.scale.high
        if not low <= value <= high:
            # Outside the stated range the working scale may not exist; no value there is possible.
            return ValueTest(value, math.copysign(math.inf, self.estimate - value), 0.0)
        statistic, p_value = self.inference.test(self.scale.to_working(value))
        return ValueTest(value, statistic, p_value)

    @property
    def epsilon(self) -> float:
        """The largest budget any record spent in this run."""
        return max(client.epsilon for client in self.clients)

    @cached_property
    def shown(self) -> Shown:
        """Every number and condition of it that a reader sees."""
        return shown_of(self)

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        return self.shown.sentence

    @property
    def reliable(self) -> bool:
        """Whether the answers located the quantile and nothing says that the interval may not hold.

        The rule: no caveat is of severity "unreliable" (`result.caveats`). It does not say that the interval is
        narrow.
        """
        return all(caveat.severity != "unreliable" for caveat in self.caveats)

    @property
    def located(self) -> bool:
        """Whether the answers place the quantile somewhere inside the stated range."""
        return not any(caveat.kind.loses for caveat in self.caveats)

    @property
    def headline(self) -> str:
        """What stands first on a page: the estimate, or in a few words why there is none."""
        return self.shown.headline

    def rows(self) -> list[Row]:
        """Every scalar fact, the most important first."""
        return rows_of(self)

    def shown_rows(self) -> list[Row]:
        """The rows that text and HTML show; the rest repeats them for programs."""
        return shown_rows_of(self)

    def client_rows(self, clients: tuple[ClientFacts, ...] | None = None) -> list[list[Row]]:
        """One list of rows per client, or per one of `clients`, such as `classes`."""
        return client_rows_of(self.clients if clients is None else clients, self.parts, located=self.located)

    def facts(self) -> dict[str, Any]:
        """All facts as plain values: one entry of the document's `results`."""
        facts: dict[str, Any] = {"anytime_interval": None} | {row.key: row.value for row in self.rows()}
        facts |= {
            "column": self.column,
            "range": {"low": self.scale.low, "high": self.scale.high},
            "scale": self.scale.name,
            "simultaneous": self.simultaneous,
            "date": self.date,
            "reliable": self.reliable,
            "sentence": self.sentence,
        }
        facts["caveats"] = [caveat.facts() for caveat in self.caveats]
        facts["clients"] = [{row.key: row.value for row in rows} for rows in self.client_rows()]
        if self.classes:
            facts["classes"] = [{row.key: row.value for row in rows} for rows in self.client_rows(self.classes)]
        facts["explanation"] = list(self.explanation)
        return facts

    def to_dict(self) -> dict[str, Any]:
        """The document that `--json` prints, as plain values; this result is the one entry of its `results`."""
        return results_document([self.facts()])

    def to_frame(self, library: Library = "pandas") -> Any:
        """A table of one row: a pandas frame, or what `library` ("polars", "pyarrow") has."""
        return frame([self.facts()], library)

    def to_text(self, *, explain: bool = False) -> str:
        """A table for a terminal or a log; `explain` adds why the run asked what it asked."""
        return as_text(self, explain=explain)

    def to_html(self) -> str:
        """The same for a notebook; every text is escaped."""
        return as_html(self)

    def _repr_html_(self) -> str:
        return self.to_html()


def interval_in_units(inference: Inference, scale: Scale, confidence_level: float) -> ConfidenceInterval:
    """The interval mapped back to units, cut at the range: the estimand is known to lie there."""
    low, high = inference.interval(confidence_level)
    return ConfidenceInterval(in_units(scale, low), in_units(scale, high))


def in_units(scale: Scale, value: float) -> float:
    """A working value in units, cut at the range: at or beyond an end it is that end itself, without rounding.

    >>> from privatile.core.scale import Log
    >>> in_units(Log(60.0, 100.0), math.log(60.0)), math.exp(math.log(60.0)) == 60.0
    (60.0, False)
    """
    low, high = working_range(scale)
    if value <= low or value >= high:
        return scale.low if value <= low else scale.high
    return units_inside(scale, value)


class Results(tuple[QuantileResult, ...], AsDocument):
    """A tuple of results that is printed, kept and tabulated as one.

    >>> Results().reliable
    True
    """

    __slots__ = ()

    @property
    def reliable(self) -> bool:
        """Whether all of them are."""
        return all(result.reliable for result in self)

    def to_dict(self) -> dict[str, Any]:
        """The document that `--json` prints, as plain values: `docs/result.schema.json`."""
        return results_document([result.facts() for result in self])

    def to_text(self, *, explain: bool = False) -> str:
        """All levels at a glance where there are several, then the text of each."""
        glance = ["\n".join(levels_table(self))] if len(self) > 1 else []
        return "\n\n".join([*glance, *(result.to_text(explain=explain) for result in self)])

    def to_frame(self, library: Library = "pandas") -> "DataFrame | Any":
        """A table with a row per result: a pandas frame, or what `library` ("polars", "pyarrow") has."""
        return frame([result.facts() for result in self], library)

    def report(self, path: str | Path = "report.html") -> Path:
        """Write one page about the run, or a figure of it, as `QuantileResult.report` does."""
        return self[0].report(path)

    if not TYPE_CHECKING:  # a type checker finds a wrong name by itself

        def __getattr__(self, name: str) -> Any:
            """Of what one result has and several have not: how to get it."""
            if name in QuantileResult.__dataclass_fields__ or hasattr(QuantileResult, name):
                raise AttributeError(
                    f"there are {len(self)} results, one per level: take one of them, results[0].{name}, or all of "
                    "them with to_frame()."
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
