"""Stored runs: what was asked, the counts, and the ends; drawn once, replayed ever after.

`python -m tests.golden.make replays` draws them anew: never needed while the program decides as it did.
`python -m tests.golden.make looks` keeps questions and counts, and writes only what the results say anew.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from tests.golden.differences import differences as different_values
from tests.golden.replayed import Asked, Replayed, mechanism, to_working

REPLAYS = Path(__file__).with_name("replays.json")

CLOSE = 1e-9
"""Of the width of the interval in the end: as far may a question or an end be from the stored one."""
OF_RANGE = 1e-13
"""Of the range: the same where that width is next to nothing."""
BITS = 1e-14
"""Share by which answers are changed to find near ties."""
COPIES = 6
"""How often they are changed."""
LOOKS = (0.25, 0.5, 1.0)
"""Shares of the rounds after which the ends are stored."""

Law = Callable[[float], float]
"""P(X ≤ x), in units."""


def normal(middle: float, spread: float) -> Law:
    return NormalDist(middle, spread).cdf


def whole(middle: float, spread: float) -> Law:
    """A normal law rounded to whole numbers."""
    return lambda x: NormalDist(middle, spread).cdf(math.floor(x) + 0.5)


def lognormal(middle: float, spread: float) -> Law:
    return lambda x: NormalDist(math.log(middle), spread).cdf(math.log(x)) if x > 0 else 0.0


def atoms(x: float) -> float:
    return 0.6 * NormalDist(50.0, 20.0).cdf(x) + 0.25 * (x >= 40.0) + 0.15 * (x >= 0.0)


def two_values(x: float) -> float:
    """Nine of ten people have 40, the others 60."""
    return 0.9 * (x >= 40.0) + 0.1 * (x >= 60.0)


def gap(x: float) -> float:
    """Half of the people between 20 and 40, half between 60 and 80."""
    return 0.5 * min(max((x - 20.0) / 20.0, 0.0), 1.0) + 0.5 * min(max((x - 60.0) / 20.0, 0.0), 1.0)


def clients(*given: tuple[float | None, float, int]) -> list[tuple[float | None, float, int, float | None]]:
    """Budget, weight and records of each; the level is the run's."""
    return [(*one, None) for one in given]


ONE = clients((1.0, 1.0, 12_000))
FEW = clients((1.0, 1.0, 900))
TWO = clients((1.0, 0.5, 6000), (2.0, 0.5, 4000))
THREE = clients((1.0, 0.5, 8000), (0.5, 0.2, 9000), (2.0, 0.3, 5000))
UNEQUAL = clients((1.0, 0.7, 20_000), (1.0, 0.25, 3000), (4.0, 0.05, 400))
FIVE = clients(*[(1.0, 0.2, 3000 + 500 * k) for k in range(5)])
STRATA = clients((1.0, 0.6, 60), (1.0, 0.3, 30), (1.0, 0.1, 8))
"""Of an open-ended run: how many come to a round, about."""
OWN = [(1.0, 0.5, 6000, 0.4), (1.0, 0.3, 5000, 0.5), (2.0, 0.2, 3000, 0.7)]

IN_100 = {"scale": "linear", "range": (0, 100)}
STRADDLE = {**IN_100, "design": "straddle", "levels": (0.5,)}
OPEN = {**IN_100, "design": "open", "levels": (0.5,)}
TUNED = {**IN_100, "design": "tuned", "levels": (0.5,), "values": "continuous"}
ROUNDS = {**IN_100, "design": "rounds", "levels": (0.5,)}
SILENCE = 0.15
"""Share of the rounds that a client misses, where clients are silent."""

RUNS: dict[str, tuple[dict[str, Any], Law, dict[str, Any]]] = {
    "straddle": ({**STRADDLE, "clients": ONE, "rounds": 60}, normal(55, 10), {}),
    "straddle, default rounds": ({**STRADDLE, "clients": FEW}, normal(42, 15), {}),
    "straddle, 20 rounds": ({**STRADDLE, "clients": TWO, "rounds": 20}, normal(70, 5), {}),
    "straddle, three clients, silent": (
        {**STRADDLE, "clients": THREE, "rounds": 60},
        normal(30, 12),
        {"silent": SILENCE},
    ),
    "straddle, five clients, silent, coins kept": (
        {**STRADDLE, "clients": FIVE, "rounds": 50, "levels": (0.8,)},
        normal(60, 8),
        {"silent": SILENCE, "unspent": 0.5},
    ),
    "straddle, weights, low level": ({**STRADDLE, "clients": UNEQUAL, "rounds": 60, "levels": (0.05,)}, gap, {}),
    "straddle, whole numbers": ({**STRADDLE, "clients": ONE, "rounds": 60, "values": "whole"}, whole(7, 3), {}),
    "straddle, whole numbers, undeclared": ({**STRADDLE, "clients": TWO, "rounds": 70}, whole(47, 4), {}),
    "straddle, atoms": ({**STRADDLE, "clients": THREE, "rounds": 60}, atoms, {}),
    "straddle, two values": (
        {**STRADDLE, "clients": clients((1.0, 1.0, 9000)), "rounds": 60, "levels": (0.9,)},
        two_values,
        {},
    ),
    "straddle, gap at the median": ({**STRADDLE, "clients": ONE, "rounds": 60}, gap, {}),
    "straddle, below the range": ({**STRADDLE, "clients": TWO, "rounds": 40, "levels": (0.1,)}, normal(-5, 8), {}),
    "straddle, log": (
        {**STRADDLE, "scale": "log", "range": (1e3, 1e6), "clients": THREE, "rounds": 60, "levels": (0.9,)},
        lognormal(4e4, 0.6),
        {"silent": 0.05},
    ),
    "straddle, logit": (
        {**STRADDLE, "scale": "logit", "range": (0, 1), "clients": TWO, "rounds": 50},
        normal(0.3, 0.1),
        {},
    ),
    "straddle, three levels at once": (
        {**STRADDLE, "clients": THREE, "rounds": 50, "levels": (0.25, 0.5, 0.9), "simultaneous": True},
        normal(50, 12),
        {},
    ),
    "straddle, five levels, whole numbers": (
        {**STRADDLE, "clients": ONE, "rounds": 40, "levels": (0.1, 0.25, 0.5, 0.75, 0.9), "values": "whole"},
        whole(20, 9),
        {},
    ),
    "straddle, until a width": ({**STRADDLE, "clients": ONE, "rounds": 80, "until_width": 6.0}, normal(55, 10), {}),
    "straddle, until a width, levels, silent": (
        {**STRADDLE, "clients": THREE, "rounds": 60, "until_width": 5.0, "levels": (0.3, 0.6), "simultaneous": True},
        normal(45, 9),
        {"silent": 0.1},
    ),
    "straddle, the file": ({**STRADDLE, "clients": TWO, "rounds": 60, "target": "file"}, normal(25, 6), {}),
    "straddle, 80%": ({**STRADDLE, "clients": FIVE, "rounds": 40, "confidence_level": 0.8}, normal(75, 9), {}),
    "straddle, smooth": ({**STRADDLE, "clients": ONE, "rounds": 60, "interval": "smooth"}, normal(35, 10), {}),
    "straddle, declared continuous": (
        {**STRADDLE, "clients": THREE, "rounds": 60, "values": "continuous"},
        normal(65, 10),
        {"silent": 0.1},
    ),
    "straddle, steps of 5": ({**STRADDLE, "clients": TWO, "rounds": 50, "values": "step=5"}, whole(50, 12), {}),
    "straddle, levels of their own": (
        {**STRADDLE, "clients": OWN, "rounds": 50, "levels": (0.49,), "own_levels": True},
        normal(50, 10),
        {},
    ),
    "straddle, a near tie": ({**STRADDLE, "clients": clients((1.0, 1.0, 400)), "rounds": 40}, whole(51, 3), {}),
    "straddle, not private": (
        {**STRADDLE, "clients": clients((None, 1.0, 2000)), "rounds": 50},
        normal(50, 10),
        {},
    ),
    "open": ({**OPEN, "clients": STRATA}, normal(60, 10), {"stop": 90}),
    "open, one client": ({**OPEN, "clients": clients((1.0, 1.0, 120)), "levels": (0.8,)}, normal(40, 10), {"stop": 70}),
    "open, an end by answers": ({**OPEN, "clients": STRATA, "answers": 6000}, normal(52, 7), {"stop": 200}),
    "open, until a width": ({**OPEN, "clients": STRATA, "until_width": 6.0}, normal(60, 10), {"stop": 150}),
    "open, whole numbers": ({**OPEN, "clients": STRATA, "values": "whole"}, whole(30, 6), {"stop": 80}),
    "open, a quantile that moves": (
        {**OPEN, "clients": clients((3.0, 0.6, 60), (3.0, 0.3, 30), (3.0, 0.1, 8))},
        normal(50, 10),
        {"stop": 110, "moves": 60, "then": normal(60, 10)},
    ),
    "open, two levels": ({**OPEN, "clients": STRATA, "levels": (0.25, 0.75)}, normal(48, 14), {"stop": 60}),
    "tuned": ({**TUNED, "clients": ONE, "rounds": 80}, normal(55, 10), {}),
    "tuned, default rounds": ({**TUNED, "clients": FEW}, normal(48, 10), {}),
    "tuned, three clients, silent": ({**TUNED, "clients": THREE, "rounds": 60}, normal(33, 9), {"silent": SILENCE}),
    "tuned, whole numbers": ({**TUNED, "clients": TWO, "rounds": 70}, whole(47, 2), {}),
    "tuned, log, two levels": (
        {**TUNED, "scale": "log", "range": (1e3, 1e6), "clients": THREE, "rounds": 50, "levels": (0.5, 0.8)},
        lognormal(3e4, 0.8),
        {},
    ),
    "tuned, until a width": ({**TUNED, "clients": ONE, "rounds": 100, "until_width": 4.0}, normal(55, 10), {}),
    "tuned, self-normalized": (
        {**TUNED, "clients": TWO, "rounds": 60, "interval": "self-normalized"},
        normal(62, 8),
        {},
    ),
    "tuned, the file": ({**TUNED, "clients": TWO, "rounds": 60, "target": "file"}, normal(40, 10), {}),
    "rounds": ({**ROUNDS, "clients": THREE, "rounds": 60}, normal(55, 12), {"silent": 0.1}),
    "rounds, sup": ({**ROUNDS, "clients": TWO, "rounds": 60, "normalizer": "sup"}, normal(55, 12), {}),
    "rounds, l1, the file": (
        {**ROUNDS, "clients": TWO, "rounds": 50, "normalizer": "l1", "target": "file"},
        normal(45, 12),
        {},
    ),
    "constant:40": ({**ROUNDS, "design": "constant:40", "clients": clients((1.0, 1.0, 5000))}, normal(52, 9), {}),
    "power:0.6": ({**ROUNDS, "design": "power:0.6", "clients": FEW}, normal(50, 20), {}),
    "paper-c1": (
        {**ROUNDS, "design": "paper-c1", "scale": "identity", "range": (-50, 70), "clients": clients((2.0, 1.0, 120))},
        normal(0, 3),
        {},
    ),
    "paper-c5": (
        {
            **ROUNDS,
            "design": "paper-c5",
            "scale": "identity",
            "range": (-50, 70),
            "clients": clients((2.0, 0.5, 400), (1.0, 0.5, 400)),
        },
        normal(1, 3),
        {"silent": 0.05},
    ),
    "paper-log": (
        {**ROUNDS, "design": "paper-log", "scale": "identity", "range": (-50, 70), "clients": clients((1.0, 1.0, 600))},
        normal(0, 5),
        {},
    ),
}
"""Name -> how it is told, what the people's values are, how the counts are drawn."""


def draw(name: str) -> dict[str, Any]:
    """A run with counts by chance, as it is stored."""
    told, law, how = RUNS[name]
    told = json.loads(json.dumps(told))
    rng = np.random.default_rng([20261119, *name.encode()])
    run, rounds, rates = Replayed(told), [], [mechanism(one[0]).truth_rate for one in told["clients"]]
    for number in range(how.get("stop", 10**6)):
        asks = run.asks()
        if not any(asks):
            break
        gone = [bool(number and rng.random() < how.get("silent", 0.0)) for _ in rates]
        now = how["then"] if number >= how.get("moves", math.inf) else law
        for level, asked in enumerate(asks):
            if asked is None:
                continue
            if run.open_ended:
                came = [int(rng.poisson(one[2])) for one in told["clients"]]
                asked = asked._replace(lengths=tuple(came) if any(came) else (1,) * len(came))
            shares = [0.5 + rate * (0.5 - now(asked.sent)) for rate in rates]
            ones = [
                None if silent or not length else int(rng.binomial(length, share))
                for length, share, silent in zip(asked.lengths, shares, gone, strict=True)
            ]
            back = [
                k
                for k, missed in enumerate(run.missed(level))
                if missed and ones[k] is not None and rng.random() < how.get("unspent", 0.0)
            ]
            run.take(level, asked, ones, back)
            rounds.append((level, asked, ones, back))
    stored = {"told": told, "over": [ask is None for ask in run.asks()], "rounds": [written(*one) for one in rounds]}
    return {**stored, **looks(stored)}


def written(level: int, asked: Asked, ones: list[int | None], back: list[int]) -> list[Any]:
    """A round as a row; the last entries are left out where they say nothing."""
    told_twice = asked.sent == asked.query
    row: list[Any] = [level, asked.stage, int(asked.averaged), asked.step, asked.query]
    row += [None if told_twice else asked.sent, list(asked.lengths), ones]
    return [*row, back] if back else row


def stored_rounds(stored: dict[str, Any]) -> Iterator[tuple[int, Asked, list[int | None], list[int]]]:
    """Level, what was asked, counts, and who had kept the coins of missed rounds."""
    for level, stage, averaged, step, query, sent, lengths, ones, *back in stored["rounds"]:
        units = query if sent is None else sent
        yield level, Asked(query, units, tuple(lengths), step, bool(averaged), stage), ones, back[0] if back else []


def rounds_to_look(stored: dict[str, Any]) -> set[int]:
    """Numbers of rows after which the ends are stored."""
    return {max(1, round(share * len(stored["rounds"]))) for share in LOOKS}


def looks(stored: dict[str, Any]) -> dict[str, Any]:
    """What the results say after some rows, and what the run shows about itself in the end."""
    run, found = Replayed(stored["told"]), {}
    for number, row in enumerate(stored_rounds(stored), 1):
        run.take(*row)
        if number in rounds_to_look(stored) and run.gives_results:
            found[str(number)] = run.ends()
    return {"looks": plain(found), "facts": plain(run.facts() if run.gives_results else [])}


def plain(value: object) -> Any:
    """As JSON has it, infinity and what is no number in words."""
    return json.loads(json.dumps(value), parse_constant=str)


def final_width(stored: dict[str, Any], level: int) -> float:
    """Width of the interval in the end, on the working scale; the range's where an end is unknown."""
    low, high = (float(end) for end in list(stored["looks"].values())[-1][level]["interval"])
    scale = Replayed(stored["told"]).width_of_range
    first, last = stored["told"]["range"]
    if not (first < low < high < last):
        return scale
    return to_working(stored["told"], high) - to_working(stored["told"], low)


def differences(stored: dict[str, Any], shake: Callable[[], float] = lambda: 1.0) -> Iterator[tuple[int, str]]:
    """Where the program decides or ends otherwise than was stored: the row, and what."""
    run = Replayed(stored["told"], shake)
    levels = range(len(stored["told"]["levels"]))
    allowed = [max(CLOSE * final_width(stored, level), OF_RANGE * run.width_of_range) for level in levels]
    number = 0
    for number, (level, asked, ones, back) in enumerate(stored_rounds(stored), 1):
        own = run.asks()[level]
        if own is None:
            yield number, f"level {level} is over"
            return
        for what in ("stage", "averaged", "lengths"):
            mine, kept = getattr(own, what), getattr(asked, what)
            if mine != kept and not (what == "lengths" and run.open_ended):
                yield number, f"its {what} is {mine}, not {kept}"
        if not abs(own.query - asked.query) <= allowed[level]:
            yield number, f"it asks about {own.query!r}, not {asked.query!r}"
        if not math.isclose(own.sent, asked.sent, rel_tol=CLOSE, abs_tol=allowed[level]):
            yield number, f"it sends {own.sent!r}, not {asked.sent!r}"
        if not math.isclose(own.step, asked.step, rel_tol=CLOSE):
            yield number, f"its step is {own.step!r}, not {asked.step!r}"
        run.take(level, asked, ones, back)
        if str(number) in stored["looks"]:
            for index, (mine, kept) in enumerate(zip(run.ends(), stored["looks"][str(number)], strict=True)):
                yield from ((number, f"level {index}: {what}") for what in _other_ends(kept, mine))
    if run.gives_results:
        yield from ((number, what) for what in different_values(stored["facts"], plain(run.facts()), "facts"))
    for level, ask in enumerate(run.asks()):
        if (ask is None) != stored["over"][level]:
            yield number, f"level {level} goes {'on' if ask else 'no further'}"


def _other_ends(kept: dict[str, Any], mine: dict[str, Any]) -> Iterator[str]:
    """Which ends and facts of one result differ; real numbers by more than a share of the interval's width."""
    low, high = (float(end) for end in kept["interval"])
    width = high - low if math.isfinite(high - low) else abs(kept["estimate"])
    allowed = max(CLOSE * width, OF_RANGE * abs(kept["estimate"]))
    for name in kept.keys() | mine.keys():
        old, new = kept.get(name), mine.get(name)
        olds, news = ([] if one is None else one if isinstance(one, list) else [one] for one in (old, new))
        if name in ("method", "every look", "grid", "caveats"):
            same = old == new
        else:
            same = len(olds) == len(news) and all(
                a == b or abs(a - b) <= allowed for a, b in zip(map(float, olds), map(float, news), strict=True)
            )
        if not same:
            yield f"{name} is {new}, not {old}"


def near_ties(stored: dict[str, Any]) -> list[int]:
    """Rows at which today's program decides otherwise if answers change in their last bits."""
    found = set()
    for copy in range(COPIES):
        signs = np.random.default_rng((copy, 14))
        found |= {row for row, _ in differences(stored, partial(_last_bits, signs))}
    return sorted(found)


def _last_bits(signs: np.random.Generator) -> float:
    """1 ± 10⁻¹⁴."""
    return 1.0 + BITS * float(signs.choice((-1, 1)))


def read() -> dict[str, dict[str, Any]]:
    """The stored runs by name."""
    return {one["name"]: one for one in json.loads(REPLAYS.read_text(encoding="utf-8"))}


def write(runs: dict[str, dict[str, Any]]) -> None:
    """Keep runs, a line for each; near ties are looked for."""
    lines = []
    for name, stored in runs.items():
        stored["near ties"] = near_ties(stored)
        lines.append(json.dumps({"name": name, **stored}, separators=(",", ":"), allow_nan=False))
    REPLAYS.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def make() -> None:
    """Draw all runs."""
    write({name: draw(name) for name in RUNS})


def make_looks() -> None:
    """Write what the results of the stored runs say; questions and counts stay."""
    runs = read()
    for stored in runs.values():
        stored.update(looks(stored))
    write(runs)
