"""The same algorithms in plain Python, lane by lane, for the kernels to be held against."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Uint32 = Callable[[], int]
MASK = 0xFFFFFFFF


def xoshiro128pp(state: Sequence[int]) -> Uint32:
    """Blackman and Vigna's reference code, transcribed."""
    s = [int(word) for word in state]

    def rotl(x: int, k: int) -> int:
        return ((x << k) | (x >> (32 - k))) & MASK

    def draw() -> int:
        result = (rotl((s[0] + s[3]) & MASK, 7) + s[0]) & MASK
        t = (s[1] << 9) & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = rotl(s[3], 11)
        return result

    return draw


def algorithm_1(
    start: float,
    report: Callable[[int, float], bool],
    rates: Sequence[float],
    shares: Sequence[float],
    level: float,
    lengths: Sequence[int],
    steps: Sequence[float],
    *,
    in_cohort: bool = False,
) -> list[float]:
    """Algorithm 1 to the letter: q after each round; `report(k, q)` gives client k's randomized report about q."""
    q, found = start, []
    for length, gamma in zip(lengths, steps, strict=True):
        ends = []
        for k, r in enumerate(rates):
            eta, own = gamma / length, q
            for _ in range(length):
                if report(k, q if in_cohort else own):
                    own += (1 - r + 2 * level * r) / (2 * r) * eta
                else:
                    own -= (1 + r - 2 * level * r) / (2 * r) * eta
            ends.append(own)
        q = sum(p * end for p, end in zip(shares, ends, strict=True))
        found.append(q)
    return found


def algorithm_2(queries: Sequence[float], lengths: Sequence[int]) -> tuple[float, float]:
    """Q_T and V straight from their definitions."""
    means, total = [], 0.0
    for m, q in enumerate(queries, start=1):
        total += q
        means.append(total / m)
    rounds, last = len(means), means[-1]
    whole = sum(1 / length for length in lengths)
    value = sum(
        (m / rounds) ** 2 * (mean - last) ** 2 / length
        for m, (mean, length) in enumerate(zip(means, lengths, strict=True), 1)
    )
    return last, value / whole
