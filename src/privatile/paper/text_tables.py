"""Tables as text: Markdown, and LaTeX with booktabs."""

from collections.abc import Iterable, Sequence
from typing import Any


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table.

    >>> print(*markdown_table(["τ", "", "C1"], [["0.5", "ours", "0.95"], ["", "published", "0.94"]]), sep=chr(10))
    | τ | | C1 |
    |---|---|---|
    | 0.5 | ours | 0.95 |
    | | published | 0.94 |
    """
    lines = ["|" + "".join(f" {cell} |" if cell else " |" for cell in row) for row in (header, *rows)]
    return [lines[0], "|" + "---|" * len(header), *lines[1:]]


def latex_table(caption: str, columns: str, header: Sequence[str], *groups: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a LaTeX table, a rule above each group of rows."""
    lines = [
        r"\begin{table}[htbp]\centering\small",
        rf"\caption{{{caption}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        rf"{' & '.join(header)} \\",
    ]
    for rows in groups:
        lines += [r"\midrule", *(rf"{' & '.join(row)} \\" for row in rows)]
    return [*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""]


def rows_texts(title: str, rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Flat rows as Markdown and LaTeX, by the suffix of their files."""
    header = [name.replace("_", " ") for name in rows[0]]
    cells = [[f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()] for row in rows]
    return {
        ".md": "\n".join([f"### {title}", "", *markdown_table(header, cells), ""]),
        ".tex": "\n".join(latex_table(title, "r" * len(header), header, cells)),
    }
