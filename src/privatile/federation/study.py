"""The study file: what is asked, of whom, at what privacy budget. Its digest is what all parties agree to.

Survey weights in a federation: weight classes of a site are clients of the study, agreed like everything else.

    [clients.north-1]
    site = "north"            # whose records these are: all classes of a site have the same
    weights = [1.0, 1.2]      # the smallest and the largest weight of the class

A site joins once for each of its classes, with one file and one folder. It takes the records of the class from its file
and lets each take part with probability w/w_max, by its own draw (`client.order.strata`). Shares of the total weight,
numbers of records and bounds are agreed in the study and are public.

Open studies: records arrive over weeks, and nobody knows how many. What is fixed about them beforehand.

    design = "open"

    [arrivals]
    round_answers = 0       # answers after which a round closes; 0: as many as `round_length` says
    end_date = ""           # the run ends at this date, …
    end_answers = 0         # … after so many answers, …
    end_width = 0.0         # … or when the interval is so narrow; all empty: by command

`deadline` is how many seconds a round is open, once somebody has answered. A client's `records` is the most that it
will be asked for, and its weight is given beforehand, never by who comes.

The rules of a study: every one that is broken is told, with the place of the setting.

The study file: what is asked, of whom, at what privacy budget. One TOML file, checked whole, hashed once.

Everything two honest parties must agree on is here, and nothing else: a client signs and answers for the SHA-256 of
the canonical text (`FederationStudy.digest`), so a study edited during a run is another study.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from privatile.client.order.weights import AgreedClass
from privatile.client.sources.source import ONLY_CLIENT
from privatile.core.decoding import BrokenRules, Document, Place, read_toml
from privatile.core.extensions import KNOWN, Extension, of_study
from privatile.core.kinds import LARGEST_EPSILON, STRONGEST_EPSILON, WEAK_EPSILON, declaration
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import LARGEST_LENGTH, Missing
from privatile.core.scale import SCALES, check_range
from privatile.core.text import Hashed, moment, short
from privatile.errors import InputError
from privatile.estimator.clients import UNITY, UNKNOWN_SIZE, Survey
from privatile.estimator.open_ended import End, seconds_of
from privatile.estimator.plan import TablePlan
from privatile.estimator.schedule import MAX_COUNTS, Mode
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.federation.wire import MAX_ASK, MAX_LEVELS, NAME
from privatile.run.rounds import ROUND_LENGTH


def agreed_class(clients: "Mapping[str, ClientAgreement]", client: str) -> AgreedClass | None:
    """The weight class that a client answers for, with all classes of its site; None where it has no weights."""
    own = clients[client]
    if own.weights is None:
        return None
    every = (one.weights for one in clients.values() if one.site == own.site and one.weights is not None)
    return AgreedClass(own.weights, tuple(sorted(every)))


def name_in_ledger(clients: "Mapping[str, ClientAgreement]", client: str) -> str:
    """A site has one name for itself in its ledger, whatever a study calls it, and one for each weight class."""
    found = agreed_class(clients, client)
    return ONLY_CLIENT if found is None else found.name


def broken_classes(clients: "Mapping[str, ClientAgreement]") -> Iterator[tuple[str, ...]]:
    """Broken rules, each followed by its place among the clients."""
    sites: dict[str, list[tuple[tuple[float, float], str]]] = {}
    for name, agreement in clients.items():
        if (agreement.weights is None) != (agreement.site is None):
            yield "site and weights go together: whose records they are, and the weights of the class.", name
        elif agreement.weights is not None and agreement.site is not None:
            low, high = agreement.weights
            if not 0.0 < low <= high:
                rule = f"must be positive and rise: the smallest and the largest weight; got {low:g} to {high:g}."
                yield rule, name, "weights"
            sites.setdefault(agreement.site, []).append((agreement.weights, name))
    for own in sites.values():
        for ((_, high), _), ((low, _), name) in pairwise(sorted(own)):
            if low <= high:
                yield "the classes of one site must not overlap: its records would answer twice.", name, "weights"


LEFT_OUT = ("rounds", "mode", "quorum", "patience")
"""Settings that an open study does not have."""

PATIENCE = 5
"""Silent rounds of one client after which a run pauses, unless a study says otherwise; an open one waits for nobody."""


@dataclass(frozen=True)
class Arrivals:
    """When the rounds of an open study close, and when it ends.

    >>> Arrivals(end_answers=5000).end, Arrivals(end_date="2027-01-31").end
    (End(date=None, answers=5000), End(date='2027-01-31T00:00:00Z', answers=None))
    """

    round_answers: int = 0
    """Answers after which a round closes; 0: as many as `round_length` says."""
    end_date: str = ""
    """Date or moment (ISO 8601; without a zone it is UTC) at which the run ends; empty: none."""
    end_answers: int = 0
    """Answers after which it ends; 0: none."""
    end_width: float = 0.0
    """Width of the interval, in units, at which it ends; 0: none."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "end_width", float(self.end_width))

    @property
    def ends_at(self) -> float:
        """When the run ends, in seconds since 1970; infinity without a date."""
        return seconds_of(self.end_date) if self.end_date else math.inf

    @property
    def end(self) -> End | None:
        """The end that is fixed before the first answer; none where it is not."""
        if not (self.end_date or self.end_answers):
            return None
        return End(moment(self.ends_at) if self.end_date else None, self.end_answers or None)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, in the order of the file."""
        return asdict(self)


REMARKS = {
    "round_answers": f"  # answers after which a round closes; 0: {ROUND_LENGTH}",
    "end_date": "  # the run ends at this date, …",
    "end_answers": "  # … after so many answers, …",
    "end_width": "  # … or when the interval is so narrow, in units; all empty: by command",
}


def broken_arrivals(study: "FederationStudy") -> Iterator[tuple[str, ...]]:
    """Broken rules of an open study, each followed by its place."""
    arrivals = study.arrivals
    if arrivals is None:
        return
    if not study.is_open:
        yield 'is for open studies, where nobody knows how many records come: set design = "open".', "arrivals"
        return
    for name, given, default in (
        ("rounds", study.rounds, 0),
        ("mode", study.mode, "cohort"),
        ("quorum", study.quorum, len(study.clients)),
        ("patience", study.patience, PATIENCE),
    ):
        if given != default:
            yield (
                f"an open study has none: its rounds close by number and time. Leave it out; got {short(given)}.",
                name,
            )
    if len(study.levels) > 1:
        yield "an open study asks for one level: make a study for each, of other people.", "levels"
    for name, agreement in study.clients.items():
        if agreement.weights is not None:
            yield "an open study has no weight classes: their sizes must be known beforehand.", "clients", name
    for name in ("round_answers", "end_answers"):
        number = getattr(arrivals, name)
        if not 0 <= number <= LARGEST_LENGTH:
            yield f"must lie in 0 to {LARGEST_LENGTH}; got {short(number)}.", "arrivals", name
    if not (math.isfinite(arrivals.end_width) and arrivals.end_width >= 0.0):
        yield f"must be a width of 0 or more; got {short(arrivals.end_width)}.", "arrivals", "end_width"
    if arrivals.end_date:
        try:
            seconds_of(arrivals.end_date)
        except (ValueError, OverflowError):
            example = "2027-01-31, or 2027-01-31T18:00Z"
            yield f"must be a date such as {example}; got {arrivals.end_date!r:.40}.", "arrivals", "end_date"


def shared_out(answers: int, weights: Mapping[str, float], left: Mapping[str, int]) -> dict[str, int]:
    """How many records of every client may take part in a round of `answers`: by its weight, at least one.

    `left` is how many each may still be asked for. It depends on numbers alone, never on an answer.

    >>> shared_out(25, {"north": 0.7, "south": 0.3}, {"north": 1000, "south": 5})
    {'north': 18, 'south': 5}
    """
    return {name: max(1, min(math.ceil(weight * answers), left[name])) for name, weight in weights.items()}


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
    if not 1 <= len(levels) <= MAX_LEVELS:
        add(f"a study has 1 to {MAX_LEVELS} levels, so that an answer fits; got {len(levels)}.", "levels")
    try:
        check_range(low, high)
    except InputError as error:
        add(str(error).removeprefix("range "), "range")
    if study.scale == "log" and low <= 0.0 and low < high:
        add(f'must be positive on the log scale; got {low:g} to {high:g}. Use scale = "linear".', "range")
    if study.scale not in SCALES:
        add(f"must be one of {', '.join(SCALES)}; got {study.scale!r:.60}.", "scale")
    try:
        declaration(study.value_kind)
    except InputError as error:
        add(str(error).removeprefix("value_kind "), "value_kind")
    if not 0.0 < study.confidence_level < 1.0:
        add(f"must lie inside (0, 1); got {study.confidence_level}. 0.95 is the usual choice.", "confidence_level")
    if not study.is_open and not 1 <= study.rounds <= MAX_COUNTS:
        add(f"must lie in 1 to {MAX_COUNTS:,}; got {short(study.rounds)}. 100 to 500 suffice.", "rounds")
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
    if size > MAX_ASK:
        add(
            f"a round's questions would take {size:,} bytes, and a message may have {MAX_ASK:,}: ask for fewer "
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
    value_kind: str = "any"
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
            value_kind=self.value_kind,
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
    "value_kind": "  # any; continuous; whole or step=NUMBER where every value is a multiple of it",
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
