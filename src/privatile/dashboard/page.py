"""The dashboard's one page. It holds no fact of any run: all of them come in through the stream."""

from __future__ import annotations

from privatile.report.markup import Markup, tag


def page() -> str:
    """The same bytes for every run."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", "privatile"),
        Markup('<link rel="icon" href="data:,"/>'),
        *(
            Markup(f'<link rel="stylesheet" href="static/{name}"/>')
            for name in ("uPlot.min.css", "theme.css", "dashboard.css")
        ),
        *(
            Markup(f'<script defer="defer" src="static/{name}"></script>')
            for name in ("uPlot.iife.min.js", "chart.js", "dashboard.js")
        ),
    )
    body = tag(
        "body",
        tag("a", "Skip to the content", class_="skip", href="#content"),
        tag(
            "main",
            tag(
                "header",
                tag(
                    "p",
                    tag("span", "connecting", id="status", class_="pill", data_status="connecting"),
                    tag("span", "", id="run", class_="soft"),
                    class_="statusline",
                ),
                tag("h1", "A run of privatile", id="estimand"),
                tag("p", "–", id="estimate", class_="big"),
                tag("p", "", id="interval", class_="interval"),
                tag(
                    "p",
                    tag("button", "Anytime interval", type="button", data_interval="anytime", aria_pressed="true"),
                    tag("button", "Fixed-time interval", type="button", data_interval="fixed", aria_pressed="false"),
                    tag("span", "", id="interval-note", class_="soft"),
                    class_="tools",
                    role="group",
                    aria_label="Which interval is shown",
                ),
                tag(
                    "p",
                    tag("label", "Level ", tag("select", "", id="level")),
                    id="level-choice",
                    hidden=True,
                ),
                class_="hero",
            ),
            tag("div", "", id="trouble", role="alert", hidden=True),
            tag(
                "div",
                tag("div", "", id="bar"),
                class_="progress",
                id="progress",
                role="progressbar",
                aria_label="Rounds done",
                aria_valuemin="0",
                aria_valuemax="100",
                aria_valuenow="0",
            ),
            tag(
                "ul",
                *(
                    tag("li", tag("b", "–", id=name), tag("span", label))
                    for name, label in (
                        ("rounds", "rounds"),
                        ("rate", "rounds a second"),
                        ("left", "to the planned end"),
                        ("records", "records have answered, each once"),
                        ("alive", "clients answered the last round"),
                        ("age", "since the last round"),
                    )
                ),
                class_="tiles",
            ),
            _chart(),
            _target(),
            tag(
                "section",
                tag("h2", "Alarms", id="alarms-title"),
                tag(
                    "div",
                    tag("ul", tag("li", "None.", class_="soft"), id="alarms", class_="findings"),
                    role="log",
                    aria_labelledby="alarms-title",
                ),
                aria_labelledby="alarms-title",
            ),
            _clients(),
            _caveats(),
            tag("p", "", id="aloud", class_="unseen", role="status"),
            id="content",
        ),
        tag("footer", "This page only looks: nothing can be changed from here, and it asks no other machine."),
    )
    return "<!DOCTYPE html>\n" + tag("html", head, body, lang="en") + "\n"


def _chart() -> Markup:
    buttons = [("in", "Zoom in"), ("out", "Zoom out"), ("left", "Earlier"), ("right", "Later"), ("reset", "Show all")]
    entries = [("k-line", "estimate"), ("k-band", "interval"), ("k-walk", "question")]
    return tag(
        "section",
        tag("h2", "How it is going", id="chart-title"),
        tag(
            "figure",
            tag("ul", *(tag("li", tag("i", "", class_=kind), label) for kind, label in entries), class_="key"),
            tag(
                "div",
                tag("button", "By rounds", type="button", data_by="round", aria_pressed="true"),
                tag("button", "By records", type="button", data_by="records", aria_pressed="false"),
                tag("span", "", class_="spread"),
                *(tag("button", label, type="button", data_move=move) for move, label in buttons),
                class_="tools",
                role="group",
                aria_label="What the chart shows",
            ),
            tag(
                "div",
                "",
                class_="plot",
                tabindex="0",
                role="img",
                aria_label="Chart of the estimate and its interval over the rounds. Plus and minus zoom, arrows move, "
                "0 shows all. The line below says what is shown.",
            ),
            tag("p", "", class_="readout"),
            class_="chart",
        ),
        aria_labelledby="chart-title",
    )


def _target() -> Markup:
    return tag(
        "section",
        tag("h2", "When will it be narrow enough?", id="target-title"),
        tag(
            "p",
            tag("label", "Width wanted: ", tag("input", type="number", id="target", min="0", step="any")),
            " ",
            tag("span", "", id="target-answer", role="status"),
        ),
        aria_labelledby="target-title",
    )


def _caveats() -> Markup:
    return tag(
        "section",
        tag("h2", "What to beware of", id="caveats-title"),
        tag("ul", tag("li", "Nothing to say yet.", class_="soft"), id="caveats", class_="findings"),
        aria_labelledby="caveats-title",
    )


def _clients() -> Markup:
    heads = ["client", "state", "last answer", "answered", "missed", "records asked", "ε spent", "weight", "if it lied"]
    return tag(
        "section",
        tag("h2", "Clients", id="clients-title"),
        tag(
            "div",
            tag(
                "table",
                tag("thead", tag("tr", *(tag("th", head, scope="col") for head in heads))),
                tag("tbody", "", id="clients"),
            ),
            class_="scroll",
            tabindex="0",
            role="region",
            aria_label="Table of clients",
        ),
        tag("p", "", id="clients-more", class_="soft"),
        aria_labelledby="clients-title",
    )
