"""Documents with one field changed or missing, for readers that must refuse them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

Path = tuple[str | int, ...]
"""The keys and indices that lead to a field."""

DROPPED = object()


def with_value(text: str, path: Path, value: Any) -> str:
    """The JSON text, keys sorted and no blanks, with another value at `path`, or without that field."""
    fields = holder = json.loads(text)
    for key in path[:-1]:
        holder = holder[key]
    if value is DROPPED:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """The path to every field, however deep."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


class _Twice(dict[str, Any]):
    """An object that is written with its first key twice, both times with the same value."""

    def items(self) -> Any:
        pairs = list(super().items())
        return [*pairs[:1], *pairs]


def with_a_key_twice(text: str) -> Iterator[str]:
    """The JSON text with a key twice in one of its objects; for every object, however deep."""
    for path in ((), *places(json.loads(text))):
        fields: Any = {"": json.loads(text)}
        holder = fields
        for key in ("", *path)[:-1]:
            holder = holder[key]
        last = ("", *path)[-1]
        if isinstance(holder[last], dict) and holder[last]:
            holder[last] = _Twice(holder[last])
            yield json.dumps(fields[""], sort_keys=True, separators=(",", ":"))
