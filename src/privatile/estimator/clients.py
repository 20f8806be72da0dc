"""Clients as the coordinator knows them, and what was done about their survey weights.

What was done about the survey weights of a run's records: all of it is public.

Clients as the coordinator knows them: budget, weight, level, number of records.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from privatile.core.kinds import LEVEL, checked
from privatile.core.mechanism import RandomizedResponse, rank_noise
from privatile.errors import InputError

PROMISED = 1.1
"""Variance over that of Kish's effective number up to which a survey is inside the domain that the docs promise."""


@dataclass(frozen=True)
class Survey:
    """A run over weighted records: its clients are weight classes, each with its share of the total weight."""

    column: str
    """The column of the weights."""
    records: int
    """Records with a weight above 0, those who did not take part included."""
    effective: float
    """Kish's effective number, (Σw)²/Σw²; with weights between clients, the number with the same variance."""
    variance: float
    """The variance of those who took part, over that of the effective number."""
    widest: float
    """The largest ratio of two weights of one class."""
    joined: bool
    """Whether classes had too few records and were joined with their neighbours."""

    @classmethod
    def agreed(cls) -> "Survey":
        """Of a federation: classes and shares are agreed in the study, each site thins by itself."""
        return cls("survey weights", 0, 0.0, 1.0, 1.0, False)

    @property
    def costly(self) -> str:
        """In words, what the thin tail of the weights costs; empty where the variance is as promised.

        >>> Survey("w", 5000, 3500.0, 1.07, 1.2, False).costly
        ''
        >>> print(Survey("w", 5000, 3500.0, 1.16, 2.2, True).costly)
        The survey weights cost more than usual: the variance is 1.16 times that of Kish's effective number, where at
        most 1.1 times is promised. Few records have the largest weights, so that they share a class with lighter ones,
        many of which are left out. The interval holds and is wider. Trimmed weights or more records help.
        """
        if self.variance <= PROMISED:
            return ""
        return (
            f"The survey weights cost more than usual: the variance is {self.variance:.3g} times that of Kish's "
            f"effective number, where at most {PROMISED:g} times is promised. Few records have the largest weights, so "
            "that they share a class with lighter ones, many of which are left out. The interval holds and is wider. "
            "Trimmed weights or more records help."
        )

    def to_text(self, classes: int, asked: int) -> str:
        """What a reader of the result must know.

        >>> Survey("w", 5000, 3500.0, 1.07, 1.2, False).to_text(20, 4300).partition(" Inside")[0]
        'Survey weights: 5,000 records with weights (column w) in 20 classes.'
        >>> [text in Survey("w", 5000, 3500.0, 1.0, 1.0, False).to_text(2, 5000) for text in ("all of them", "others")]
        [True, False]
        """
        if not self.records:
            return (
                "Survey weights: the study has weight classes, each with an agreed share of the total weight. Inside a "
                "class a record takes part with probability weight / largest weight, by a draw of its site that is "
                "made once; the others are not asked and pay nothing. Weights and the sizes of classes are not "
                "protected."
            )
        joined = (
            f" Classes with too few records for every round were joined with their neighbours: weights of one class "
            f"differ by a factor of up to {self.widest:.3g}."
            if self.joined
            else ""
        )
        who = f"{asked:,} take part, the others are not asked and pay nothing"
        who = "here all of them take part" if asked == self.records else who
        return (
            f"Survey weights: {self.records:,} records with weights (column {self.column}) in {classes} classes. "
            "Inside a class a record takes part with probability weight / largest weight, by a draw of its holder that "
            f"is made once; {who}.{joined} The variance is {self.variance:.3g} times that of Kish's "
            f"effective number, {self.effective:,.0f}. Weights and the sizes of classes are not protected."
        )


ROUNDED = 1e-6
"""How far from 1 the sum of written weights may be, per client: with six decimals each is off by half of this."""

UNITY = 1e-9
"""How far from 1 a sum of weights may be: the rounding of the sum itself, of up to 10⁶ clients."""

UNKNOWN_SIZE = -1
"""For the size of a file of which earlier runs have asked some records, or whose missing values are left out.

The size beside the number asked would tell how many had answered elsewhere: whether one person had, where it is one.
"""


@dataclass(frozen=True)
class Client:
    """What the coordinator knows of a client: all of it public."""

    name: str
    mechanism: RandomizedResponse
    weight: float
    level: float
    records: int
    """Records that may be asked."""
    file_records: int = 0
    """Records the client's file holds; 0: those that may be asked; `UNKNOWN_SIZE` where that is not told."""
    holder: str = ""
    """Of a weight class, the client whose records they are."""

    @property
    def held_by(self) -> str:
        """The client whose records these are: itself, unless it is a weight class."""
        return self.holder or self.name

    @property
    def file_size(self) -> float:
        """Records of the file, where the file itself is the target; ∞ where that is not told, which is cautious."""
        return math.inf if self.file_records == UNKNOWN_SIZE else max(self.file_records, self.records)

    def noise(self, records: int) -> float:
        """p²/(4r²n): the variance that answers of `records` records add to the mixture's rank, at most."""
        return float(rank_noise(self.weight, self.mechanism.truth_rate, records))

    def rank_variance(self, level: float) -> float:
        """p²σ²/n: the same at rank `level`, when all records have answered."""
        return self.weight**2 * self.mechanism.variance(level) / self.records


def checked_sum(weights: Mapping[str, float], slack: float = UNITY) -> float:
    """The sum of weights, which must be positive and sum to 1 up to `slack`."""
    for name, weight in weights.items():
        if not (math.isfinite(weight) and weight > 0):
            raise InputError(f"weights must be positive; got {weight!r} for {name!r}. Leave it out instead.")
    total = math.fsum(weights.values())
    if abs(total - 1.0) > slack:
        raise InputError(f"weights must sum to 1; they sum to {total:.12g}. Divide each by {total:.12g}.")
    return total


def shares(weights: Mapping[str, float]) -> dict[str, float]:
    """Weights as people write them, divided by their sum; refused where they are no shares.

    The run's level is Σp_kτ_k: what rounding leaves over would move it.

    >>> shares({"north": 0.333333, "east": 0.333333, "south": 0.333333})["south"] == 1 / 3
    True
    >>> shares({"north": 0.5, "south": 0.4})
    Traceback (most recent call last):
    ...
    privatile.errors.InputError: weights must sum to 1; they sum to 0.9. Divide each by 0.9.
    """
    total = checked_sum(weights, ROUNDED * len(weights))
    return {name: weight / total for name, weight in weights.items()}


def check_clients(clients: Sequence[Client]) -> None:
    """Names differ, weights are shares that sum to one, levels lie inside (0, 1)."""
    if not clients:
        raise InputError("a run needs at least one client.")
    ((name, times),) = Counter(client.name for client in clients).most_common(1)
    if times > 1:
        raise InputError(f"client names must differ; {name!r} appears {times} times.")
    for client in clients:
        checked(f"level of client {client.name}", LEVEL, client.level)
    checked_sum({client.name: client.weight for client in clients})


def pooled_noise(clients: Sequence[Client]) -> float:
    """s² = Σ p_k²/(4 r_k² n_k): the variance left in a rank when every record has answered once.

    >>> pooled_noise([Client("all", RandomizedResponse(0.5), 1.0, 0.5, 10_000)])
    0.0001
    """
    return math.fsum(client.noise(client.records) for client in clients)
