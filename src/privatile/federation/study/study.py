"""The study file: what is asked, of whom, at what privacy budget. One TOML file, checked whole, hashed once.

Everything two honest parties must agree on is here, and nothing else: a client signs and answers for the SHA-256 of
the canonical text (`FederationStudy.digest`), so a study edited during a run is another study.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from privatile.core.canonical import Hashed
from privatile.core.decoding import BrokenRules, Document, read_toml
from privatile.core.mechanism import LARGEST_EPSILON, STRONGEST_EPSILON, WEAK_EPSILON, RandomizedResponse
from privatile.core.messages import LARGEST_LENGTH, Missing
from privatile.core.scale import SCALES
from privatile.core.toml_lines import Place
from privatile.core.words import short
from privatile.errors import InputError
from privatile.estimator.clients import UNITY
from privatile.estimator.plan import TablePlan
from privatile.estimator.schedule import MOST_COUNTS, Mode
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.estimator.survey import Survey
from privatile.estimator.values import parse_values
from privatile.federation.study.weight_classes import broken_classes
from privatile.federation.wire.messages import LARGEST_ASK, MOST_LEVELS
from privatile.federation.wire.subjects import NAME

IDENTITY = re.compile(r"[0-9a-f]{12}")
"""A federation's own mark, part of every subject: 48 random bits, so that two studies never share a subject."""

MOST_CLIENTS = 100_000


@dataclass(frozen=True)
class ClientAgreement:
    """What one client agrees to: its budget per record, its weight in the estimand, the records it is asked for."""

    epsilon: Annotated[
        float,
        Meta(
            description="a finite number, the privacy budget of each record, chosen by people, never by default: 1 is "
            "a common choice, 0.5 to 2 the usual range"
        ),
    ]
    weight: float
    records: int
    level: float | None = None
    site: str | None = None
    """Of a weight class, whose records they are."""
    weights: tuple[float, float] | None = None
    """Of a weight class, its smallest and its largest survey weight."""

    def __post_init__(self) -> None:
        if self.weights is not None:
            object.__setattr__(self, "weights", (float(self.weights[0]), float(self.weights[1])))
        # 1 and 1.0 are the same number and must be the same text.
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "weight", float(self.weight))

    @property
    def mechanism(self) -> RandomizedResponse:
        """Randomized response with this client's budget."""
        return RandomizedResponse.from_epsilon(self.epsilon)


@dataclass(frozen=True)
class FederationStudy(Hashed):
    """A validated study. `digest` is what client and coordinator mean by "the same study".

    >>> north, south = ClientAgreement(1.0, 0.5, 1000), ClientAgreement(1.0, 0.5, 1000)
    >>> study = FederationStudy("0123456789ab", "Median salary", "An institute", "salary", (0.5,), (1e3, 1e6), 200,
    ...               clients={"north": north, "south": south})
    >>> study.levels, study.quorum, len(study.digest)
    ((0.5,), 2, 64)
    >>> FederationStudy.from_dict(study.to_dict()) == study
    True
    """

    identity: str
    title: str
    asked_by: str
    value: str
    levels: Annotated[
        tuple[float, ...], Meta(min_length=1, description="a list of finite numbers, such as [0.1, 0.5, 0.9]")
    ]
    """What is asked for. With several, every record answers about one of them: each gets its share of every round."""
    range: tuple[float, float]
    rounds: int
    scale: str = "linear"
    mode: Mode = "cohort"
    design: str = "auto"
    missing: Missing = "noise"
    values: str = "any"
    """What is declared about the values at every client: any, continuous, whole or step=NUMBER."""
    confidence_level: float = 0.95
    deadline: float = 60.0
    quorum: int = 0
    patience: int = 5
    allow_weak: bool = False
    clients: Mapping[str, ClientAgreement] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in ("confidence_level", "deadline"):
            object.__setattr__(self, key, float(getattr(self, key)))
        object.__setattr__(self, "levels", tuple(float(level) for level in self.levels))
        object.__setattr__(self, "range", (float(self.range[0]), float(self.range[1])))
        if not self.quorum:
            object.__setattr__(self, "quorum", len(self.clients))
        if broken := _broken_rules(self):
            raise BrokenRules(broken)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, in the order of the file."""
        plain: dict[str, Any] = {}
        for item in fields(self):
            if item.name == "levels" and len(self.levels) == 1:
                plain["level"] = self.levels[0]
            elif item.name != "clients":
                value = getattr(self, item.name)
                plain[item.name] = list(value) if isinstance(value, tuple) else value
        plain["clients"] = {name: _agreement_dict(agreement) for name, agreement in self.clients.items()}
        return plain

    @cached_property
    def run(self) -> str:
        """The name of the one run this study has."""
        return f"{self.identity}-{self.digest[:16]}"

    @cached_property
    def asked_levels(self) -> tuple[float, ...]:
        """The levels as questions name them, Σ p_k τ_k, to the last bit."""
        return tuple(
            math.fsum(
                agreement.weight * (level if agreement.level is None else agreement.level)
                for agreement in self.clients.values()
            )
            for level in self.levels
        )

    @cached_property
    def spec(self) -> RunSpec:
        """The run's specification: the same for everybody who holds the study."""
        clients = tuple(
            ClientSpec(name, agreement.mechanism.threshold, agreement.weight, agreement.records, agreement.level)
            for name, agreement in self.clients.items()
        )
        return RunSpec(
            value=self.value,
            levels=self.levels,
            clients=clients,
            scale=self.scale,
            low=self.range[0],
            high=self.range[1],
            design=self.design,
            rounds=self.rounds,
            mode=self.mode,
            confidence_level=self.confidence_level,
            weighting=self.weighting,
            missing=self.missing,
            values=self.values,
            survey=Survey.agreed() if any(one.weights is not None for one in self.clients.values()) else None,
        )

    @property
    def weighs_by_size(self) -> bool:
        """Whether every client counts with the records it agreed to: the quantile is that of all of them together."""
        total = sum(agreement.records for agreement in self.clients.values())
        return all(abs(one.weight - one.records / total) <= UNITY for one in self.clients.values())

    @property
    def weighting(self) -> str:
        """How the weights were chosen, in one word."""
        if self.weighs_by_size:
            return "size"
        return "equal" if len({agreement.weight for agreement in self.clients.values()}) == 1 else "given"

    @cached_property
    def largest_step(self) -> float:
        """The most that a client's query may move in one round, on the working scale; 0 in cohort mode."""
        plan = self.spec.plan()
        return float(plan.steps.max()) if self.mode == "local" and isinstance(plan, TablePlan) else 0.0

    @classmethod
    def from_dict(cls, table: object) -> "FederationStudy":
        """Read plain values; every broken rule is reported at once."""
        if not isinstance(table, Mapping):
            raise InputError("a study must be a table of settings.")
        return _from_document(Document(table, "the study"))


def _broken_rules(study: "FederationStudy") -> list[tuple[Place, str]]:
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
    if not low < high:
        add(f"must rise: low < high; got {low:g} to {high:g}.", "range")
    elif study.scale == "log" and low <= 0.0:
        add(f'must be positive on the log scale; got {low:g} to {high:g}. Use scale = "linear".', "range")
    if study.scale not in SCALES:
        add(f"must be one of {', '.join(SCALES)}; got {study.scale!r:.60}.", "scale")
    try:
        parse_values(study.values)
    except InputError as error:
        add(str(error).removeprefix("values "), "values")
    if not 0.0 < study.confidence_level < 1.0:
        add(f"must lie inside (0, 1); got {study.confidence_level}. 0.95 is the usual choice.", "confidence_level")
    if not 1 <= study.rounds <= MOST_COUNTS:
        add(f"must lie in 1 to {MOST_COUNTS:,}; got {short(study.rounds)}. 100 to 500 suffice.", "rounds")
    if not 0.0 < study.deadline <= 31 * 86_400.0:
        add(f"must lie between 0 seconds and 31 days; got {study.deadline}.", "deadline")
    if study.patience < 1:
        add(f"must be at least 1 silent round; got {short(study.patience)}.", "patience")
    if not 1 <= len(clients) <= MOST_CLIENTS:
        add(f"a study needs 1 to {MOST_CLIENTS:,} clients; got {len(clients)}.", "clients")
    elif not 1 <= study.quorum <= len(clients):
        add(f"must lie in 1 to {len(clients)}, the number of clients; got {short(study.quorum)}.", "quorum")
    for name, agreement in clients.items():
        for rule, *place in _broken_agreement(name, agreement, study):
            add(rule, "clients", name, *place)
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


def _broken_agreement(name: str, agreement: ClientAgreement, study: "FederationStudy") -> Iterator[tuple[str, ...]]:
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
    if records < fewest:
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
    if len({agreement.records for agreement in clients.values()}) <= 1:
        return 0
    local = study.mode == "local"
    # Quotes, colon and comma are 4; a double takes up to 22 digits.
    each = sum(len(name) + len(str(one.records)) + 4 + local * (len(name) + 26) for name, one in clients.items())
    return 500 + len(study.levels) * (200 + each)


def load_study(path: Path) -> "FederationStudy":
    """Read a study file; all errors at once, each with its line."""
    if not path.exists():
        raise InputError(f"{path}: there is no study file here. Make one with: privatile federation init")
    return _from_document(read_toml(path))


def _from_document(document: Document) -> "FederationStudy":
    """A file has `level`, a number, or `levels`, a list."""
    table = dict(document.table)
    clients = table.get("clients")
    for name, agreement in clients.items() if isinstance(clients, Mapping) else ():
        if isinstance(agreement, Mapping) and agreement.get("level", 0.5) is None:
            document.add(("clients", str(name), "level"), "must be a finite number; got nothing. Leave it out instead.")
    has_level = "level" in table
    level = table.pop("level", None)
    if has_level and "levels" in table:
        document.add(("level",), "level and levels exclude each other: level is one number, levels a list. Keep one.")
    elif level is not None:
        number = document.value(level, float, ("level",))
        table["levels"] = (0.5 if number is None else number,)
    elif "levels" not in table:
        document.add(("level",), "is missing: one number inside (0, 1), or levels, a list of them.")
        table["levels"] = (0.5,)
    return document.finish(document.decode(FederationStudy, table))


def study_toml(study: "FederationStudy") -> str:
    """The study as a commented TOML file; `load_study` reads back an equal study."""
    lines = [
        "# What is asked, of whom, at what privacy budget. Both sides sign for the hash of this content:",
        "# after an edit run `privatile federation invite` and send the new invitations; no edit once a run has begun.",
        "",
    ]
    for name, value in study.to_dict().items():
        if name != "clients":
            lines.append(f"{name} = {_toml(value)}{_REMARKS.get(name, '')}")
    for name, agreement in study.clients.items():
        lines += ["", f"[clients.{name}]"]
        lines += [f"{key} = {_toml(value)}" for key, value in _agreement_dict(agreement).items()]
    return "\n".join(lines) + "\n"


_REMARKS = {
    "identity": "  # the federation's mark in every subject; do not change",
    "value": "  # in words, what a record's value is",
    "level": "  # 0.5 is the median; several: levels = [0.1, 0.5, 0.9]",
    "levels": "  # every record answers about one of them",
    "scale": "  # linear, log or logit between the ends of the range, or identity",
    "missing": "  # what a record without a value does",
    "values": "  # any; continuous; whole or step=NUMBER where every value is a multiple of it",
    "deadline": "  # seconds a round waits for its answers",
    "quorum": "  # answers that close a round at once",
    "patience": "  # silent rounds of one client after which the run pauses",
}


def _toml(value: object) -> str:
    # TOML basic strings, booleans, numbers and arrays are written as JSON writes them.
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _agreement_dict(agreement: ClientAgreement) -> dict[str, Any]:
    plain: dict[str, Any] = {"epsilon": agreement.epsilon, "weight": agreement.weight, "records": agreement.records}
    if agreement.level is not None:
        plain["level"] = agreement.level
    if agreement.weights is not None:
        plain |= {"site": agreement.site, "weights": list(agreement.weights)}
    return plain
