"""Randomized response: what makes an answer private.

One record with truth b = 1{x > q} sends b with probability (1 + r)/2 and 1 − b otherwise, r being the client's
truth rate. The likelihood ratio of a report is then at most (1 + r)/(1 − r) = e^ε.

The coin is a 64-bit integer U, uniform on 0 … 2⁶⁴ − 1: the report is the truth iff U < N. All claims (ε, debiasing,
variance) use the *realised* rate r = 2N/2⁶⁴ − 1, so nothing is lost to rounding and no floating-point noise
leaves a client.
"""

import math
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privatile.core.kinds import EPSILON, checked
from privatile.errors import InputError

COINS = 1 << 64
"""Number of values of one coin."""

IMPOSSIBLE = 5.0
"""Standard errors beyond which a share of ones counts as impossible: an honest client reaches it once in 3.5 million
looks."""


# The formulas of one report, for numbers and for arrays of any library.


def yes_probability(rate: Any, above: Any) -> Any:
    """Probability of a yes where the share `above` of the records lies above q: (1−r)/2 + r·P(x > q)."""
    return (1.0 - rate) / 2.0 + rate * above


def debias(rate: Any, yes: Any) -> Any:
    """The inverse of `yes_probability`: an unbiased share of records above q from the share of reports that say yes."""
    return (yes - (1.0 - rate) / 2.0) / rate


def report_variance(rate: Any, rank: Any) -> Any:
    """Variance of one debiased report where P(x ≤ q) = F: σ² = (r⁻² − (2F − 1)²)/4 (Theorem 3.1)."""
    return (rate**-2 - (2.0 * rank - 1.0) ** 2) / 4.0


def rank_noise(weight: Any, rate: Any, records: Any) -> Any:
    """p²/(4r²n): the variance that answers of `records` records add to the mixture's rank, at most."""
    return (weight / rate) ** 2 / (4.0 * records)


@dataclass(frozen=True, init=False)
class RandomizedResponse:
    """Randomized response with an exact 64-bit threshold.

    ε = log((1 + r)/(1 − r)) = 2·artanh(r),  r = tanh(ε/2).

    >>> coin = RandomizedResponse.from_epsilon(1.0)
    >>> round(coin.truth_rate, 6), coin.epsilon <= 1.0
    (0.462117, True)
    >>> RandomizedResponse(0.5) == RandomizedResponse(0.5)
    True
    >>> RandomizedResponse(1.5)
    Traceback (most recent call last):
    ...
    privatile.errors.InputError: truth_rate must lie in (0, 1); got 1.5. To start from a budget use
    RandomizedResponse.from_epsilon(...).
    """

    threshold: int
    """Tell the truth iff the coin falls below this integer, 2⁶³ < threshold ≤ 2⁶⁴."""

    def __init__(self, truth_rate: float) -> None:
        rate = float(truth_rate)
        if rate == 1.0:
            raise InputError(
                "truth_rate 1 tells every truth: that is no privacy at all. If this is intended, ask for it by name: "
                "RandomizedResponse.not_private() (on the command line: --not-private)."
            )
        if not 0.0 < rate < 1.0:
            raise InputError(
                f"truth_rate must lie in (0, 1); got {rate!r}. To start from a budget use "
                "RandomizedResponse.from_epsilon(...)."
            )
        # Fraction(float) is exact, so the floor is too.
        self._set(math.floor(COINS * (1 + Fraction(rate)) / 2))

    def _set(self, threshold: int) -> None:
        if not COINS // 2 < threshold <= COINS:
            raise InputError(
                f"threshold must lie in (2^63, 2^64]; got {threshold}. A truth rate this close to 0 never gives "
                "an answer; choose a larger epsilon."
            )
        object.__setattr__(self, "threshold", threshold)

    @classmethod
    def from_threshold(cls, threshold: int) -> "RandomizedResponse":
        """The mechanism that tells the truth iff its coin falls below `threshold`."""
        coin = object.__new__(cls)
        coin._set(int(threshold))
        return coin

    @classmethod
    def from_epsilon(cls, epsilon: float) -> "RandomizedResponse":
        """The largest truth rate whose ε does not exceed `epsilon`: N = ⌊2⁶⁴·e^ε/(1 + e^ε)⌋, to 60 digits.

        >>> RandomizedResponse.from_epsilon(-1)
        Traceback (most recent call last):
        ...
        privatile.errors.OptionError: epsilon must lie in [1e-06, 40]; got -1. Smaller is more private; 1 is a
        common choice, 0.5 to 2 the usual range.
        """
        budget = checked("epsilon", EPSILON, epsilon)
        with localcontext() as context:
            context.prec = 60
            odds = Decimal(budget).exp()
            threshold = int((COINS * odds / (1 + odds)).to_integral_value(rounding=ROUND_FLOOR))
        return cls.from_threshold(threshold)

    @classmethod
    def not_private(cls) -> "RandomizedResponse":
        """Every record tells the truth; ε = ∞. For checks and comparisons, never by accident."""
        return cls.from_threshold(COINS)

    @property
    def truth_rate(self) -> float:
        """The realised r = 2N/2⁶⁴ − 1."""
        return (2 * self.threshold - COINS) / COINS

    @property
    def epsilon(self) -> float:
        """The realised ε = log(N/(2⁶⁴ − N)); ∞ without privacy."""
        flips = COINS - self.threshold
        return math.log1p((2 * self.threshold - COINS) / flips) if flips else math.inf

    @property
    def is_private(self) -> bool:
        """Whether any report can differ from the truth."""
        return self.threshold < COINS

    def respond(self, truth: NDArray[np.bool_], coins: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Reports for truths 1{x > q}, one coin per record: the truth iff coin < N.

        >>> import numpy as np
        >>> coin = RandomizedResponse(0.5)  # N = 3·2⁶²
        >>> coin.respond(np.array([True, True]), np.array([0, 2**64 - 1], dtype=np.uint64)).tolist()
        [True, False]
        """
        if not self.is_private:
            return truth
        lies: NDArray[np.bool_] = coins >= np.uint64(self.threshold)
        return lies ^ truth

    def debias(self, ones: float, length: float) -> float:
        """Unbiased share of records above q, from `ones` of `length` reports.

        >>> RandomizedResponse(0.5).debias(75, 100)
        1.0
        """
        return float(debias(self.truth_rate, ones / length))

    def impossible(self, ones: int, asked: int) -> bool:
        """Whether a share of ones lies outside [(1−r)/2, (1+r)/2] by more than `IMPOSSIBLE` standard errors.

        Honest randomized response gives no such share, whatever the truths: the client does not follow its truth rate.

        >>> coin = RandomizedResponse(0.5)
        >>> coin.impossible(760, 1000), coin.impossible(900, 1000), coin.impossible(100, 1000)
        (False, True, True)
        """
        rate = self.truth_rate
        # At either end of the interval the variance of a report is the same, (1 − r²)/4.
        return abs(ones - asked / 2.0) - rate * asked / 2.0 > IMPOSSIBLE * math.sqrt((1.0 - rate**2) * asked) / 2.0

    def variance(self, local_rank: float) -> float:
        """Variance of one debiased report where P(x ≤ q) = F.

        >>> RandomizedResponse(0.5).variance(0.5)
        1.0
        """
        return float(report_variance(self.truth_rate, local_rank))

    def rise(self, level: float) -> float:
        """How far a report of one lifts q, in steps: a = (1 − r + 2τr)/(2r) (Algorithm 1)."""
        rate = self.truth_rate
        return (1.0 - rate + 2.0 * level * rate) / (2.0 * rate)

    def fall(self, level: float) -> float:
        """How far a report of zero lowers q, in steps: b = (1 + r − 2τr)/(2r) (Algorithm 1)."""
        rate = self.truth_rate
        return (1.0 + rate - 2.0 * level * rate) / (2.0 * rate)
