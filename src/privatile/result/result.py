"""QuantileResult: what was estimated, the estimate, its interval, what it cost, and its caveats.

One list of rows feeds the text, the HTML and the JSON.
"""

import html
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from privatile.core.scale import Scale, units_inside, working_range
from privatile.errors import InputError
from privatile.inference.inference import Inference
from privatile.result.client_facts import ClientFacts


class ConfidenceInterval(NamedTuple):
    """Both ends, in units of the data."""

    low: float
    high: float


class ValueTest(NamedTuple):
    """A two-sided test of "the quantile is `value`"; rejects at α iff the value lies outside the (1 − α) interval."""

    value: float
    statistic: float
    p_value: float


class Caveat(NamedTuple):
    """A limit of this result, in words; the code is stable for programs."""

    code: str
    text: str


class Row(NamedTuple):
    """One fact: a key for programs, a label for people, the value and how it is shown."""

    key: str
    label: str
    value: Any
    text: str


@dataclass(frozen=True)
class QuantileResult:
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
    """The confidence sequence at this look: valid however often the run is looked at; none without a slope."""
    explanation: tuple[str, ...] = ()
    """Why the run asked what it asked, in sentences."""
    reporter: Callable[[str | Path], Path] | None = field(default=None, repr=False, compare=False)
    """Makes a report of the run behind this result; set by whatever ran it."""

    def report(self, path: str | Path = "report.html") -> Path:
        """Write a page about the run (.html: one file, no network needed) or a figure of it (.svg, .pdf, .png)."""
        if self.reporter is None:
            raise InputError(
                "this result does not know its rounds, so there is nothing to draw. Estimate with save=... "
                "(--save run.db) and make the page from that file: privatile report run.db."
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

    @property
    def interval_so_far(self) -> ConfidenceInterval | None:
        """The anytime interval of a run that is unfinished: the one to read first. None where the run has ended."""
        return self.anytime if any(caveat.code == "unfinished" for caveat in self.caveats) else None

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        low, high = self.confidence_interval
        percent = f"{100 * self.confidence_level:g}%"
        shown, first, last = (self.shown(value, high - low) for value in (self.estimate, low, high))
        known = {caveat.code for caveat in self.caveats}
        if "unbounded" in known and "range" in known:
            return (
                f"{self.estimand} probably lies outside the stated range, {first} to {last}: the answers point to its "
                f"end, {shown}, so the {percent} interval, which is the whole range, is not to be relied on."
            )
        if "unbounded" in known:
            return (
                f"{self.estimand} is not located by these answers: at {percent} it may lie anywhere in the stated "
                f"range, {first} to {last}."
            )
        if "range" in known:
            return (
                f"{self.estimand} probably lies outside the stated range: the answers point to its end, {shown}, so "
                f"the {percent} interval, {first} to {last}, is not to be relied on."
            )
        if "not-located" in known:
            return (
                f"{self.estimand} was not located: the search had not settled when it ended, near {shown}, so the "
                f"{percent} interval, {first} to {last}, is not to be relied on."
            )
        if self.interval_so_far is not None:
            low, high = self.interval_so_far
            shown, first, last = (self.shown(value, high - low) for value in (self.estimate, low, high))
            return (
                f"{self.estimand} is estimated at {shown} so far; the {percent} interval valid at any time runs "
                f"from {first} to {last}."
            )
        if "unfinished" in known:
            return f"{self.estimand} is estimated at {shown} so far; no interval is valid before the planned end yet."
        return f"{self.estimand} is estimated at {shown}; the {percent} interval runs from {first} to {last}."

    def shown(self, value: float, width: float) -> str:
        """A value with the digits that an interval of this width deserves; on a log scale never as 0."""
        text = significant(value, width)
        return (
            f"{float(f'{value:.2g}'):,.10g}" if self.scale.name == "log" and not float(text.replace(",", "")) else text
        )

    def rows(self) -> list[Row]:
        """Every scalar fact, the most important first."""
        low, high = self.confidence_interval
        width = high - low
        percent = f"{100 * self.confidence_level:g}%"
        return [
            Row("estimand", "what", self.estimand, self.estimand),
            Row("estimate", "estimate", self.estimate, self.shown(self.estimate, width)),
            Row(
                "confidence_interval",
                f"{percent} interval",
                {"low": low, "high": high},
                f"{self.shown(low, width)} … {self.shown(high, width)}",
            ),
            Row("confidence_level", "confidence level", self.confidence_level, percent),
            Row("method", "interval method", self.method, self.method),
            Row("target", "target", self.target, TARGETS[self.target]),
            Row("records", "records asked", self.records, f"{self.records:,}, each once in this run"),
            Row("rounds", "rounds", self.rounds, self._rounds_text()),
            Row("averaged_rounds", "averaged rounds", self.averaged_rounds, f"{self.averaged_rounds:,}"),
            Row("design", "design", self.design, f"{self.design}, {self.mode} mode"),
            Row("mode", "mode", self.mode, self.mode),
            *self._anytime_rows(),
            *self.diagnostics,
            Row("level", "level", self.level, f"{self.level:g}"),
            Row("epsilon", "largest ε, this run", finite(self.epsilon), epsilon_text(self.epsilon)),
            Row("run", "run", self.run, self.run),
            Row("simulated", "simulated", self.simulated, "yes: seeded, on made-up data" if self.simulated else "no"),
        ]

    def _rounds_text(self) -> str:
        """How many, and what the first ones were for; only the self-normalised estimate is an average of the others."""
        first = self.rounds - self.averaged_rounds
        text = f"{self.rounds:,}" + (f", the first {first:,} of them to find the place" if first else "")
        if self.method.startswith("self-normalized"):
            text += f"; the last {self.averaged_rounds:,} are averaged" if first else ", all of them averaged"
        return text

    def _anytime_rows(self) -> list[Row]:
        if self.anytime is None:
            return []
        low, high = self.anytime
        text = f"{self.shown(low, high - low)} … {self.shown(high, high - low)}, however often it is looked at"
        return [Row("anytime_interval", "anytime interval", {"low": low, "high": high}, text)]

    def shown_rows(self) -> list[Row]:
        """The rows that text and HTML show; the rest repeats them for programs."""
        hidden = {"confidence_level", "averaged_rounds", "mode", "level"} | (set() if self.simulated else {"simulated"})
        return [row for row in self.rows() if row.key not in hidden]

    def client_rows(self) -> list[list[Row]]:
        """One list of rows per client."""
        return [
            [
                Row("name", "client", client.name, client.name),
                Row("records", "records", client.records, f"{client.records:,}"),
                Row("asked", "asked", client.asked, f"{client.asked:,}"),
                Row("epsilon", "ε spent", finite(client.epsilon), epsilon_text(client.epsilon)),
                Row("truth_rate", "truth rate", client.truth_rate, f"{client.truth_rate:.4f}"),
                Row("weight", "weight", client.weight, f"{client.weight:.4f}"),
                Row("level", "level", client.level, f"{client.level:g}"),
                Row("local_rank", "its share below", finite(client.local_rank), f"{client.local_rank:.3f}"),
                Row(
                    "local_rank_interval",
                    "interval",
                    {"low": finite(client.local_rank_interval[0]), "high": finite(client.local_rank_interval[1])},
                    "{:.3f} … {:.3f}".format(*client.local_rank_interval),
                ),
                Row("lying_rank", "if it lied", finite(client.lying_rank), rank_text(client.lying_rank)),
            ]
            for client in self.clients
        ]

    def to_dict(self) -> dict[str, Any]:
        """All facts as plain values."""
        facts: dict[str, Any] = {row.key: row.value for row in self.rows()}
        facts["clients"] = [{row.key: row.value for row in rows} for rows in self.client_rows()]
        facts["caveats"] = [caveat._asdict() for caveat in self.caveats]
        facts["explanation"] = list(self.explanation)
        return facts

    def to_json(self) -> str:
        """The same as one JSON object."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    def to_text(self) -> str:
        """A table for a terminal or a log."""
        shown = self.shown_rows()
        gap = max(len(row.label) for row in shown)
        lines = [f"{row.label:>{gap}}  {row.text}" for row in shown]
        table = [
            [row.label for row in self.client_rows()[0]],
            *([row.text for row in rows] for rows in self.client_rows()),
        ]
        widths = [max(len(cells[i]) for cells in table) for i in range(len(table[0]))]
        lines.append("")
        for cells in table:
            first = f"{cells[0]:<{widths[0]}}"
            rest = (f"{cell:>{width}}" for cell, width in zip(cells[1:], widths[1:], strict=True))
            lines.append("  ".join([first, *rest]).rstrip())
        lines += ["", self.sentence]
        if self.caveats:
            lines += ["", "Beware:", *(f"- {caveat.text}" for caveat in self.caveats)]
        return "\n".join(lines)

    def to_html(self) -> str:
        """Two tables and the caveats; every text is escaped."""
        facts = "".join(
            f"<tr><th scope='row'>{html.escape(row.label)}</th><td>{html.escape(row.text)}</td></tr>"
            for row in self.shown_rows()
        )
        heads = "".join(f"<th scope='col'>{html.escape(row.label)}</th>" for row in self.client_rows()[0])
        clients = "".join(
            "<tr>" + "".join(f"<td>{html.escape(row.text)}</td>" for row in rows) + "</tr>"
            for rows in self.client_rows()
        )
        beware = "".join(f"<li>{html.escape(caveat.text)}</li>" for caveat in self.caveats)
        return (
            f"<p>{html.escape(self.sentence)}</p><table>{facts}</table>"
            f"<table><thead><tr>{heads}</tr></thead><tbody>{clients}</tbody></table>"
            + (f"<ul>{beware}</ul>" if beware else "")
        )

    def _repr_html_(self) -> str:
        return self.to_html()

    def __str__(self) -> str:
        return self.to_text()


TARGETS = {
    "population": "the population the records are a sample of",
    "file": "the file's own records, and no one else",
}


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


def significant(value: float, width: float) -> str:
    """A number with as many digits as its interval deserves: two of the width.

    >>> significant(49512.3456, 812.0), significant(0.123456, 0.02), significant(3.0, 0.0)
    ('49,510', '0.123', '3')
    """
    if not math.isfinite(value):
        return str(value)
    if not (math.isfinite(width) and width > 0):
        return f"{value:,.6g}"
    digits = 1 - math.floor(math.log10(width))
    rounded = round(value, digits)
    return f"{rounded:,.{max(digits, 0)}f}"


def finite(value: float) -> float | None:
    """JSON has no infinity: nothing stands for it."""
    return value if math.isfinite(value) else None


def epsilon_text(value: float) -> str:
    """ε for people."""
    return f"{value:.4g}" if math.isfinite(value) else "∞ (not private)"


def rank_text(value: float) -> str:
    """A shift in rank for people."""
    return f"±{value:.3f} in rank" if math.isfinite(value) else "no bound"
