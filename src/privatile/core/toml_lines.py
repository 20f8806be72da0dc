"""Where in a TOML text a value stands, so that an error can name its line."""

import re
from collections.abc import Mapping

Place = tuple[str | int, ...]
"""The keys and indices that lead to a value."""

# Each repeat can match in one way only: a line that does not fit is refused in one pass, however long it is.
_HEADER = re.compile(r"^\s*+(\[\[?)([^\[\]]++)\]\]?\s*+(#.*)?$")
_KEY = re.compile(r"""^\s*((?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+))*)\s*=""")
_NAME = re.compile(r""""([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+)""")
_QUOTED_OR_COMMENT = re.compile(r""""(?:\\.|[^"\\])*"|'[^']*'|#.*$""")


def line_numbers(text: str) -> dict[Place, int]:
    """The line of every table and key written on a line of its own.

    >>> line_numbers('seed = 1\\n[[grid]]\\nlevel = [\\n  0.5,\\n]\\n[[grid]]\\nlevel = 1')[("grid", 1, "level")]
    7
    """
    lines: dict[Place, int] = {}
    table: Place = ()
    counts: dict[Place, int] = {}
    depth = 0
    for number, line in enumerate(text.splitlines(), start=1):
        if depth == 0 and (header := _HEADER.match(line)):
            table = _names(header.group(2))
            if header.group(1) == "[[":
                counts[table] = counts.get(table, -1) + 1
                lines.setdefault(table, number)
                table = (*table, counts[table])
            lines[table] = number
            continue
        if depth == 0 and (key := _KEY.match(line)):
            lines[table + _names(key.group(1))] = number
        bare = _QUOTED_OR_COMMENT.sub("", line)
        depth += sum(bare.count(mark) for mark in "[{") - sum(bare.count(mark) for mark in "]}")
    return lines


def _names(dotted: str) -> Place:
    return tuple(next(part for part in match.groups() if part is not None) for match in _NAME.finditer(dotted))


def nearest_line(lines: Mapping[Place, int], path: Place) -> int:
    """The line of a value, or of the closest thing around it that has one; 0 where nothing has."""
    for end in range(len(path), 0, -1):
        if path[:end] in lines:
            return lines[path[:end]]
    return 0
