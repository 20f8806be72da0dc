"""Who answered, and what it cost them: the two tables of a run's page."""

from __future__ import annotations

import math

from privatile.report.findings import averaged_records, rank_error
from privatile.report.markup import Markup, tag
from privatile.report.view import LevelView, RunView
from privatile.result.result import QuantileResult, epsilon_text, rank_text

SHOWN_CLIENTS, FEWEST_CLIENTS = 150, 12
"""Rows in the tables of clients, all levels together but at least so many each; all of them are in the page's data up
to a limit."""


def clients_section(view: RunView) -> Markup:
    """A row a client: weight, records, ε, answers, its rank with its error, what a lie could do; a table a level."""
    levels = [level for level in view.levels if level.result is not None]
    if not levels:
        return Markup("")
    several = len(view.levels) > 1
    parts: list[Markup] = []
    for level in levels:
        parts += [tag("h3", f"Level {level.level:g}")] if several else []
        parts.append(_clients(level, max(FEWEST_CLIENTS, SHOWN_CLIENTS // len(levels))))
    own = len({client.level for client in levels[0].result.clients}) > 1 if levels[0].result else False
    line = "its own level" if own else "the level"
    return tag(
        "section",
        tag("h2", "Who answered"),
        tag(
            "p",
            "The dot shows what share of a client's records lies below the estimate, the bar its 95% error, the dashed "
            f"line {line}. Clients whose dots stand on one line agree. The last column bounds how far a lying client "
            "could push the estimate's rank among the others.",
            class_="soft",
        ),
        *parts,
    )


def _clients(level: LevelView, most: int) -> Markup:
    result, history = level.result, level.history
    if result is None:
        return Markup("")
    shown = list(zip(result.clients, history.answered, history.silent, strict=True))[:most]
    heaviest = max(client.weight for client in result.clients)
    rows = []
    for client, answered, silent in shown:
        share = int(answered) / max(int(answered + silent), 1)
        rows.append(
            tag(
                "tr",
                tag("th", client.name, scope="row"),
                tag("td", _bar(client.weight / heaviest), class_="weight"),
                tag("td", f"{client.weight:.4f}"),
                tag("td", f"{client.asked:,}"),
                tag("td", epsilon_text(client.epsilon)),
                tag("td", f"{share:.1%}"),
                tag(
                    "td",
                    _whisker(result, client.local_rank, client.truth_rate, client.asked, client.level),
                    class_="forest",
                ),
                tag("td", f"{client.local_rank:.3f}" if math.isfinite(client.local_rank) else "–"),
                tag("td", rank_text(client.lying_rank)),
            )
        )
    heads = ["client", "", "weight", "records", "ε", "answered", "share below", "", "if it lied"]
    left_out = len(result.clients) - len(shown)
    table = tag(
        "table",
        tag("thead", tag("tr", *(tag("th", head, scope="col") if head else tag("td", "") for head in heads))),
        tag("tbody", *rows),
        class_="clients",
    )
    name = f"Table of clients, level {result.level:g}"
    more = tag("p", f"{left_out:,} more clients are not shown here.") if left_out else None
    return tag("div", tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=name), more)


def _bar(share: float) -> Markup:
    bar = tag("rect", x=0, y=2, width=f"{max(share, 0.02) * 60:.1f}", height=10, rx=2, fill="var(--blue)")
    return tag("svg", bar, width=60, height=14, viewBox="0 0 60 14", aria_hidden="true")


def _whisker(result: QuantileResult, rank: float, truth_rate: float, asked: int, level: float) -> Markup:
    def x(value: float) -> str:
        return f"{min(max(value, 0.0), 1.0) * 220 + 4:.1f}"

    error = 1.96 * rank_error(rank, truth_rate, averaged_records(result, asked))
    parts = [tag("line", x1=x(level), x2=x(level), y1=0, y2=20, stroke="var(--walk)", stroke_dasharray="3 2")]
    if math.isfinite(rank) and math.isfinite(error):
        parts.append(
            tag("line", x1=x(rank - error), x2=x(rank + error), y1=10, y2=10, stroke="var(--blue)", stroke_width=3)
        )
        parts.append(tag("circle", cx=x(rank), cy=10, r=4.5, fill="var(--blue)"))
    return tag("svg", *parts, width=228, height=20, viewBox="0 0 228 20", aria_hidden="true")


def ledger_section(view: RunView) -> Markup:
    """What was spent by whom, and what that means."""
    budgets: dict[float, list[str]] = {}
    for client in view.spec.clients:
        budgets.setdefault(client.mechanism.epsilon, []).append(client.name)
    asked = {
        client.name: sum(int(level.history.state.asked[k]) for level in view.levels)
        for k, client in enumerate(view.spec.clients)
    }
    rows = []
    for epsilon in sorted(budgets):
        names = budgets[epsilon]
        truth = math.exp(epsilon) / (1 + math.exp(epsilon)) if math.isfinite(epsilon) else 1.0
        who = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        rows.append(
            tag(
                "tr",
                tag("th", who, scope="row"),
                tag("td", f"{sum(asked[name] for name in names):,}"),
                tag("td", epsilon_text(epsilon)),
                tag("td", f"{truth:.1%}"),
                tag("td", f"× {math.exp(epsilon):.3g}" if math.isfinite(epsilon) else "no bound"),
            )
        )
    per = "person" if view.spec.person else "record"
    heads = ["client", "records that answered", f"ε spent per {per}", "a true bit is sent", "odds change at most"]
    return tag(
        "section",
        tag("h2", "What it cost in privacy"),
        tag(
            "p",
            f"Each {per} answered one yes-or-no question once, with one randomized bit; nothing else left its site. "
            "Whoever sees everything that left can change their odds on any guess about one of them by at most the "
            "factor in the last column. No record was asked twice.",
        ),
        tag(
            "div",
            tag(
                "table",
                tag("thead", tag("tr", *(tag("th", head, scope="col") for head in heads))),
                tag("tbody", *rows),
            ),
            class_="scroll",
            tabindex="0",
            role="region",
            aria_label="Privacy ledger",
        ),
    )
