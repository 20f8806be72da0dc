"""Round lengths and steps as frozen values.

A schedule answers "how many records are asked in round m" (E_m), a step rule "how far does q move" (γ_m). Both are
values with a `table`; nothing here is random and nothing depends on data.

    γ_m = c·r̄/(m^a + b),  round m = 1, 2, … uses γ_{m−1};  the paper: c = 20, a = 0.51, b = 100
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from privatile.core.arrays import Floats
from privatile.core.messages import LARGEST_LENGTH
from privatile.errors import InputError

MAX_COUNTS = 5_000_000
"""Counts that a run may have: rounds × levels × clients. Their tables take 0.4 s and 120 MB; a run needs 200 rounds."""

MAX_CLIENT_LEVELS = 100_000
"""Clients × levels: each is looked at by itself, 30 µs."""

Lengths = NDArray[np.int64]
Mode = Literal["cohort", "local"]


@dataclass(frozen=True)
class Constant:
    """E'_j = length (C1 and C5 of the paper).

    >>> Constant(5).table(3).tolist()
    [5, 5, 5]
    """

    length: int

    def __post_init__(self) -> None:
        if self.length < 1:
            raise InputError(f"a round's length must be at least 1 record; got {self.length}.")

    def table(self, rounds: int) -> Lengths:
        """The first `rounds` lengths."""
        return np.full(rounds, self.length, dtype=np.int64)


@dataclass(frozen=True)
class Logarithmic:
    """E'_j = ⌈log₂(j + 1)⌉ (Log of the paper).

    >>> Logarithmic().table(8).tolist()
    [1, 2, 2, 3, 3, 3, 3, 4]
    """

    def table(self, rounds: int) -> Lengths:
        """The first `rounds` lengths."""
        # ⌈log₂(j + 1)⌉ is the bit length of j, exactly; frexp's exponent is that bit length.
        return np.frexp(np.arange(1, rounds + 1, dtype=np.float64))[1].astype(np.int64)


@dataclass(frozen=True)
class Power:
    """E'_j = ⌈j^β⌉.

    >>> Power(0.5).table(5).tolist()
    [1, 2, 2, 2, 3]
    """

    exponent: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.exponent <= 2.0:
            raise InputError(f"the exponent of round lengths must lie in [0, 2]; got {self.exponent!r}.")

    def table(self, rounds: int) -> Lengths:
        """The first `rounds` lengths."""
        powers = np.arange(1, rounds + 1, dtype=np.float64) ** self.exponent
        # Powers that are whole numbers in truth may come out some roundings above them, on each machine other ones.
        return np.ceil(powers * (1.0 - 1e-12)).astype(np.int64)


@dataclass(frozen=True)
class Listed:
    """Lengths given one by one."""

    lengths: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.lengths or min(self.lengths) < 1:
            raise InputError("a list of round lengths needs at least one round, each of at least 1 record.")

    def table(self, rounds: int) -> Lengths:
        """The first `rounds` lengths."""
        if rounds > len(self.lengths):
            raise InputError(f"the list holds {len(self.lengths)} round lengths; {rounds} were asked for.")
        return np.array(self.lengths[:rounds], dtype=np.int64)


LengthRule = Constant | Logarithmic | Power | Listed
"""Round lengths E'_1, E'_2, … after the warm-up."""


def lengths_by_rounds(rule: LengthRule, rounds: int, warm_up: int = 0) -> Lengths:
    """`warm_up` rounds of one record, then the rule, `rounds` in all ("fixed T" of the paper, Tables 3 and 4).

    >>> lengths_by_rounds(Constant(5), rounds=6, warm_up=2).tolist()
    [1, 1, 5, 5, 5, 5]
    """
    if not 0 <= warm_up <= rounds or rounds < 1:
        raise InputError(f"rounds must be at least 1 and warm-up between 0 and rounds; got {rounds} and {warm_up}.")
    return np.concatenate([np.ones(warm_up, dtype=np.int64), rule.table(rounds - warm_up)])


def check_counts(rounds: int, levels: int, clients: int) -> None:
    """Refuse a run of more counts than can be held, before anything is made of them.

    >>> check_counts(1_000_000, 50, 1)
    Traceback (most recent call last):
    ...
    privatile.errors.InputError: a run may have 5,000,000 counts (rounds × levels × clients); 1,000,000 rounds, \
50 levels and 1 client are 50,000,000. Ask for fewer rounds: 100 to 500 suffice for any number of records.
    """
    if levels * clients > MAX_CLIENT_LEVELS:
        raise InputError(
            f"clients × levels may be {MAX_CLIENT_LEVELS:,}; {clients:,} clients and {levels:,} levels are more. Ask "
            "for fewer levels."
        )
    if rounds * levels * clients > MAX_COUNTS:
        raise InputError(
            f"a run may have {MAX_COUNTS:,} counts (rounds × levels × clients); {rounds:,} rounds, {levels:,} "
            f"level{'s' if levels > 1 else ''} and {clients:,} client{'s' if clients > 1 else ''} are "
            f"{rounds * levels * clients:,}. Ask for fewer rounds: 100 to 500 suffice for any number of records."
        )


def check_rounds(rounds: int, most: int) -> None:
    """Refuse more rounds than can be held, before a table of them is made."""
    if rounds > most:
        raise InputError(
            f"the design has more than {most:,} rounds, and a run may have {MAX_COUNTS:,} counts (rounds × levels × "
            "clients). Ask for fewer rounds: 100 to 500 suffice for any number of records."
        )


def lengths_by_records(rule: LengthRule, records: int, warm_up: int = 0, most: int = MAX_COUNTS) -> Lengths:
    """`warm_up` rounds of one record, then the rule until `records` are used, the last round cut ("fixed t_T").

    More than `most` rounds are refused.

    >>> lengths_by_records(Constant(5), records=14, warm_up=2).tolist()
    [1, 1, 5, 5, 2]
    >>> len(lengths_by_records(Logarithmic(), records=10_000, warm_up=500))
    1549
    """
    if not 0 <= warm_up <= records or records < 1:
        raise InputError(f"records must be at least 1 and warm-up between 0 and records; got {records} and {warm_up}.")
    check_rounds(warm_up, most)
    left = records - warm_up
    # Every length is at least one, so that many rounds always suffice.
    rounds = len(rule.lengths) if isinstance(rule, Listed) else 16
    while (used := int((table := rule.table(rounds)).sum())) < left:
        if isinstance(rule, Listed):
            raise InputError(f"the listed lengths use {used} records; {left} are to be used.")
        check_rounds(warm_up + rounds + 1, most)
        rounds *= 2
    kept = np.diff(np.minimum(np.cumsum(table), left), prepend=0)
    return np.concatenate([np.ones(warm_up, dtype=np.int64), kept[kept > 0]])


def spread(lengths: Lengths, records: int) -> Lengths:
    """Lengths of the same shape that use exactly `records` records, each round at least one.

    Every round gets one record; the rest follows the shape of E_m − 1 (or is even where the shape is flat), so a
    client with ΣE_m records gets the schedule itself.

    >>> spread(np.array([1, 1, 5, 5]), 12).tolist()
    [1, 1, 5, 5]
    >>> spread(np.array([1, 1, 1, 1]), 10).tolist()
    [2, 3, 2, 3]
    >>> spread(np.array([1, 1, 1]), 2)
    Traceback (most recent call last):
    ...
    privatile.errors.InputError: 3 rounds need at least 3 records at every client; one client has 2. Ask for fewer
    rounds (rounds=2).
    """
    rounds = len(lengths)
    if records < rounds:
        raise InputError(
            f"{rounds} rounds need at least {rounds} records at every client; one client has {records}. Ask for fewer "
            f"rounds (rounds={records})."
        )
    shape = lengths - 1 if int(lengths.max()) > 1 else np.ones(rounds, dtype=np.int64)
    total, extra = int(shape.sum()), records - rounds
    if extra * total >= 1 << 62:
        raise InputError(f"{records} records in rounds of {total} are more than 64 bits can share out evenly.")
    ends = extra * np.cumsum(shape) // total
    result: Lengths = 1 + np.diff(ends, prepend=0)
    return result


@dataclass(frozen=True)
class DecayingStep:
    """γ_m = scale/(m^exponent + offset), round m using index m − 1 (the listing's η_{m−1}·E).

    >>> DecayingStep.paper(0.25).table(2).round(6).tolist()
    [0.05, 0.049505]
    """

    scale: float
    exponent: float = 0.51
    offset: float = 100.0

    def __post_init__(self) -> None:
        if not (self.scale > 0 and self.exponent >= 0 and self.offset >= 0) or not math.isfinite(self.scale):
            raise InputError(
                "a step rule needs scale > 0, exponent ≥ 0 and offset ≥ 0; got "
                f"{self.scale!r}, {self.exponent!r}, {self.offset!r}."
            )
        if self.offset == 0 and self.exponent > 0:
            raise InputError("a step rule needs offset > 0: the first round's step would be infinite.")

    @classmethod
    def paper(cls, mean_truth_rate: float) -> "DecayingStep":
        """20·r̄/(m^0.51 + 100), r̄ the plain mean of the clients' truth rates."""
        return cls(scale=20.0 * mean_truth_rate)

    def at(self, index: int) -> float:
        """γ_index: the step of round index + 1."""
        return self.scale / (math.pow(index, self.exponent) + self.offset)

    def table(self, rounds: int) -> Floats:
        """The steps of rounds 1 … `rounds`."""
        return self.scale / (np.arange(rounds, dtype=np.float64) ** self.exponent + self.offset)


@dataclass(frozen=True)
class Design:
    """A way to run: which lengths, how many, which mode, what is dropped before averaging starts.

    `warm_up` and `burn_in` are shares: the first of the records or rounds (whichever the design counts), the
    second of the rounds.
    """

    name: str
    rule: LengthRule
    mode: Mode = "cohort"
    warm_up: float = 0.0
    burn_in: float = 0.0
    rounds: int | None = None
    step_scale: float = 20.0
    step_exponent: float = 0.51
    step_offset: float = 100.0

    def __post_init__(self) -> None:
        for name in ("warm_up", "burn_in"):
            share = getattr(self, name)
            if not 0.0 <= share < 1.0:
                raise InputError(f"{name} is a share and must lie in [0, 1); got {share!r}.")
        if self.mode not in ("cohort", "local"):
            raise InputError(f"mode must be cohort or local; got {self.mode!r:.60}.")
        if self.rounds is not None and self.rounds < 2:
            raise InputError(f"rounds must be at least 2; got {self.rounds}.")

    def lengths(self, records: int, most: int = MAX_COUNTS) -> Lengths:
        """Base lengths for a client with `records` records: by rounds when the design fixes them, else by records.

        More than `most` rounds are refused.
        """
        if self.rounds is None:
            return lengths_by_records(self.rule, records, round(self.warm_up * records), most)
        check_rounds(self.rounds, most)
        base = lengths_by_rounds(self.rule, self.rounds, round(self.warm_up * self.rounds))
        if int(base.sum()) > records:
            raise InputError(
                f"design {self.name} with {self.rounds} rounds asks {int(base.sum())} records of each client; the "
                f"smallest has {records}. Ask for fewer or shorter rounds."
            )
        return base

    def client_lengths(self, records: Sequence[int], levels: int = 1) -> Lengths:
        """Lengths by client (rows) and round (columns): every client's records are used once each.

        A list of lengths is used exactly as given: the same cohorts of every client, the other records unasked.

        >>> Design("demo", Constant(1), rounds=3).client_lengths([3, 7]).tolist()
        [[1, 1, 1], [2, 2, 3]]
        """
        base = self.lengths(min(records), MAX_COUNTS // (levels * len(records)))
        if isinstance(self.rule, Listed):
            return np.tile(base, (len(records), 1))
        return np.stack([spread(base, count) for count in records])

    def steps(self, rounds: int, mean_truth_rate: float) -> Floats:
        """Effective steps of rounds 1 … `rounds`."""
        return DecayingStep(self.step_scale * mean_truth_rate, self.step_exponent, self.step_offset).table(rounds)


PRESETS = {
    "paper-c1": Design("paper-c1", Constant(1), mode="local", warm_up=0.05),
    "paper-c5": Design("paper-c5", Constant(5), mode="local", warm_up=0.05),
    "paper-log": Design("paper-log", Logarithmic(), mode="local", warm_up=0.05),
}
"""Algorithm 1 exactly as published: local mode, 5% warm-up by records, the paper's step, no burn-in."""

SELF_TUNING = ("straddle", "tuned")
"""Designs that tune themselves: straddle the quantile, for every distribution; or follow it with a tuned step, for
values declared continuous. "auto" is one of them (`RunSpec`)."""

NAMES = (*SELF_TUNING, "open", "rounds", *PRESETS, "log", "constant:E", "power:B", "list:E,E,…")
"""Every design by the name it has in files; `RunSpec.plan` makes the first four."""


def parse_design(text: str) -> Design:
    """A design by name: a preset, or lengths in words, then in cohort mode and without the first tenth of the rounds.

    `constant:E`, `log`, `power:B` cut the records into rounds that way; `list:5,5,10` asks exactly these rounds.

    >>> parse_design("paper-c5").mode, parse_design("power:0.5").rule, parse_design("list:5,5,10").rounds
    ('local', Power(exponent=0.5), 3)
    >>> parse_design("fibonacci")
    Traceback (most recent call last):
    ...
    privatile.errors.InputError: design must be one of auto, straddle, tuned, open, rounds, paper-c1, paper-c5,
    paper-log, log, constant:E, power:B, list:E,E,…; got 'fibonacci'.
    """
    if text in PRESETS:
        return PRESETS[text]
    kind, _, argument = text.partition(":")
    try:
        if text == "log":
            return Design(text, Logarithmic(), burn_in=0.1)
        if kind == "constant":
            return Design(text, Constant(_whole(argument)), burn_in=0.1)
        if kind == "power":
            return Design(text, Power(float(argument)), burn_in=0.1)
        if kind == "list":
            lengths = tuple(_whole(part) for part in argument.split(","))
            return Design(text, Listed(lengths), rounds=len(lengths))
    except InputError:
        raise
    except ValueError:
        pass
    raise InputError(f"design must be one of auto, {', '.join(NAMES)}; got {text!r:.60}.")


def _whole(text: str) -> int:
    """A round's length; more records than a double counts exactly are no length."""
    if len(text) > len(str(LARGEST_LENGTH)):
        raise InputError(f"a round's length must be a whole number from 1 to {LARGEST_LENGTH}; got a longer text.")
    return int(text)
