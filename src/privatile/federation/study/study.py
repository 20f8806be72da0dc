"""The study file: what is asked, of whom, at what privacy budget. One TOML file, checked whole, hashed once.

Everything two honest parties must agree on is here, and nothing else: a client signs and answers for the SHA-256 of
the canonical text (`FederationStudy.digest`), so a study edited during a run is another study.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from privatile.core.canonical import Hashed
from privatile.core.decoding import BrokenRules, Document, read_toml
from privatile.core.extensions import KNOWN, Extension, of_study
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Missing
from privatile.errors import InputError
from privatile.estimator.clients import UNITY, UNKNOWN_SIZE
from privatile.estimator.plan import TablePlan
from privatile.estimator.schedule import Mode
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.estimator.survey import Survey
from privatile.federation.study.arrivals import LEFT_OUT, PATIENCE, REMARKS, Arrivals
from privatile.federation.study.rules import broken_rules


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
    rounds: int = 0
    """None in an open study."""
    scale: str = "linear"
    mode: Mode = "cohort"
    design: str = "auto"
    missing: Missing = "noise"
    values: str = "any"
    """What is declared about the values at every client: any, continuous, whole or step=NUMBER."""
    confidence_level: float = 0.95
    deadline: float = 60.0
    quorum: int = 0
    patience: int = PATIENCE
    allow_weak: bool = False
    arrivals: Arrivals | None = None
    """Of an open study, whose records arrive over weeks: when its rounds close, and when it ends."""
    clients: Mapping[str, ClientAgreement] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Settings of an extension; empty where the study has a coordinator."""

    def __post_init__(self) -> None:
        for key in ("confidence_level", "deadline"):
            object.__setattr__(self, key, float(getattr(self, key)))
        object.__setattr__(self, "levels", tuple(float(level) for level in self.levels))
        object.__setattr__(self, "range", (float(self.range[0]), float(self.range[1])))
        if self.is_open and self.arrivals is None:
            object.__setattr__(self, "arrivals", Arrivals())
        if not self.quorum:
            object.__setattr__(self, "quorum", len(self.clients))
        if broken := broken_rules(self):
            raise BrokenRules(broken)

    @property
    def is_open(self) -> bool:
        """Whether nobody knows beforehand how many records will answer."""
        return self.design == "open"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, in the order of the file."""
        plain: dict[str, Any] = {}
        for item in fields(self):
            if item.name == "arrivals" or (self.is_open and item.name in LEFT_OUT):
                continue
            if item.name == "levels" and len(self.levels) == 1:
                plain["level"] = self.levels[0]
            elif item.name not in ("clients", "extra"):
                value = getattr(self, item.name)
                plain[item.name] = list(value) if isinstance(value, tuple) else value
        plain |= self.extra
        if self.arrivals is not None:
            plain["arrivals"] = self.arrivals.to_dict()
        plain["clients"] = {name: _agreement_dict(agreement) for name, agreement in self.clients.items()}
        return plain

    @cached_property
    def run(self) -> str:
        """The name of the one run this study has."""
        return f"{self.identity}-{self.digest[:16]}"

    @cached_property
    def extension(self) -> Extension | None:
        """What holds the study in another way than with a coordinator."""
        return of_study(self.extra)

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
        arrivals = self.arrivals
        clients = tuple(
            ClientSpec(
                name,
                agreement.mechanism.threshold,
                agreement.weight,
                agreement.records if arrivals is None else UNKNOWN_SIZE,
                agreement.level,
            )
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
            rounds=self.rounds or None,
            mode=None if self.is_open else self.mode,
            confidence_level=self.confidence_level,
            weighting=self.weighting,
            missing=self.missing,
            values=self.values,
            until_width=None if arrivals is None else arrivals.end_width or None,
            end=None if arrivals is None else arrivals.end,
            survey=Survey.agreed() if any(one.weights is not None for one in self.clients.values()) else None,
        )

    @cached_property
    def error_in_rank(self) -> float:
        """√Σ p_k²/(4r_k²n_k), the standard error that every level's share of the agreed records leaves in its rank."""
        spec = self.spec
        records = (agreement.records // len(spec.levels) for agreement in self.clients.values())
        noise = (client.noise(max(1, own)) for client, own in zip(spec.at_level(0), records, strict=True))
        return math.sqrt(math.fsum(noise))

    @property
    def weighs_by_size(self) -> bool:
        """Whether every client counts with the records it agreed to: the quantile is that of all of them together."""
        if self.is_open:
            return False  # nobody knows how many come
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
    if "rounds" not in table and table.get("design") != "open":
        document.add(("rounds",), "is missing. It must be a whole number.")
        table["rounds"] = 1
    if "extra" in table:
        document.add(("extra",), "there is no such setting.")
    table["extra"] = {known.key: value for known in KNOWN if (value := table.pop(known.key, None)) is not None}
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
    remarks = _REMARKS if study.extension is None else {**_REMARKS, **study.extension.remarks}
    lines = [
        "# What is asked, of whom, at what privacy budget. Both sides sign for the hash of this content:",
        "# after an edit run `privatile federation invite` and send the new invitations; no edit once a run has begun."
        if study.extension is None
        else "# no edit; for another study run `privatile federation init` again.",
        "",
    ]
    for name, value in study.to_dict().items():
        if name not in ("clients", "arrivals"):
            lines.append(f"{name} = {_toml(value)}{remarks.get(name, '')}")
    if study.arrivals is not None:
        lines += ["", "[arrivals]"]
        lines += [f"{name} = {_toml(value)}{REMARKS[name]}" for name, value in study.arrivals.to_dict().items()]
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
