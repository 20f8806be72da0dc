"""The document around a page's sections: one file, no request to anyone, nothing that is not named by its hash runs."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any

from privatile import __version__
from privatile.report.markup import Markup, json_text, tag

CITATION = (
    "Leheng Cai, Qirui Hu and Shuyuan Wu. Federated Learning of Quantile Inference under Local Differential Privacy. "
    "arXiv:2509.21800."
)


@cache
def static(name: str) -> str:
    """A file of the `static` folder."""
    return (resources.files("privatile.report") / "static" / name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def document(title: str, sections: Iterable[Markup], facts: Mapping[str, Any], scripts: Iterable[str]) -> str:
    """A whole page. Scripts run only if their hash stands in the page's policy; connections are refused altogether."""
    style = static("theme.css") + static("uplot/uPlot.min.css")
    code = [static(name) for name in scripts]
    policy = "; ".join(
        [
            "default-src 'none'",
            "img-src data:",
            "style-src 'unsafe-inline'",
            "script-src " + (" ".join(f"'sha256-{_hash(text)}'" for text in code) or "'none'"),
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{policy}"/>'),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        Markup(f'<meta name="generator" content="privatile {__version__}"/>'),
        tag("title", title),
        tag("style", Markup(style)),
        Markup(
            "<noscript><style>.plot, .tools, .readout { display: none } .still { display: block }</style></noscript>"
        ),
    )
    body = tag(
        "body",
        tag("a", "Skip to the content", class_="skip", href="#content"),
        tag("main", *sections, id="content"),
        Markup(f'<script type="application/json" id="facts">{json_text(facts)}</script>'),
        *(tag("script", Markup(text)) for text in code),
    )
    return "<!DOCTYPE html>\n" + tag("html", head, body, lang="en") + "\n"
