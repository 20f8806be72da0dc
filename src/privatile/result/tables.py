"""A result as text for a terminal and as HTML: the sentence, what to act on, the facts, the clients, the rest."""

import html
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from privatile.core.text import printable

if TYPE_CHECKING:
    from privatile.result.result import QuantileResult
    from privatile.result.shown import Row


WIDTH = 80
"""Columns of a terminal: no table is wider. Sentences and caveats are one line each; the terminal folds them."""

LONGEST_NAME = 24
"""Letters of a client's name that a table shows."""

CLIENT_COLUMNS = (
    "name", "asked", "epsilon", "weight", "local_rank", "local_rank_interval", "lying_rank", "level", "records",
    "truth_rate",
)  # fmt: skip
"""Columns of the table of clients, the most important first: as many as fit are shown."""

FIRST, REST = "Before you use it:", "Also:"
"""What stands above the caveats that a reader must act on, and above the others."""


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
        cells = [rows[0][key].label, *(_cell(row[key]) for row in rows)]
        wide = max(map(len, cells)) + 2
        if used + wide > WIDTH:
            break
        columns.append(cells)
        used += wide
    return fixed_columns(list(zip(*columns, strict=True)))


def _cell(row: "Row") -> str:
    name = row.key == "name" and len(row.text) > LONGEST_NAME
    return f"{row.text[: LONGEST_NAME - 1]}…" if name else row.text


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


def as_html(result: "QuantileResult") -> str:
    """The sentence, two tables and the caveats; every text is escaped."""
    facts = "".join(
        f"<tr><th scope='row'>{html.escape(row.label)}</th><td>{html.escape(row.text)}</td></tr>"
        for row in result.shown_rows()
    )
    heads = "".join(f"<th scope='col'>{html.escape(row.label)}</th>" for row in result.client_rows()[0])
    clients = "".join(
        "<tr>" + "".join(f"<td>{html.escape(row.text)}</td>" for row in rows) + "</tr>" for rows in result.client_rows()
    )
    first, rest = (
        "".join(f"<li>{html.escape(caveat.text)}</li>" for caveat in found)
        for found in (result.shown.act, result.shown.rest)
    )
    return (
        f"<p>{html.escape(result.sentence)}</p>"
        + (f"<p>{FIRST}</p><ul>{first}</ul>" if first else "")
        + f"<table>{facts}</table><table><thead><tr>{heads}</tr></thead><tbody>{clients}</tbody></table>"
        + (f"<p>{REST}</p><ul>{rest}</ul>" if rest else "")
    )
