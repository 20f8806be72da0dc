"""What a run, or runs of many groups, would cost and give, before anyone is asked.

Without a guess of the distribution the width in units is unknown, but the width in *rank* is not: the interval will
reach from about the (τ − w/2) to the (τ + w/2) quantile, with the w of `planning.expected_width`. Where the result will
show an interval of which no width was measured (that of fixed designs), the preview says so.

What it warns of comes from the functions that give a result its caveats.
"""

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from privatile.core.text import counted
from privatile.estimator.clients import Client, pooled_noise
from privatile.estimator.schedule import SELF_TUNING
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.estimator.tuned import information, supported
from privatile.inference.anytime import STRADDLED, mixture_bound
from privatile.inference.inference import level_each
from privatile.inference.reading import LITTLE
from privatile.laws.ratio import two_sided_z
from privatile.planning.widths import (
    ExpectedWidth,
    Guess,
    Reach,
    any_shape_factor,
    both_in_words,
    rank_width,
    reach,
    self_normalized_cost,
    smooth_factor,
    width_in_units,
)
from privatile.result.caveats import (
    MORE,
    Caveat,
    caveat,
    caveats_beforehand,
    most_important_first,
    rounded_text,
    to_act_on_and_rest,
)
from privatile.result.diagnostics import known_beforehand
from privatile.result.shown import Condition, Row, epsilon_text, finite
from privatile.result.summary import against_smooth
from privatile.result.tables import fixed_columns

SAYS_NOTHING = caveat("unbounded", "expected", helps=MORE)


class Account(NamedTuple):
    """Which ledger keeps what is spent, and what it knows by now."""

    ledger: str
    whose: str
    """What spends: a person, or a record of the column."""
    spent: float
    """The most that one of them has spent there so far."""
    limit: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return {**self._asdict(), "spent": finite(self.spent)}

    def to_text(self, epsilon: float) -> str:
        """Who pays what, and from where.

        >>> Account("ledger.db", "person", 1.0, 3.0).to_text(1.0)
        'A person spends at most ε = 1, kept in ledger.db. The most spent there so far is ε = 1, and the limit ε = 3.'
        """
        limit = "" if self.limit is None else f", and the limit ε = {epsilon_text(self.limit)}"
        before = f"The most spent there so far is ε = {epsilon_text(self.spent)}{limit}."
        return f"A {self.whose} spends at most ε = {epsilon_text(epsilon)}, kept in {self.ledger}. {before}"


WORTH_IT = 0.9
"""A cure that leaves the interval wider than this share of what it would be is none."""


class Cure(NamedTuple):
    """Another choice, and how many times as wide the interval would then be."""

    client: str
    """Who costs most."""
    option: str
    times_as_wide: float


HEAPS = "Where many people share one value near the quantile (round salaries), it is wider: no plan can know that."


@dataclass(frozen=True)
class Preview:
    """Who would pay what, the width to expect, and what the result would warn of as far as it is known by now."""

    spec: RunSpec
    widths: tuple[tuple[ExpectedWidth, ...], ...]
    """Of each level: the interval that the result would show first, and the one beside it where there is one."""
    rounds: tuple[int, ...]
    information: tuple[Row, ...]
    """Of each level, in the words that its result will use."""
    caveats: tuple[tuple[Caveat, ...], ...]
    """Of each level, in the words that its result will use."""
    cures: tuple[Cure, ...]
    """Where one client costs most of the information: what would help."""
    guess: Guess | None = None
    account: Account | None = None

    @property
    def asked(self) -> int:
        """Records that would answer."""
        return sum(client.records for client in self.spec.clients)

    @property
    def rank_widths(self) -> tuple[float, ...]:
        """Of each level, the width in rank of the interval that the result would show first; NaN if unknown."""
        return tuple(shown[0].rank_width for shown in self.widths)

    @property
    def reaches(self) -> tuple[Reach, ...]:
        """Of each level, whether the width at which it is to stop is within reach; empty where none was asked for."""
        found = (reach(self.spec, index, shown[0], self.guess) for index, shown in enumerate(self.widths))
        return tuple(one for one in found if one is not None)

    @property
    def says_nothing(self) -> bool:
        """Whether the interval of every level is expected to be the whole stated range."""
        return all(SAYS_NOTHING in found for found in self.caveats)

    def to_dict(self) -> dict[str, Any]:
        """All facts as plain values. A width is that of the whole interval."""
        return {
            "dry_run": True,
            "levels": list(self.spec.levels),
            "expected_width_in_rank": [shown[0].facts()["width_in_rank"] for shown in self.widths],
            "expected_intervals": [[one.facts() for one in shown] for shown in self.widths],
            "until_width": [one.facts() for one in self.reaches] or None,
            "rounds": list(self.rounds),
            "information": [row.value for row in self.information],
            "caveats": [
                {"level": level, **one.facts()}
                for level, found in zip(self.spec.levels, self.caveats, strict=True)
                for one in found
            ],
            "cures": [cure._asdict() for cure in self.cures],
            "confidence_level": self.spec.confidence_level,
            "simultaneous": self.spec.joint > 1,
            "account": None if self.account is None else self.account.to_dict(),
            # Of weighted records, the weight classes.
            "clients": [
                {
                    "name": client.name,
                    "records": client.records,
                    "epsilon": finite(client.mechanism.epsilon),
                    "truth_rate": client.mechanism.truth_rate,
                    "weight": client.weight,
                    **({} if client.weights is None else {"weights": list(client.weights)}),
                }
                for client in self.spec.clients
            ],
        }

    def to_text(self) -> str:
        """The same for a terminal."""
        return "\n".join([f"Dry run: {self.asked:,} records would answer once each; no one was.", "", *self.lines()])

    def lines(self) -> list[str]:
        """Who pays what, what to expect, what is wrong with it."""
        spec = self.spec
        lines = [*_who_pays(spec.clients), ""]
        if self.account is not None:
            lines += [self.account.to_text(max(client.mechanism.epsilon for client in spec.clients)), ""]
        if spec.joint > 1:
            lines.append(f"The confidence is that all {spec.joint} intervals hold at once.")
        reaches = self.reaches or (None,) * len(spec.levels)
        rows = zip(spec.levels, self.widths, self.rounds, self.information, reaches, strict=True)
        for level, shown, rounds, row, within in rows:
            lines.append(f"level {level:g}: {rounds} rounds. {row.label.capitalize()} {row.text}.")
            lines += [f"- {text}" for text in both_in_words(shown, level, spec.confidence_level)]
            lines += [] if within is None else [f"- {within.text}"]
        if spec.value_kind == "any" and not all(math.isnan(width) for width in self.rank_widths):
            lines.append(HEAPS)
        lines += self.in_units()
        return [*lines, *(line for _, line in self.warnings()), *self.cures_table()]

    def cures_table(self) -> list[str]:
        """A row per remedy; nothing where none is known."""
        rows = [(one.option, f"{rounded_text(one.times_as_wide)} times as wide", "another") for one in self.cures]
        return ["", *fixed_columns([("would help", "interval", "quantile"), *rows])] if rows else []

    def in_units(self) -> list[str]:
        """The plan that gives these widths in units, where one budget and weights by size make it the same."""
        budgets = {client.mechanism.epsilon for client in self.spec.clients}
        if len(budgets) > 1 or math.inf in budgets or self.spec.weighting != "size" or self.spec.survey is not None:
            return []
        spec = self.spec
        levels = "".join(f" -q {level:g}" for level in spec.levels) if spec.levels != (0.5,) else ""
        # A small client may leave fewer rounds than as many people at one place have.
        together = replace(spec, clients=(replace(spec.clients[0], weight=1.0, records=self.asked),))
        fewer = spec.rounds is None and self.rounds[0] != together.plan(0).rounds
        rest = f" --rounds {spec.rounds or self.rounds[0]}" if spec.rounds is not None or fewer else ""
        rest += "" if spec.confidence_level == 0.95 else f" --confidence-level {spec.confidence_level:g}"
        rest += " --simultaneous" if spec.simultaneous else ""
        rest += "" if spec.value_kind == "any" else f" --value-kind {spec.value_kind}"
        command = f"privatile plan{levels} --records {self.asked} --epsilon {budgets.pop():.4g}{rest} --spread UNITS"
        return [f"In units, where the middle half of the people lies within UNITS: {command}"]

    def warnings(self) -> list[tuple[str, str]]:
        """What is to be known before anyone is asked, by its code; the standing remarks not.

        The most important first, of the first level; then what other levels have beside it.
        """
        levels: dict[Caveat, list[str]] = {}
        for level, found in zip(self.spec.levels, self.caveats, strict=True):
            first, rest = to_act_on_and_rest(found)
            for each in (*first, *rest):
                levels.setdefault(each, []).append(f"{level:g}")
        lines = []
        for one, whose in levels.items():
            about = (
                f" ({'Level' if len(whose) == 1 else 'Levels'} {', '.join(whose)}.)"
                if len(whose) < len(self.caveats)
                else ""
            )
            lines.append((one.code, f"Beware: {one.text}{about}"))
        return lines


def preview(spec: RunSpec, guess: Guess | None = None) -> Preview:
    """Work it out from the specification alone; with a guess of the distribution, widths in units as well."""
    widths, rounds, rows, caveats = [], [], [], []
    for index in range(len(spec.levels)):
        plan = spec.plan(index)
        shown = level_widths(spec, index, guess)
        row, *found = known_beforehand(plan.level, plan.clients, shown[0].method, grid=not spec.declared.may_be_smooth)
        said = [one for one in found if isinstance(one, Caveat)]
        if spec.design in SELF_TUNING and not supported(information(plan.level, pooled_noise(plan.clients))):
            against = list(against_smooth(LITTLE, spec, shown[0].method))
            # It says the same of a smooth interval that was asked for.
            said = [one for one in said if one.code != "not-validated" or not against] + against
        said += caveats_beforehand(spec, plan.clients, any_shape=shown[0].method == "any-shape")
        # By the expected width in rank, w/2 ≥ max(τ, 1 − τ). Where none is known (fixed designs) nothing is said.
        if shown[0].rank_width / 2.0 >= max(plan.level, 1.0 - plan.level):
            said.append(SAYS_NOTHING)
        widths.append(shown)
        rounds.append(plan.rounds)
        rows += [row] if isinstance(row, Row) else []
        caveats.append(most_important_first(*said))
    return Preview(spec, tuple(widths), tuple(rounds), tuple(rows), tuple(caveats), tuple(_cures(spec)), guess)


def _cures(spec: RunSpec) -> Iterator[Cure]:
    """What would help where the result would say that one client decides the width ("dominance"); else nothing.

    The interval is as wide as the square root of the pooled noise Σp²/(4r²n), whatever the level.
    """
    clients = spec.at_level(0)
    found = known_beforehand(spec.levels[0], clients, "any-shape")
    if not any(isinstance(one, Caveat) and one.code == "dominance" for one in found):
        return
    costly: str = next(one.value["client"] for one in found if isinstance(one, Row) and one.key == "dominance")
    tried: dict[str, list[Client]] = {}
    if spec.weighting != "size" and spec.survey is None:
        total = sum(client.records for client in clients)
        tried["--client-weights size"] = [replace(client, weight=client.records / total) for client in clients]
    others = [client for client in clients if client.held_by != costly]
    share = math.fsum(client.weight for client in others)
    tried[f"--leave-out {shlex.quote(costly)}"] = [replace(one, weight=one.weight / share) for one in others]
    for option, after in tried.items():
        times = math.sqrt(pooled_noise(after) / pooled_noise(clients))
        if times < WORTH_IT:
            yield Cure(costly, option, times)


def level_widths(spec: RunSpec, index: int, guess: Guess | None = None) -> tuple[ExpectedWidth, ...]:
    """The interval that `inference.reading.read` will show first, and one whose width is known beside it."""
    plan = spec.plan(index)
    level, clients = plan.level, plan.clients
    confidence = level_each(spec.confidence_level, spec.joint)

    def expected(method: Condition | Literal["self-normalized"], factor: float) -> ExpectedWidth:
        width = rank_width(level, clients, confidence, factor)
        return ExpectedWidth(method, width, width_in_units(guess, level, width))

    if spec.needs_path or spec.round_mode == "local":
        return (expected("self-normalized", self_normalized_cost(confidence)),)
    info = information(level, pooled_noise(clients))
    any_shape = expected("any-shape", any_shape_factor(info, confidence))
    # With too little information no smooth interval is shown, and none is promised.
    unsupported = not supported(info)
    wider = math.nan if unsupported else smooth_factor(info, plan.rounds, confidence)
    if spec.until_width is not None:
        # Of all records, if it does not stop before: valid at every look, it is wider than one for a planned end.
        wider *= mixture_bound(1.0, confidence) / two_sided_z(confidence)
        if spec.design == "straddle":
            # Low information is in the width already (`smooth_factor`).
            wider *= STRADDLED
    smooth = expected("smooth", wider)
    first_smooth = spec.interval == "smooth" or (spec.interval == "default" and spec.declared.continuous)
    if spec.design not in SELF_TUNING:
        shown = (smooth if first_smooth else any_shape)._replace(rank_width=math.nan, width=None)
        return shown, expected("self-normalized", self_normalized_cost(confidence))
    if spec.interval == "smooth" and unsupported:
        return (smooth,)
    if first_smooth:
        # With too little information the any-shape interval is shown after all, and is at least as wide.
        return (any_shape, smooth) if unsupported else (smooth, any_shape)
    # Measured for questions on both sides of the quantile only; others give another width.
    shown = any_shape if spec.design == "straddle" else any_shape._replace(rank_width=math.nan, width=None)
    return (shown, smooth) if spec.declared.may_be_smooth else (shown,)


def _who_pays(clients: Sequence[ClientSpec]) -> Iterator[str]:
    """A table: every client's records, what each of them spends, and how much the client counts."""
    holders: dict[str, list[ClientSpec]] = {}
    for client in clients:
        holders.setdefault(client.holder or client.name, []).append(client)
    gap = max(6, *map(len, holders))
    yield f"{'client':<{gap}}  {'records':>12}  {'ε':>8}  {'weight':>8}"
    for name, parts in holders.items():
        epsilon, weight = epsilon_text(parts[0].mechanism.epsilon), sum(part.weight for part in parts)
        yield f"{name:<{gap}}  {sum(part.records for part in parts):>12,}  {epsilon:>8}  {weight:>8.4f}"


class GroupPreview(NamedTuple):
    """One group: what its run would cost and give, or why nobody would be asked."""

    name: str
    records: int
    """Those that would be asked; of a group that is not asked, all of them."""
    found: Preview | None
    why: str


@dataclass(frozen=True)
class GroupPreviews:
    """Who would pay what, and how wide each group's interval would be, in rank."""

    by: str
    groups: tuple[GroupPreview, ...]
    account: Account | None = None

    @property
    def asked(self) -> int:
        """Records that would answer."""
        return sum(group.records for group in self.groups if group.found is not None)

    def to_dict(self) -> dict[str, Any]:
        """All facts as plain values."""
        return {
            "dry_run": True,
            "by": self.by,
            "account": None if self.account is None else self.account.to_dict(),
            "groups": [
                {
                    "name": name,
                    "records": records,
                    "why": why,
                    "preview": None if found is None else found.to_dict(),
                }
                for name, records, found, why in self.groups
            ],
        }

    def to_text(self) -> str:
        """The same for a terminal."""
        return "\n".join([f"Dry run: {self.asked:,} records would answer once each; no one was.", "", *self.lines()])

    def lines(self) -> list[str]:
        """A table: between which quantiles the interval of each group would lie. Then who pays, and the warnings."""
        cells, reasons = [], []
        for name, records, found, why in self.groups:
            if found is None:
                cells.append((name, "0", "–", "–"))
                reasons.append(f"{name} ({counted(records, 'record')}): {why}.")
                continue
            epsilon = epsilon_text(max(client.mechanism.epsilon for client in found.spec.clients))
            between = ", ".join(
                f"{max(0.0, level - width / 2):.3f} … {min(1.0, level + width / 2):.3f}"
                if width == width
                else "not known"
                for level, width in zip(found.spec.levels, found.rank_widths, strict=True)
            )
            cells.append((name, f"{records:,}", epsilon, between))
        warnings = self._warnings()
        budgets = (c.mechanism.epsilon for _, _, found, _ in self.groups if found for c in found.spec.clients)
        pays = [] if self.account is None else ["", self.account.to_text(max(budgets))]
        return [
            *fixed_columns([(self.by, "asked", "ε", "interval between the quantiles"), *cells]),
            *(["", *reasons] if reasons else []),
            *self._in_units(),
            *pays,
            *warnings,
        ]

    def _in_units(self) -> list[str]:
        """For the smallest group that would be asked, how to have its width in units."""
        asked = [(records, name, found) for name, records, found, _ in self.groups if found is not None]
        _, name, found = min(asked, key=lambda one: one[0], default=(0, "", None))
        lines = [] if found is None else found.in_units()
        return ["", *(f"{name}: {line[0].lower()}{line[1:]}" for line in lines)] if lines else []

    def _warnings(self) -> list[str]:
        """Of each kind one line: the first group's, and how many others have one of that kind."""
        said: dict[str, list[tuple[str, str]]] = {}
        for name, _, found, _ in self.groups:
            for code, line in () if found is None else found.warnings():
                said.setdefault(code, []).append((name, line))
        lines = []
        for (first, line), *others in said.values():
            if others and all(text == line for _, text in others):
                lines.append(line)
            else:
                lines.append(
                    f"{first}: {line}" + (f" So it is with {counted(len(others), 'other')}." if others else "")
                )
        return lines
