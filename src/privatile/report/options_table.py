"""When a run was made, from which data and with which options: what a reader needs to do it again."""

from typing import NamedTuple

from privatile.core.words import duration, listed, moment
from privatile.estimator.spec import RunSpec
from privatile.report.view import RunView
from privatile.result.number_words import epsilon_text, plain
from privatile.result.part_words import STRATA, parts_of
from privatile.result.rows import MISSING, TARGETS

NAMED_CLIENTS = 8
"""Clients that are named; the table of clients has more."""


class Option(NamedTuple):
    """One row: what it is, and what was chosen."""

    label: str
    text: str


def data_and_options(view: RunView) -> list[Option]:
    """The date, the data and every option of a run, the options that were left at their defaults included."""
    spec = view.spec
    epsilons = sorted({client.mechanism.epsilon for client in spec.clients})
    rows = [
        ("date", _date(view)),
        ("column", spec.value),
        ("data", _data(spec)),
        ("stated range", f"{plain(spec.low)} to {plain(spec.high)}, {spec.scale} scale"),
        ("levels" if len(spec.levels) > 1 else "level", ", ".join(f"{level:g}" for level in spec.levels)),
        ("ε", " to ".join(dict.fromkeys(epsilon_text(end) for end in (epsilons[0], epsilons[-1])))),
        ("unit of privacy", "person" if spec.person else "record"),
        (f"weights of the {parts_of(spec.weighting).many}", "given" if spec.weighting == STRATA else spec.weighting),
        ("values declared", spec.values),
        ("interval asked for", spec.interval),
        ("confidence", f"{100 * spec.confidence_level:g}%{', for all levels at once' if spec.joint > 1 else ''}"),
        ("target", TARGETS[spec.target]),
        ("missing values", f"{spec.missing}: {MISSING[spec.missing]}"),
        ("design", f"{spec.design}, {spec.round_mode} mode"),
        ("dither", plain(spec.dither) if spec.dither else ""),
        ("stops at a width of", "" if spec.until_width is None else plain(spec.until_width)),
    ]
    return [Option(label, text) for label, text in rows if text]


def day(seconds: float) -> str:
    """The day of a time, for a headline.

    >>> day(0.0), day(1e300)
    ('1970-01-01', 'unknown')
    """
    return (moment(seconds) or "unknown")[:10]


def _date(view: RunView) -> str:
    times = view.levels[0].history.at
    begun = (moment(view.created) or "unknown").replace("T", " ").replace("Z", " UTC")
    took = duration(float(times[-1] - view.created)) if len(times) else ""
    return begun + (f"; {took} from the first question to the last answer" if took else "")


def _data(spec: RunSpec) -> str:
    """Whose records, and how many may be asked."""
    if spec.design == "open":
        return f"whoever comes, of {listed([client.name for client in spec.clients])}"
    records: dict[str, int] = {}
    for client in spec.clients:
        name = client.holder or client.name
        records[name] = records.get(name, 0) + client.records
    named = listed([f"{name} ({count:,})" for name, count in records.items()], NAMED_CLIENTS)
    return f"{sum(records.values()):,} records: {named}"
