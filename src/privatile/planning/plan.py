"""Before anyone is asked, without data: how wide the interval will be, or how many people or what ε a width takes.

A plan is the preview of a run over people who need not exist yet. What a width takes is found by trying runs: more or
fewer people, or another ε, until the expected width of every level is the one that was asked for.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from privatile.core.kinds import STRONGEST_EPSILON, WEAK_EPSILON
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import LARGEST_LENGTH
from privatile.errors import InputError
from privatile.estimator.clients import Client
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.estimator.tuned import MIN_ROUNDS
from privatile.planning.preview import Preview, level_widths, preview
from privatile.planning.widths import Guess, both_in_words, wide
from privatile.result.caveats import rounded_text
from privatile.result.shown import CONDITIONS, Condition, epsilon_text

Wanted = Literal["width", "people", "epsilon"]
"""What a plan is to find: the other two are given."""

CLOSE = 1.0002
"""Bisection ends when two factors are this close: far closer than any guess of a distribution."""

MOST_ROWS = 20
"""Clients that a plan's text lists one by one."""


class Need(NamedTuple):
    """What one of the two intervals takes to be as narrow as asked for; each by itself, the other as it is."""

    method: str
    condition: str
    people: int | None
    """Records of all clients together, in their present proportions; none where not even the most that fit do."""
    times_the_people: float | None
    epsilon: float | None
    """The largest of the clients' budgets, all in their present proportions; none where no ε up to 10 does."""


@dataclass(frozen=True)
class RunPlan:
    """What a run with these clients would give, and what the width that was asked for would take."""

    preview: Preview
    wanted: Wanted
    target_width: float | None
    """In units with a guess of the distribution, else in rank."""
    needs: tuple[Need, ...]
    """Of the interval that the result would show first, then of the other; empty without a target."""
    weights_cost: float
    """Standard error over that of precision weights: the cost of these weights where all clients share one law."""

    @property
    def people(self) -> int:
        """Records of all clients together."""
        return sum(client.records for client in self.preview.spec.clients)

    def to_dict(self) -> dict[str, Any]:
        """All facts as plain values. A width is that of the whole interval."""
        spec, facts = self.preview.spec, self.preview.to_dict()
        variances = [client.rank_variance(spec.levels[0]) for client in spec.at_level(0)]
        clients = [
            {**client, "variance_share": variance / math.fsum(variances)}
            for client, variance in zip(facts["clients"], variances, strict=True)
        ]
        kept = ("levels", "confidence_level", "simultaneous", "rounds", "information", "expected_width_in_rank")
        return {
            "wanted": self.wanted,
            **{name: facts[name] for name in (*kept, "expected_intervals", "cures")},
            "caveats": [caveat for caveat in facts["caveats"] if caveat["severity"] != "standing"],
            "value_kind": spec.value_kind,
            "units": None if self.preview.guess is None else self.preview.guess.words,
            "target_width": self.target_width,
            "needs": [need._asdict() for need in self.needs],
            "people": self.people,
            "weights_cost": self.weights_cost,
            "clients": clients,
        }

    def to_text(self) -> str:
        """The answer, then who was thought of and what they would give."""
        spec, guess = self.preview.spec, self.preview.guess
        if self.wanted != "width" and getattr(self.needs[0], self.wanted) is None:
            # Of the people, or of the budgets, the proportions alone were given: there is nothing to say about them.
            return "\n".join(self._answer()[:-1])
        lines = [*self._answer(), *self._who()]
        if guess is not None:
            lines.append(f"Units: {guess.words}.")
        levels = zip(spec.levels, self.preview.widths, self.preview.rounds, self.preview.information, strict=True)
        for level, shown, rounds, row in levels:
            lines.append(f"Level {level:g}, {rounds} rounds. Information {row.text}.")
            lines += [f"- {text}" for text in both_in_words(shown, level, spec.confidence_level)]
        lines += [*(line for _, line in self.preview.warnings()), *self.preview.cures_table()]
        if self.weights_cost > 1.005:
            lines.append(
                f"These weights cost {100 * (self.weights_cost - 1):.0f}% in width over precision weights, which are "
                "for clients that share one distribution only."
            )
        return "\n".join(lines)

    def _answer(self) -> list[str]:
        """What was asked for, in a sentence for each interval."""
        if self.target_width is None:
            return []
        spec, in_rank = self.preview.spec, " in rank" if self.preview.guess is None else ""
        which = " and ".join(f"{level:g}" for level in spec.levels)
        all_at_once = ", all at once," if spec.joint > 1 else ""
        head = (
            f"A {100 * spec.confidence_level:g}% interval {wide(self.target_width)}{in_rank} at level {which}"
            f"{all_at_once} takes"
        )
        return [f"{head}:", *(f"- {self._need_words(need)}" for need in self.needs), ""]

    def _need_words(self, need: Need) -> str:
        """What one interval takes."""
        if need.method == "any-shape":
            holds = f"an interval that holds {need.condition}"
        else:
            holds = f"{need.condition} (--value-kind continuous)"
        people = "more people than one client may have"
        if need.people is not None and need.times_the_people is not None:
            people = f"about {_rounded_up(need.people)} people"
            if self.wanted == "width":
                people += f" ({rounded_text(need.times_the_people, 3)} times as many)"
        epsilon = "no ε up to 10 is enough for these people"
        if need.epsilon is not None:
            alike = len({client.threshold for client in self.preview.spec.clients}) == 1
            epsilon = f"{'' if alike else 'the largest '}ε = {rounded_text(need.epsilon, 3)}"
            epsilon += "" if alike else ", the others in proportion"
        if self.wanted == "people":
            return f"{holds}: {people}."
        if self.wanted == "epsilon":
            return f"{holds}: {epsilon}."
        return f"{holds}: {people}{', or ' if need.epsilon else '; '}{epsilon}."

    def _who(self) -> list[str]:
        """The clients: one line where they are alike, otherwise a table."""
        clients = self.preview.spec.clients
        first = clients[0]
        budget = f"ε = {epsilon_text(first.mechanism.epsilon)}"
        if len({(client.records, client.threshold, client.weight) for client in clients}) == 1:
            many = "" if len(clients) == 1 else f" at each of {len(clients):,} clients"
            # As `_answer` gives the number that was found; one that was given stays as it is.
            people = f"about {_rounded_up(first.records)}" if self.wanted == "people" else f"{first.records:,}"
            return [f"With {people} people{many}, {budget}:"]
        rows = self.to_dict()["clients"]
        gap = max(6, *(len(row["name"]) for row in rows))
        table = [f"{'client':<{gap}}  {'records':>10}  {'ε':>7}  {'weight':>7}  {'of the variance':>15}"]
        table += [
            f"{row['name']:<{gap}}  {row['records']:>10,}  {row['epsilon']:>7.4g}  {row['weight']:>7.4f}  "
            f"{100 * row['variance_share']:>14.1f}%"
            for row in rows[:MOST_ROWS]
        ]
        return [*table, *([f"and {len(rows) - MOST_ROWS:,} more"] if len(rows) > MOST_ROWS else []), ""]


def plan_run(
    levels: Sequence[float],
    clients: Sequence[Client],
    *,
    wanted: Wanted = "width",
    width: float | None = None,
    confidence_level: float = 0.95,
    simultaneous: bool = False,
    rounds: int | None = None,
    value_kind: str = "any",
    guess: Guess | None = None,
) -> RunPlan:
    """What these clients give, and what a `width` would take. Levels share the people; weights may have any sum.

    A width is that of the whole interval, in units of the `guess`, else in rank: 0.02 asks for the interval from the
    (τ − 0.01) to the (τ + 0.01) quantile. With `wanted` "people" (or "epsilon") the clients' records (budgets) give the
    proportions only, and the plan is that of what the first interval takes: the smooth one where `values` is
    `continuous`. At every level the interval is to be that narrow.

    >>> coin = RandomizedResponse.from_epsilon(1.0)
    >>> clients = [Client(f"c{k}", coin, 0.1, 0.5, records=5000) for k in range(10)]
    >>> [round(plan_run([0.5], clients, value_kind=v).preview.rank_widths[0], 4) for v in ("any", "continuous")]
    [0.062, 0.0207]
    >>> plan_run([0.5], clients, wanted="people", width=0.06).people
    53270
    """
    if not clients:
        raise InputError("a plan needs at least one client.")
    if width is not None and not 0.0 < width < math.inf:
        raise InputError(f"width must be a positive number; got {width!r}.")
    if width is not None and width > 1.0 and guess is None:
        raise InputError(
            f"a width in rank is at most 1; got {width:g}: give --spread, --population or --like for a width in units."
        )
    if wanted != "width" and width is None:
        raise InputError(f"a plan finds the {wanted} that a width takes: give the width.")
    total = math.fsum(client.weight for client in clients)
    spec = RunSpec(
        value="the value",
        levels=tuple(levels),
        clients=tuple(
            ClientSpec(client.name, client.mechanism.threshold, client.weight / total, client.records)
            for client in clients
        ),
        scale="linear",
        low=0.0,
        high=1.0,
        confidence_level=confidence_level,
        simultaneous=simultaneous,
        rounds=rounds,
        value_kind=value_kind,
    )
    needs: tuple[Need, ...] = ()
    if width is not None:
        methods: tuple[Condition, ...] = ("any-shape", "smooth")
        if spec.declared.step is not None:
            methods = ("any-shape",)
        elif spec.declared.continuous:
            methods = ("smooth", "any-shape")
        needs = tuple(_need(spec, method, width, guess, wanted) for method in methods)
        first = needs[0]
        if wanted == "people" and first.times_the_people is not None:
            spec = _scaled(spec, first.times_the_people)
        elif wanted == "epsilon" and first.epsilon is not None:
            spec = _richer(spec, first.epsilon / max(client.mechanism.epsilon for client in spec.clients))
    found = spec.at_level(0)
    variances = [client.rank_variance(spec.levels[0]) for client in found]
    best = 1.0 / math.fsum(client.weight**2 / variance for client, variance in zip(found, variances, strict=True))
    return RunPlan(preview(spec, guess), wanted, width, needs, math.sqrt(math.fsum(variances) / best))


def _need(spec: RunSpec, method: Condition, target: float, guess: Guess | None, wanted: Wanted) -> Need:
    """What one interval takes, in a run that is asked for it; only what was to be found is looked for."""
    spec = replace(spec, value_kind="any" if method == "any-shape" else "continuous", design="auto")

    def too_wide(tried: RunSpec) -> bool:
        return any(_width(tried, index, method, guess) > target for index in range(len(tried.levels)))

    sizes = [client.records for client in spec.clients]
    largest = max(client.mechanism.epsilon for client in spec.clients)
    people = times = epsilon_times = None
    if wanted != "epsilon":
        limits = _fewest(spec) / min(sizes), LARGEST_LENGTH / max(sizes)
        times = _least(*limits, lambda factor: too_wide(_scaled(spec, factor)))
        people = None if times is None else sum(client.records for client in _scaled(spec, times).clients)
    if wanted != "people":
        limits = STRONGEST_EPSILON / largest, max(1.0, WEAK_EPSILON / largest)
        epsilon_times = _least(*limits, lambda factor: too_wide(_richer(spec, factor)))
    return Need(
        method,
        CONDITIONS[method],
        people,
        times,
        None if epsilon_times is None else epsilon_times * largest,
    )


def _width(spec: RunSpec, index: int, method: Condition, guess: Guess | None) -> float:
    """The expected width of one interval at one level, in units if there are any; ∞ where it would not be shown."""
    found = next(one for one in level_widths(spec, index, guess) if one.method == method)
    width = found.rank_width if guess is None else found.width
    return math.inf if width is None or math.isnan(width) else width


def _fewest(spec: RunSpec) -> int:
    """Records that a client must have: one per round and level."""
    return max(MIN_ROUNDS, spec.rounds or 0) * len(spec.levels)


def _scaled(spec: RunSpec, times: float) -> RunSpec:
    """So many times the people, but as many as a run needs."""
    fewest = _fewest(spec)
    sizes = (min(LARGEST_LENGTH, max(fewest, math.ceil(client.records * times))) for client in spec.clients)
    return replace(spec, clients=tuple(replace(c, records=n) for c, n in zip(spec.clients, sizes, strict=True)))


def _richer(spec: RunSpec, times: float) -> RunSpec:
    """So many times every ε."""
    budgets = (max(STRONGEST_EPSILON, client.mechanism.epsilon * times) for client in spec.clients)
    coins = map(RandomizedResponse.from_epsilon, budgets)
    pairs = zip(spec.clients, coins, strict=True)
    return replace(spec, clients=tuple(replace(client, threshold=coin.threshold) for client, coin in pairs))


def _least(low: float, high: float, too_wide: Callable[[float], bool]) -> float | None:
    """The least factor of a range that is not too wide; none when none is.

    By bisection in logs: whole records make it a staircase, and the factor must lie on the side that meets the target.
    """
    if too_wide(high):
        return None
    if not too_wide(low):
        return low
    while high > CLOSE * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if too_wide(middle) else (low, middle)
    return high


def _rounded_up(people: int) -> str:
    """Three digits, never too few.

    >>> _rounded_up(211_503), _rounded_up(87)
    ('212,000', '87')
    """
    step = 10 ** max(0, len(str(people)) - 3)
    return f"{math.ceil(people / step) * step:,}"
