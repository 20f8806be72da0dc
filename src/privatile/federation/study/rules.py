"""The rules of a study: every one that is broken is told, with the place of the setting."""

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from privatile.core.mechanism import LARGEST_EPSILON, STRONGEST_EPSILON, WEAK_EPSILON
from privatile.core.messages import LARGEST_LENGTH
from privatile.core.scale import SCALES, check_range
from privatile.core.toml_lines import Place
from privatile.core.words import short
from privatile.errors import InputError
from privatile.estimator.clients import UNITY
from privatile.estimator.schedule import MOST_COUNTS
from privatile.estimator.values import parse_values
from privatile.federation.study.arrivals import broken_arrivals
from privatile.federation.study.weight_classes import broken_classes
from privatile.federation.wire.messages import LARGEST_ASK, MOST_LEVELS
from privatile.federation.wire.subjects import NAME

if TYPE_CHECKING:
    from privatile.federation.study.study import ClientAgreement, FederationStudy

IDENTITY = re.compile(r"[0-9a-f]{12}")
"""A federation's own mark, part of every subject: 48 random bits, so that two studies never share a subject."""

MOST_CLIENTS = 100_000


def broken_rules(study: "FederationStudy") -> list[tuple[Place, str]]:
    """Every rule that a study breaks, each with the place of the setting; empty when there is none."""
    broken: list[tuple[Place, str]] = []
    levels, clients, (low, high) = study.levels, study.clients, study.range

    def add(rule: str, *place: str) -> None:
        broken.append((place, rule))

    if not IDENTITY.fullmatch(study.identity):
        add(f"must be 12 hexadecimal digits; got {study.identity!r:.60}.", "identity")
    for key, text in (("title", study.title), ("asked_by", study.asked_by), ("value", study.value)):
        if not 0 < len(text) <= 200 or not text.isprintable():
            add(f"must be a printable text of 1 to 200 characters; got {text!r:.60}.", key)
    for level in levels:
        if not 0.0 < level < 1.0:
            add(f"must lie inside (0, 1); got {level}. The median is 0.5.", "level" if len(levels) == 1 else "levels")
    if len(set(levels)) < len(levels):
        add(f"must differ from each other; got {list(levels)!r:.60}.", "levels")
    if not 1 <= len(levels) <= MOST_LEVELS:
        add(f"a study has 1 to {MOST_LEVELS} levels, so that an answer fits; got {len(levels)}.", "levels")
    try:
        check_range(low, high)
    except InputError as error:
        add(str(error).removeprefix("range "), "range")
    if study.scale == "log" and low <= 0.0 and low < high:
        add(f'must be positive on the log scale; got {low:g} to {high:g}. Use scale = "linear".', "range")
    if study.scale not in SCALES:
        add(f"must be one of {', '.join(SCALES)}; got {study.scale!r:.60}.", "scale")
    try:
        parse_values(study.values)
    except InputError as error:
        add(str(error).removeprefix("values "), "values")
    if not 0.0 < study.confidence_level < 1.0:
        add(f"must lie inside (0, 1); got {study.confidence_level}. 0.95 is the usual choice.", "confidence_level")
    if not study.is_open and not 1 <= study.rounds <= MOST_COUNTS:
        add(f"must lie in 1 to {MOST_COUNTS:,}; got {short(study.rounds)}. 100 to 500 suffice.", "rounds")
    if not 0.0 < study.deadline <= 31 * 86_400.0:
        add(f"must lie between 0 seconds and 31 days; got {study.deadline}.", "deadline")
    if study.patience < 1:
        add(f"must be at least 1 silent round; got {short(study.patience)}.", "patience")
    if not 1 <= len(clients) <= MOST_CLIENTS:
        add(f"a study needs 1 to {MOST_CLIENTS:,} clients; got {len(clients)}.", "clients")
    elif not 1 <= study.quorum <= len(clients):
        add(f"must lie in 1 to {len(clients)}, the number of clients; got {short(study.quorum)}.", "quorum")
    if study.extension is not None:
        broken += study.extension.broken_rules(study)
    for name, agreement in clients.items():
        for rule, *place in _broken_agreement(name, agreement, study):
            add(rule, "clients", name, *place)
    for rule, *place in broken_arrivals(study):
        add(rule, *place)
    for rule, *place in broken_classes(clients):
        add(rule, "clients", *place)
    total = math.fsum(agreement.weight for agreement in clients.values())
    if clients and abs(total - 1.0) > UNITY:
        add(f"the weights must sum to 1; they sum to {total:.12g}. They decide which mixture is estimated.", "clients")
    size = _question_size(study)
    if size > LARGEST_ASK:
        add(
            f"a round's questions would take {size:,} bytes, and a message may have {LARGEST_ASK:,}: ask for fewer "
            "levels, or for the same number of records of every client."
        )
    return broken or _broken_plan(study)


def _broken_plan(study: "FederationStudy") -> list[tuple[Place, str]]:
    """What only the schedule itself can say; asked once everything else holds."""
    try:
        for index in range(len(study.levels)):
            study.spec.plan(index)
    except InputError as error:
        return [((), rule) for rule in str(error).splitlines()]
    return []


def _broken_agreement(name: str, agreement: "ClientAgreement", study: "FederationStudy") -> Iterator[tuple[str, ...]]:
    """Broken rules, each followed by its place inside the client's table."""
    epsilon, weight, records, level = agreement.epsilon, agreement.weight, agreement.records, agreement.level
    if not NAME.fullmatch(name):
        yield ("a name has 1 to 40 letters, digits, - or _; it becomes part of a subject.",)
    if not STRONGEST_EPSILON <= epsilon <= LARGEST_EPSILON:
        yield f"must lie in [{STRONGEST_EPSILON:g}, {LARGEST_EPSILON:g}]; got {epsilon}.", "epsilon"
    elif epsilon > WEAK_EPSILON and not study.allow_weak:
        rule = f"{epsilon:g} is above {WEAK_EPSILON:g}: nearly every report is the truth."
        yield f"{rule} If this is meant, set allow_weak = true.", "epsilon"
    if not weight > 0.0:
        yield f"must be positive; got {weight}. Leave the client out instead.", "weight"
    times, fewer = (" times the number of levels", " or levels") if len(study.levels) > 1 else ("", "")
    fewest = study.rounds * len(study.levels)
    if study.is_open and records < 1:
        yield f"must be at least 1, the most that the client may be asked for; got {short(records)}.", "records"
    elif records < fewest:
        rule = (
            f"must be at least the number of rounds{times}, {fewest}: each record answers once; got {short(records)}."
        )
        yield f"{rule} Ask for fewer rounds{fewer}.", "records"
    elif records > LARGEST_LENGTH:
        yield f"must be at most {LARGEST_LENGTH}; got {short(records)}.", "records"
    if level is not None and not 0.0 < level < 1.0:
        yield f"must lie inside (0, 1); got {level}.", "level"


def _question_size(study: "FederationStudy") -> int:
    """Bytes of a round's questions, which name every client's length where they differ, and in local mode its step."""
    clients = study.clients
    if len({agreement.records for agreement in clients.values()}) <= 1 and not study.is_open:
        return 0
    local = study.mode == "local"
    # Quotes, colon and comma are 4; a double takes up to 22 digits.
    each = sum(len(name) + len(str(one.records)) + 4 + local * (len(name) + 26) for name, one in clients.items())
    return 500 + len(study.levels) * (200 + each)
