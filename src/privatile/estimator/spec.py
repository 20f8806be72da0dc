"""A run's specification: everything public about it, as one frozen value that becomes JSON and back.

Two runs with the same specification and the same counts give the same result; its digest names it.
"""

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, MISSING, asdict, dataclass, fields, replace
from typing import Any, get_args, get_type_hints

from privatile.core.decoding import Document, parse_json
from privatile.core.kinds import LEVEL, ROUNDS, Choice, checked
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import LARGEST_LENGTH
from privatile.core.report_options import REPORT_ONLY
from privatile.core.scale import Scale, make_scale
from privatile.core.text import READS_EARLIER_FORMATS, canonical_json, short, text_digest
from privatile.errors import InputError
from privatile.estimator.clients import UNKNOWN_SIZE, Client, Survey, check_clients
from privatile.estimator.open_ended import End, OpenPlan
from privatile.estimator.plan import LocalLevel, Plan, plan_from_design
from privatile.estimator.schedule import (
    MAX_COUNTS,
    SELF_TUNING,
    Constant,
    Design,
    Mode,
    check_counts,
    parse_design,
)
from privatile.estimator.settings import ReportSettings
from privatile.estimator.straddle import StraddlePlan
from privatile.estimator.tuned import AutoPlan

VERSION = 4
"""4: the declaration about the values is called `value_kind`. 3: the open-ended design and its `end`."""

FROM_RECORDS = ("size", "precision")
"""Ways of weighting that follow from the numbers of records."""

THRESHOLD = re.compile("[0-9]{1,20}")
"""2⁶⁴ has 20 digits."""


@dataclass(frozen=True)
class ClientSpec:
    """One client: its threshold is its privacy, exactly."""

    name: str
    threshold: int
    weight: float
    records: int
    level: float | None = None
    """Its own level τ_k; none: the run's."""
    file_records: int = 0
    """Records its file holds, where all of them may be asked; otherwise not told (`UNKNOWN_SIZE`)."""
    holder: str = ""
    """Of a weight class, the client whose records they are."""
    weights: tuple[float, float] | None = None
    """Of a weight class, its smallest and its largest survey weight."""

    def __post_init__(self) -> None:
        if self.weights is not None:
            object.__setattr__(self, "weights", tuple(self.weights))

    @property
    def mechanism(self) -> RandomizedResponse:
        """Randomized response with the client's threshold."""
        return RandomizedResponse.from_threshold(self.threshold)


@dataclass(frozen=True)
class RunSpec(ReportSettings):
    """What is asked of whom, and how the answers are reported.

    Design "auto" becomes the design that it stands for: "tuned" for values declared continuous and for self-normalised
    intervals, which need a path that follows the quantile; else "straddle". From then on `values` says only how the
    answers are reported.

    Design "open" has no known end: every client's number of records is `UNKNOWN_SIZE`, and rounds are as long as they
    become (`estimator.open_plan`).
    """

    clients: tuple[ClientSpec, ...]
    scale: str
    low: float
    high: float
    _: KW_ONLY
    rounds: int | None = None
    mode: Mode | None = None
    local_level: LocalLevel = "global"
    end: End | None = None
    """Of an open-ended run: what was fixed about its end before the first answer."""
    version: int = VERSION

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.levels:
            raise InputError("a run needs at least one level.")
        for level in self.levels:
            checked("q", LEVEL, level)
        if len(set(self.levels)) < len(self.levels):
            raise InputError("every level may be asked for once only.")
        if len(self.levels) > 1 and any(client.level is not None for client in self.clients):
            raise InputError("clients with levels of their own go with one run level, not with several.")
        if self.design == "auto":
            object.__setattr__(self, "design", "tuned" if self.declared.continuous or self.needs_path else "straddle")
        if self.design not in (*SELF_TUNING, "open", "rounds"):
            parse_design(self.design)
        self._check_open()
        if self.mode is not None:
            checked("mode", Choice(*get_args(Mode)), self.mode)
        checked("local_level", Choice(*get_args(LocalLevel)), self.local_level)
        if self.rounds is not None:
            checked("rounds", ROUNDS, self.rounds)
        check_counts(self.rounds or 1, len(self.levels), len(self.clients))
        for client in self.clients:
            if not (client.records <= LARGEST_LENGTH and client.file_records <= LARGEST_LENGTH):
                raise InputError(f"records must be at most {LARGEST_LENGTH}; client {client.name!r:.60} has more.")
        # Checked now: once everybody has answered it is too late.
        for needed, what in (
            (self.interval == "smooth", "the smooth interval"),
            (self.interval == "any-shape", "the any-shape interval"),
            (self.until_width, "until_width"),
        ):
            if needed and self.round_mode == "local":
                raise InputError(
                    f"{what} needs cohort mode, where all records of a round answer about the same q; this run is "
                    "local. Choose mode='cohort', or leave the option out."
                )
        if self.needs_path and self.design in ("straddle", "open"):
            raise InputError(
                "self-normalised intervals (paper, l1 and sup among them) need a design that follows the quantile; "
                f"design {self.design} asks on both sides of it. Choose another interval, or ask with design tuned."
            )
        check_clients(self.at_level(0))
        self.working_scale  # noqa: B018  a range that no question can be placed in is refused here

    def _check_open(self) -> None:
        """An open-ended run knows no numbers beforehand, and only it has an end."""
        if self.design != "open":
            if self.end is not None:
                raise InputError(f"only design open has an end that is given; design {self.design} asks all records.")
            return
        if self.rounds is not None:
            raise InputError("design open has no number of rounds: leave out rounds, or fix the end as end.answers.")
        if self.target == "file" or self.mode == "local":
            raise InputError("design open asks whoever comes, in cohorts: leave out target='file' and mode='local'.")
        for client in self.clients:
            if client.records != UNKNOWN_SIZE or client.file_records not in (0, UNKNOWN_SIZE):
                raise InputError(
                    f"design open does not know how many records will answer: give client {client.name!r:.60} the "
                    f"number {UNKNOWN_SIZE} (UNKNOWN_SIZE); got {client.records}."
                )

    @property
    def round_mode(self) -> Mode:
        """What a client does inside a round; where no mode was chosen, the design decides."""
        if self.mode is not None or self.design in (*SELF_TUNING, "open", "rounds"):
            return self.mode or "cohort"
        return parse_design(self.design).mode

    @property
    def questions(self) -> "RunSpec":
        """The same run with all that no question depends on at its default: two such are one run, reported twice."""
        # A run that stops at a width is reported as it is asked: its interval decides where it stops. What is declared
        # about the values does not.
        free = REPORT_ONLY if self.until_width is None else ("value_kind",)
        plain: dict[str, Any] = {field.name: field.default for field in fields(self) if field.name in free}
        unknown = UNKNOWN_SIZE if self.design == "open" else 1
        clients = tuple(replace(client, records=unknown, file_records=0) for client in self.clients)
        if self.weighting in FROM_RECORDS:
            # Such weights, and the mean of the clients' own levels, follow from how many records may be asked.
            clients = tuple(replace(client, weight=1.0 / len(clients)) for client in clients)
            own = [client.level for client in clients if client.level is not None]
            plain["levels"] = (sum(own) / len(own),) if own else self.levels
        return replace(self, clients=clients, **plain)

    def reported_as(self, other: "RunSpec") -> "RunSpec":
        """This run, reported as `other` says."""
        return replace(self, **{name: getattr(other, name) for name in REPORT_ONLY})

    def with_report(self, **report: Any) -> "RunSpec":
        """This run with other values, interval, confidence level or target; refused where it was asked by them.

        A straddled run may be reported as continuous; a grid may be declared afterwards. A run that stopped at a width
        was asked until its interval was as narrow, so that interval stays.
        """
        other = replace(self, **report)
        if other.questions != self.questions:
            raise InputError(
                f"{', '.join(sorted(report))} cannot be changed for this run: its interval decided where it stopped. "
                "Report it as it was asked."
            )
        return other

    @property
    def working_scale(self) -> Scale:
        """Between units and the working scale."""
        return make_scale(self.scale, self.low, self.high)

    def at_level(self, level_index: int) -> tuple[Client, ...]:
        """The clients as this level sees them: each level gets its own fixed share of every client's records."""
        shares = len(self.levels)
        return tuple(
            Client(
                name=client.name,
                mechanism=client.mechanism,
                weight=client.weight,
                level=self.levels[level_index] if client.level is None else client.level,
                records=UNKNOWN_SIZE
                if self.design == "open"
                else client.records // shares + (level_index < client.records % shares),
                # Each level asks a share of the records about a quantile of them all.
                file_records=UNKNOWN_SIZE
                if client.file_records == UNKNOWN_SIZE
                else max(client.file_records, client.records),
                holder=client.holder,
            )
            for client in self.clients
        )

    def plan(self, level_index: int = 0) -> Plan:
        """The plan of one level."""
        clients = self.at_level(level_index)
        if self.design == "open":
            answers = None if self.end is None else self.end.answers
            return OpenPlan(clients, self.working_scale, local_level=self.local_level, answers=answers)
        if self.design in SELF_TUNING:
            kind = AutoPlan if self.design == "tuned" else StraddlePlan
            return kind(
                clients, self.working_scale, self.rounds, local_level=self.local_level, mode=self.mode or "cohort"
            )
        return plan_from_design(
            self.resolved_design,
            clients,
            self.working_scale,
            mode=self.mode,
            local_level=self.local_level,
            levels=len(self.levels),
        )

    @property
    def resolved_design(self) -> Design:
        """The design by name; `rounds` is equal rounds in cohort mode, a tenth of them dropped before averaging."""
        if self.design != "rounds":
            design = parse_design(self.design)
            return design if self.rounds is None else replace(design, rounds=self.rounds)
        smallest = min(client.records for client in self.at_level(len(self.levels) - 1))
        most = MAX_COUNTS // (len(self.levels) * len(self.clients))
        rounds = self.rounds if self.rounds is not None else max(2, min(1000, smallest, most))
        return Design("rounds", Constant(1), rounds=rounds, burn_in=0.1)

    def to_dict(self) -> dict[str, Any]:
        """Plain values. Thresholds are text: they need 65 bits."""
        plain = asdict(self)
        for client in plain["clients"]:
            client["threshold"] = str(client["threshold"])
        return plain

    def to_json(self) -> str:
        """One line, keys sorted: the same specification is always the same text."""
        return canonical_json(self.to_dict())

    @property
    def digest(self) -> str:
        """SHA-256 of the JSON text."""
        return text_digest(self.to_json())

    @classmethod
    def from_json(cls, text: str) -> "RunSpec":
        """Read what `to_json` wrote."""
        plain = parse_json(text, "the run specification")
        if not isinstance(plain, dict) or plain.get("version") != VERSION:
            found = plain.get("version") if isinstance(plain, dict) else None
            raise InputError(
                f"this is no run specification of version {VERSION}, but of version {short(found)}. Commit "
                f"{READS_EARLIER_FORMATS} of privatile reads earlier ones."
            )
        _check_fields(cls, plain)
        clients = tuple(ClientSpec(**{**client, "threshold": int(client["threshold"])}) for client in plain["clients"])
        survey = None if plain.get("survey") is None else Survey(**plain["survey"])
        end = None if plain.get("end") is None else End(**plain["end"])
        return cls(**{**plain, "clients": clients, "levels": tuple(plain["levels"]), "survey": survey, "end": end})


def _check_fields(kind: type[RunSpec], plain: Mapping[str, Any]) -> None:
    """Refuse fields that are missing, unknown or of another kind, all at once; what is there is not converted."""
    document = Document(plain, "the run specification")
    known, hints = {field.name: field for field in fields(kind)}, get_type_hints(kind)
    for name, field in known.items():
        if name not in plain and field.default is MISSING:
            document.add((name,), "is missing.")
    clients = plain.get("clients")
    for index, client in enumerate(clients if isinstance(clients, list) else ()):
        threshold = client.get("threshold") if isinstance(client, dict) else None
        if not isinstance(threshold, str) or not THRESHOLD.fullmatch(threshold):
            document.add(("clients", index, "threshold"), "must be a text of up to 20 digits.")
    document.finish()
    for name, given in plain.items():
        if name not in known:
            document.unknown((name,), known)
        else:
            read = (
                [{**client, "threshold": 0} for client in given]
                if name == "clients" and isinstance(given, list)
                else given
            )
            document.value(read, hints[name], (name,))
    document.finish()
