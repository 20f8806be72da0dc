"""The study file: what is asked, of whom, at what privacy budget. One TOML file, checked whole, hashed once.

Everything two honest parties must agree on is here, and nothing else: a client signs and answers for the SHA-256 of
the canonical text (`FederationStudy.digest`), so a study edited during a run is another study.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from privatile.core.decoding import BrokenRules, Document, read_toml
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Missing
from privatile.errors import InputError
from privatile.estimator.schedule import Mode
from privatile.estimator.spec import ClientSpec, RunSpec
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

    def __post_init__(self) -> None:
        # 1 and 1.0 are the same number and must be the same text.
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "weight", float(self.weight))

    @property
    def mechanism(self) -> RandomizedResponse:
        """Randomized response with this client's budget."""
        return RandomizedResponse.from_epsilon(self.epsilon)


@dataclass(frozen=True)
class FederationStudy:
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
    confidence_level: float = 0.95
    deadline: float = 60.0
    quorum: int = 0
    patience: int = 20
    allow_weak: bool = False
    clients: Mapping[str, ClientAgreement] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in ("confidence_level", "deadline"):
            object.__setattr__(self, key, float(getattr(self, key)))
        object.__setattr__(self, "levels", tuple(float(level) for level in self.levels))
        object.__setattr__(self, "range", (float(self.range[0]), float(self.range[1])))
        if not self.quorum:
            object.__setattr__(self, "quorum", len(self.clients))
        broken = broken_rules(self)
        if broken:
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
    def canonical(self) -> str:
        """The text that is hashed: JSON, keys sorted, no blanks."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical text, in hexadecimal."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()

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
        weights = {agreement.weight for agreement in self.clients.values()}
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
            weighting="equal" if len(weights) == 1 else "given",
            missing=self.missing,
        )

    @classmethod
    def from_dict(cls, table: object) -> FederationStudy:
        """Read plain values; every broken rule is reported at once."""
        if not isinstance(table, Mapping):
            raise InputError("a study must be a table of settings.")
        return _from_document(Document(table, "the study"))


def load_study(path: Path) -> FederationStudy:
    """Read a study file; all errors at once, each with its line."""
    if not path.exists():
        raise InputError(f"{path}: there is no study file here. Make one with: privatile federation init")
    return _from_document(read_toml(path))


def _from_document(document: Document) -> FederationStudy:
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


def study_toml(study: FederationStudy) -> str:
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
    return plain
