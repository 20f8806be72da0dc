"""HTML that is escaped unless it was built here: a name or a title can never become a tag."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from typing import Any

VOID = {"br", "hr", "input", "meta", "line", "rect", "circle", "path", "polyline", "polygon"}


class Markup(str):
    """Text that is HTML already. Only `tag`, `join` and this file's callers with constant texts make it."""

    __slots__ = ()


Child = Markup | str | int | float | None


def text(child: Child) -> Markup:
    """Markup as it is; anything else escaped.

    >>> text("<script>")
    '&lt;script&gt;'
    """
    if child is None:
        return Markup("")
    return child if isinstance(child, Markup) else Markup(html.escape(str(child)))


def tag(name: str, /, *children: Child | Iterable[Child], **attributes: object) -> Markup:
    """One element. In attribute names a trailing underscore is dropped, others become hyphens; None is left out.

    >>> tag("p", "a < b", class_="note", data_k=1)
    '<p class="note" data-k="1">a &lt; b</p>'
    """
    shown = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{html.escape(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in VOID and not children:
        return Markup(f"<{name}{shown}/>")
    return Markup(f"<{name}{shown}>{join(children)}</{name}>")


def join(children: Iterable[Child | Iterable[Child]], between: str = "") -> Markup:
    """Several children, flattened."""
    parts: list[Markup] = []
    for child in children:
        if child is None or isinstance(child, str | int | float):
            parts.append(text(child))
        else:
            parts.append(join(child))
    return Markup(between.join(parts))


def json_text(value: Any) -> Markup:
    """JSON that is safe inside a script element: no `<`, `>` or `&` survives, and it is still JSON.

    >>> json_text({"name": "</script><!--"})
    '{"name":"\\\\u003c/script\\\\u003e\\\\u003c!--"}'
    """
    plain = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        plain = plain.replace(character, f"\\u{ord(character):04x}")
    return Markup(plain)
