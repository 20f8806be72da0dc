"""A result as text for a terminal and as HTML: the sentence, what to act on, the facts, the clients, the rest."""

import html
import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from privatile.core.text import printable

if TYPE_CHECKING:
    from privatile.result.result import QuantileResult


WIDTH = 80
"""Columns of a terminal: no table is wider. Sentences and caveats are one line each; the terminal folds them."""

MAX_NAME = 24
"""Letters of a client's name that a table shows."""

MIN_NAME = 8
"""Letters of a name that a table shows at least."""

MIN_MARKS = 12
"""Columns of a terminal that a drawing of the intervals needs; with less room there is none."""

CLIENT_COLUMNS = (
    "name", "asked", "epsilon", "weight", "local_rank", "local_rank_interval", "lying_rank", "level", "records",
    "truth_rate",
)  # fmt: skip
"""Columns of the table of clients, the most important first: as many as fit are shown."""

FIRST, REST = "Before you use it:", "Also:"
"""What stands above the caveats that a reader must act on, and above the others."""


class Line(NamedTuple):
    """One row of a table of many results, or of differences: texts for people, numbers for drawings."""

    name: str
    asked: int | None
    """Of a result, the records that were asked."""
    estimate: str
    """Empty where there is none that may be relied on."""
    interval: str
    """Empty where nobody was asked."""
    place: float
    ends: tuple[float, float]
    """NaN for `place`, and the stated range, where the answers say nothing."""
    why: str = ""
    p_value: str = ""
    """Of a difference."""

    @property
    def is_located(self) -> bool:
        """Whether there is an estimate to draw."""
        return not math.isnan(self.place)

    @property
    def cells(self) -> tuple[str, ...]:
        """Its row of a table."""
        asked = () if self.asked is None else (f"{self.asked:,}",)
        return self.name, *asked, self.estimate or "–", self.interval or "–", *([self.p_value] if self.p_value else [])


class Table(NamedTuple):
    """Many results, or differences, as a terminal, a page and a figure show them."""

    title: str
    heads: tuple[str, ...]
    lines: list[Line]
    ends: tuple[float, float]
    """What a drawing of the intervals shows."""
    axis: str
    """What the numbers are."""
    rule: float | None = None
    """A place to compare with, such as no difference."""


def drawn_range(lines: Sequence[Line], stated: tuple[float, float]) -> tuple[float, float]:
    """What a drawing shows: all estimates, and all ends that the answers gave; an open end goes to the border."""
    values = [line.place for line in lines if line.is_located]
    values += [end for line in lines if line.is_located for end in line.ends if stated[0] < end < stated[1]]
    if not values:
        return stated
    low, high = min(values), max(values)
    room = 0.03 * (high - low) or 0.01 * abs(high) or 1.0
    return low - room, high + room


def drawn_columns(table: Table) -> list[str]:
    """A table for a terminal: long names are cut, and each interval is a whisker with its estimate as a dot.

    With too little room there are no whiskers.
    """
    rows = [table.heads, *(line.cells for line in table.lines)]
    most = max(MIN_NAME, width_left(rows))
    found = fixed_columns([(cut_name(name, most), *rest) for name, *rest in rows])
    widest, (low, high) = max(map(len, found)), table.ends
    room = WIDTH - widest - 2

    def at(value: float) -> int:
        return round((min(max(value, low), high) - low) / (high - low) * (room - 1))

    for place, line in enumerate(table.lines, 1):
        if line.is_located and room >= MIN_MARKS:
            first, last = map(at, line.ends)
            marks = [" "] * first + ["-"] * (last - first + 1)
            marks[at(line.place)] = "o"
            found[place] = f"{found[place]:<{widest}}  {''.join(marks)}"
    return found


def width_left(rows: Sequence[Sequence[str]]) -> int:
    """Columns of a terminal that are left for the names, which stand first in every row."""
    return WIDTH - sum(max(len(row[place]) for row in rows) + 2 for place in range(1, len(rows[0])))


def cut_name(name: str, most: int) -> str:
    """A name, cut where it has more letters than `most`."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def as_text(result: "QuantileResult", *, explain: bool = False) -> str:
    """A table for a terminal or a log."""
    shown, first, rest = result.shown_rows(), result.shown.act, result.shown.rest
    gap = max(len(row.label) for row in shown)
    lines = [result.sentence, ""]
    if first:
        lines += [FIRST, *(f"- {caveat.text}" for caveat in first), ""]
    for row in shown:
        head, *others = folded(row.text, WIDTH - gap - 2)
        lines += [f"{row.label:>{gap}}  {head}", *(f"{'':{gap}}  {line}" for line in others)]
    lines += ["", *client_table(result)]
    if rest:
        lines += ["", REST, *(f"- {caveat.text}" for caveat in rest)]
    if explain:
        why = result.explanation or ("This design follows fixed tables: nothing was chosen along the way.",)
        lines += ["", "Why it asked what it asked:", *(f"- {line}" for line in why)]
    return "\n".join(map(printable, lines))


def levels_table(results: "Sequence[QuantileResult]") -> list[str]:
    """Several levels at a glance: what stands first of each, and its interval."""
    how = ", all at once" if results[0].simultaneous else ""
    rows = [(f"{one.level:g}", one.headline, one.shown.first.text) for one in results]
    return fixed_columns([("level", "estimate", f"{results[0].shown.percent} interval{how}"), *rows])


def folded(text: str, width: int) -> list[str]:
    """A text in lines of at most `width` letters, longer words left whole; an empty one is one empty line."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def client_table(result: "QuantileResult") -> list[str]:
    """The lines of the table of clients: as many of its columns as fit into `WIDTH`."""
    rows = [{row.key: row for row in rows} for rows in result.client_rows()]
    columns, used = [], -2
    for key in CLIENT_COLUMNS:
        texts = (cut_name(row[key].text, MAX_NAME) if key == "name" else row[key].text for row in rows)
        cells = [rows[0][key].label, *texts]
        wide = max(map(len, cells)) + 2
        if used + wide > WIDTH:
            break
        columns.append(cells)
        used += wide
    return fixed_columns(list(zip(*columns, strict=True)))


def fixed_columns(table: Sequence[Sequence[str]]) -> list[str]:
    """A table in columns of their own width: the first is flush left, the others flush right.

    >>> fixed_columns([("client", "asked"), ("a", "1,000")])
    ['client  asked', 'a       1,000']
    """
    widths = [max(len(cells[i]) for cells in table) for i in range(len(table[0]))]
    lines = []
    for cells in table:
        others = (f"{cell:>{width}}" for cell, width in zip(cells[1:], widths[1:], strict=True))
        lines.append("  ".join([f"{cells[0]:<{widths[0]}}", *others]).rstrip())
    return lines


def html_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose rows begin with a name; every text is escaped."""
    top = "".join(f"<th scope='col'>{html.escape(head)}</th>" for head in heads)
    lines = (
        f"<th scope='row'>{html.escape(name)}</th>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
        for name, *cells in rows
    )
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table>{f'<thead><tr>{top}</tr></thead>' if heads else ''}<tbody>{body}</tbody></table>"


def as_html(result: "QuantileResult") -> str:
    """The sentence, two tables and the caveats; every text is escaped."""
    clients = result.client_rows()
    parts = [f"<p>{html.escape(result.sentence)}</p>"]
    tables = html_table((), [(row.label, row.text) for row in result.shown_rows()])
    tables += html_table([row.label for row in clients[0]], [[row.text for row in rows] for rows in clients])
    for head, found, after in ((FIRST, result.shown.act, tables), (REST, result.shown.rest, "")):
        listed = "".join(f"<li>{html.escape(one.text)}</li>" for one in found)
        parts += [f"<p>{head}</p><ul>{listed}</ul>" if found else "", after]
    return "".join(parts)
