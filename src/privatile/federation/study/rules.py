"""The rules of a study: what a well-formed one must still fulfil, all broken ones told at once."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from privatile.core.mechanism import LARGEST_EPSILON, STRONGEST_EPSILON, WEAK_EPSILON
from privatile.core.messages import MISSING
from privatile.errors import InputError
from privatile.federation.wire.messages import LARGEST_ASK, MOST_LEVELS
from privatile.federation.wire.subjects import NAME

if TYPE_CHECKING:
    from privatile.federation.study.study import ClientAgreement, FederationStudy

IDENTITY = re.compile(r"[0-9a-f]{12}")
"""A federation's own mark, part of every subject: 48 random bits, so that two studies never share a subject."""

SCALES = ("identity", "linear", "log", "logit")
MODES = ("cohort", "local")
MOST_CLIENTS = 100_000


def broken_rules(study: FederationStudy) -> list[str]:
    """Every rule that a study breaks, in words; empty when there is none."""
    wrong = []
    low, high = study.range
    if not IDENTITY.fullmatch(study.identity):
        wrong.append(f"identity must be 12 hexadecimal digits; got {study.identity!r:.60}.")
    for key in ("title", "asked_by", "value"):
        text = getattr(study, key)
        if not 0 < len(text) <= 200 or not text.isprintable():
            wrong.append(f"{key} must be a printable text of 1 to 200 characters; got {text!r:.60}.")
    wrong += [
        f"level must lie inside (0, 1); got {level}. The median is 0.5." for level in study.levels if not 0 < level < 1
    ]
    if len(set(study.levels)) < len(study.levels):
        wrong.append(f"levels must differ from each other; got {list(study.levels)!r:.60}.")
    if not 1 <= len(study.levels) <= MOST_LEVELS:
        wrong.append(f"a study has 1 to {MOST_LEVELS} levels, so that an answer fits; got {len(study.levels)}.")
    if not low < high:
        wrong.append(f"range must rise: low < high; got {low:g} to {high:g}.")
    elif study.scale == "log" and low <= 0.0:
        wrong.append(f'range must be positive on the log scale; got {low:g} to {high:g}. Use scale = "linear".')
    for key, allowed in (("scale", SCALES), ("mode", MODES), ("missing", MISSING)):
        if getattr(study, key) not in allowed:
            wrong.append(f"{key} must be one of {', '.join(allowed)}; got {getattr(study, key)!r:.60}.")
    if not 0.0 < study.confidence_level < 1.0:
        wrong.append(f"confidence_level must lie inside (0, 1); got {study.confidence_level}.")
    if not 1 <= study.rounds <= 10_000_000:
        wrong.append(f"rounds must lie in 1 to 10,000,000; got {study.rounds}. 100 to 500 suffice.")
    if not 0.0 < study.deadline <= 31 * 86_400.0:
        wrong.append(f"deadline must lie between 0 seconds and 31 days; got {study.deadline}.")
    if study.patience < 1:
        wrong.append(f"patience must be at least 1 silent round; got {study.patience}.")
    if not 1 <= len(study.clients) <= MOST_CLIENTS:
        wrong.append(f"a study needs 1 to {MOST_CLIENTS:,} clients; got {len(study.clients)}.")
    elif not 1 <= study.quorum <= len(study.clients):
        wrong.append(f"quorum must lie in 1 to {len(study.clients)}, the number of clients; got {study.quorum}.")
    for name, terms in study.clients.items():
        wrong += _broken_terms(name, terms, study)
    total = math.fsum(terms.weight for terms in study.clients.values())
    if study.clients and abs(total - 1.0) > 1e-9:
        wrong.append(f"the weights must sum to 1; they sum to {total:.12g}. They decide which mixture is estimated.")
    wrong += _broken_size(study)
    return wrong or _broken_plan(study)


def _broken_size(study: FederationStudy) -> list[str]:
    """A question names every client's length where they differ, and in local mode its step."""
    clients = study.clients
    if len({terms.records for terms in clients.values()}) <= 1:
        return []
    local = study.mode == "local"
    # Quotes, colon and comma are 4; a double takes up to 22 digits.
    each = sum(len(name) + len(str(one.records)) + 4 + local * (len(name) + 26) for name, one in clients.items())
    size = 500 + len(study.levels) * (200 + each)
    if size <= LARGEST_ASK:
        return []
    return [
        f"a round's questions would take {size:,} bytes, and a message may have {LARGEST_ASK:,}: ask for fewer levels, "
        "or for the same number of records of every client."
    ]


def _broken_plan(study: FederationStudy) -> list[str]:
    """What only the schedule itself can say; asked once everything else holds."""
    try:
        for index in range(len(study.levels)):
            study.spec.plan(index)
    except InputError as error:
        return str(error).splitlines()
    return []


def _broken_terms(name: str, terms: ClientAgreement, study: FederationStudy) -> list[str]:
    wrong = []
    where = f"clients.{name:.60}"
    if not NAME.fullmatch(name):
        wrong.append(f"{where}: a name has 1 to 40 letters, digits, - or _; it becomes part of a subject.")
    if not STRONGEST_EPSILON <= terms.epsilon <= LARGEST_EPSILON:
        wrong.append(f"{where}.epsilon must lie in [{STRONGEST_EPSILON:g}, {LARGEST_EPSILON:g}]; got {terms.epsilon}.")
    elif terms.epsilon > WEAK_EPSILON and not study.allow_weak:
        wrong.append(
            f"{where}.epsilon {terms.epsilon:g} is above {WEAK_EPSILON:g}: nearly every report is the truth. "
            "If this is meant, set allow_weak = true."
        )
    if not terms.weight > 0.0:
        wrong.append(f"{where}.weight must be positive; got {terms.weight}. Leave the client out instead.")
    several = len(study.levels) > 1
    times, fewer = (" times the number of levels", " or levels") if several else ("", "")
    fewest = study.rounds * len(study.levels)
    if terms.records < fewest:
        wrong.append(
            f"{where}.records must be at least the number of rounds{times}, {fewest}: each record answers once; "
            f"got {terms.records}. Ask for fewer rounds{fewer}."
        )
    if terms.level is not None and not 0.0 < terms.level < 1.0:
        wrong.append(f"{where}.level must lie inside (0, 1); got {terms.level}.")
    return wrong
