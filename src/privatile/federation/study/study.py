"""The study file: what is asked, of whom, at what price. One TOML file, checked whole, hashed once.

Everything two honest parties must agree on is here, and nothing else: a client signs and answers for the SHA-256 of
the canonical text (`FederationStudy.digest`), so a study edited in mid-run is another study.
"""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Missing
from privatile.errors import InputError
from privatile.estimator.schedule import Mode
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.federation.study.rules import broken_rules


@dataclass(frozen=True)
class ClientAgreement:
    """What one client agrees to: its budget per record, its weight in the estimand, the records it is asked for."""

    epsilon: float
    weight: float
    records: int
    level: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", float(self.epsilon))
        object.__setattr__(self, "weight", float(self.weight))

    @property
    def mechanism(self) -> RandomizedResponse:
        """The coin this client's records are asked to throw."""
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
    levels: tuple[float, ...]
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
        # 1 and 1.0 are the same number and must be the same text.
        for key in ("confidence_level", "deadline"):
            object.__setattr__(self, key, float(getattr(self, key)))
        object.__setattr__(self, "levels", tuple(float(level) for level in self.levels))
        object.__setattr__(self, "range", (float(self.range[0]), float(self.range[1])))
        if not self.quorum:
            object.__setattr__(self, "quorum", len(self.clients))
        wrong = broken_rules(self)
        if wrong:
            raise InputError("\n".join(wrong))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, in the order of the file."""
        plain: dict[str, Any] = {}
        for item in fields(self):
            if item.name == "levels" and len(self.levels) == 1:
                plain["level"] = self.levels[0]
            elif item.name != "clients":
                value = getattr(self, item.name)
                plain[item.name] = list(value) if isinstance(value, tuple) else value
        plain["clients"] = {name: _terms_dict(terms) for name, terms in self.clients.items()}
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
            math.fsum(terms.weight * (level if terms.level is None else terms.level) for terms in self.clients.values())
            for level in self.levels
        )

    @cached_property
    def spec(self) -> RunSpec:
        """The run's specification: the same for everybody who holds the study."""
        clients = tuple(
            ClientSpec(name, terms.mechanism.threshold, terms.weight, terms.records, terms.level)
            for name, terms in self.clients.items()
        )
        weights = {terms.weight for terms in self.clients.values()}
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
    def from_dict(cls, document: object) -> FederationStudy:
        """Read plain values; every broken rule is reported at once."""
        study, wrong = _read(document)
        if study is None or wrong:
            raise InputError("\n".join(wrong))
        return study


def load_study(path: Path) -> FederationStudy:
    """Read a study file; all errors at once, each with the file's name."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: there is no study file here. Make one with: privatile federation init") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as text ({type(error).__name__}).") from None
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not valid TOML: {error}.") from None
    try:
        return FederationStudy.from_dict(document)
    except InputError as error:
        lines = str(error).splitlines()
        raise InputError("\n".join(f"{path}: {line}" for line in lines)) from None


def study_toml(study: FederationStudy) -> str:
    """The study as a commented TOML file; `load_study` reads back an equal study."""
    lines = [
        "# What is asked, of whom, at what price. Both sides sign for the hash of this content:",
        "# after an edit run `privatile federation invite` and send the new invitations; no edit once a run has begun.",
        "",
    ]
    for name, value in study.to_dict().items():
        if name != "clients":
            lines.append(f"{name} = {_toml(value)}{_REMARKS.get(name, '')}")
    for name, terms in study.clients.items():
        lines += ["", f"[clients.{name}]"]
        lines += [f"{key} = {_toml(value)}" for key, value in _terms_dict(terms).items()]
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


def _terms_dict(terms: ClientAgreement) -> dict[str, Any]:
    plain: dict[str, Any] = {"epsilon": terms.epsilon, "weight": terms.weight, "records": terms.records}
    if terms.level is not None:
        plain["level"] = terms.level
    return plain


_KINDS: dict[str, tuple[type, ...]] = {
    "identity": (str,), "title": (str,), "asked_by": (str,), "value": (str,), "level": (int, float),
    "rounds": (int,), "scale": (str,), "mode": (str,), "design": (str,), "missing": (str,),
    "confidence_level": (int, float), "deadline": (int, float), "quorum": (int,), "patience": (int,),
    "allow_weak": (bool,),
}  # fmt: skip
_REQUIRED = ("identity", "title", "asked_by", "value", "range", "rounds", "clients")


def _is_number(value: object, kinds: tuple[type, ...] = (int, float)) -> bool:
    if isinstance(value, bool):
        return bool in kinds
    return isinstance(value, kinds) and (not isinstance(value, float) or math.isfinite(value))


def _read(document: object) -> tuple[FederationStudy | None, list[str]]:
    if not isinstance(document, dict):
        return None, ["a study must be a table of settings."]
    wrong: list[str] = []
    known = {item.name for item in fields(FederationStudy)} | {"level"}
    wrong += [f"{key!r:.60} is not a setting of a study. Known: {', '.join(sorted(known))}."
              for key in document if key not in known]  # fmt: skip
    wrong += [f"{key} is missing." for key in _REQUIRED if key not in document]
    for key, kinds in _KINDS.items():
        if key in document and not _is_number(document[key], kinds):
            wanted = {"str": "a text", "int": "a whole number", "bool": "true or false"}[kinds[0].__name__]
            wanted = "a finite number" if float in kinds else wanted
            wrong.append(f"{key} must be {wanted}; got {document[key]!r:.60}.")
    levels, faults = _read_levels(document)
    wrong += faults
    ends = document.get("range", [0.0, 1.0])
    if not isinstance(ends, list | tuple) or len(ends) != 2 or not all(_is_number(end) for end in ends):
        wrong.append(f"range must be two finite numbers [low, high]; got {ends!r:.60}.")
    clients = document.get("clients", {})
    if not isinstance(clients, dict):
        wrong.append("clients must be tables, one [clients.NAME] each.")
        clients = {}
    terms: dict[str, ClientAgreement] = {}
    for name, table in clients.items():
        one, faults = _read_terms(str(name), table)
        wrong += faults
        if one is not None:
            terms[str(name)] = one
    if wrong:
        return None, wrong
    values = {key: document[key] for key in _KINDS if key in document and key != "level"}
    return FederationStudy(levels=levels, range=(ends[0], ends[1]), clients=terms, **values), []


def _read_levels(document: dict[str, Any]) -> tuple[tuple[float, ...], list[str]]:
    if "level" in document and "levels" in document:
        return (), ["level and levels exclude each other: level is one number, levels a list. Keep one of them."]
    if "levels" not in document:
        if "level" not in document:
            return (), ["level is missing: one number inside (0, 1), or levels, a list of them."]
        return (document["level"],), []
    levels = document["levels"]
    if not isinstance(levels, list | tuple) or not levels or not all(_is_number(level) for level in levels):
        return (), [f"levels must be a list of finite numbers, such as [0.1, 0.5, 0.9]; got {levels!r:.60}."]
    return tuple(levels), []


def _read_terms(name: str, table: object) -> tuple[ClientAgreement | None, list[str]]:
    where = f"clients.{name:.60}"
    if not isinstance(table, dict):
        return None, [f"{where} must be a table with epsilon, weight and records."]
    wrong = [f"{where}.{key:.60} is not a setting of a client." for key in table
             if key not in ("epsilon", "weight", "records", "level")]  # fmt: skip
    if "epsilon" not in table:
        wrong.append(
            f"{where}.epsilon is missing: the privacy budget of each record, chosen by people, never by default. "
            "1 is a common choice, 0.5 to 2 the usual range."
        )
    wrong += [f"{where}.{key} is missing." for key in ("weight", "records") if key not in table]
    for key in ("epsilon", "weight", "level"):
        if key in table and not _is_number(table[key]):
            wrong.append(f"{where}.{key} must be a finite number; got {table[key]!r:.60}.")
    if "records" in table and not _is_number(table["records"], (int,)):
        wrong.append(f"{where}.records must be a whole number; got {table['records']!r:.60}.")
    if wrong:
        return None, wrong
    level = table.get("level")
    return ClientAgreement(float(table["epsilon"]), float(table["weight"]), int(table["records"]),
                 None if level is None else float(level)), []  # fmt: skip
