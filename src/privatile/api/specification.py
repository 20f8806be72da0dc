"""From options and columns to the specification of a run: who counts how much, what is asked of whom."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from privatile.client.order.column import ShuffledColumn
from privatile.client.order.weight_classes import MOST_ROUNDS, WIDEST
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.estimator.survey import Survey
from privatile.planning.options import Options


class Part(NamedTuple):
    """A client, or one of its weight classes: its name, whose records it has, its column, how many may be asked."""

    name: str
    holder: str
    column: ShuffledColumn
    records: int

    @property
    def size(self) -> float:
        """What it counts with inside its client, and between clients where their sizes count.

        The records that may be asked: the file's size beside them would tell how many had answered elsewhere. Of a
        weight class the sum of its weights.
        """
        return float(self.records) if self.column.weights is None else self.column.weights.total


def parts_of(columns: Mapping[str, ShuffledColumn], holders: Mapping[str, str] | None = None) -> list[Part]:
    """The columns that a run asks, by client, the classes of a client from the lightest on.

    `holders` gives the clients of cells (`client.sources.cells`), by the cells' names; otherwise they are the clients.
    """
    parts = [
        Part(name, (holders or {}).get(column.content.holder, column.content.holder), column, column.records)
        for name, column in columns.items()
    ]
    parts.sort(key=lambda part: (part.holder, 0.0 if part.column.weights is None else part.column.weights.low))
    return parts


def specification(options: Options, parts: list[Part], *, simulated: bool) -> RunSpec:
    """The run's specification."""
    sizes: dict[str, float] = {}
    for part in parts:
        sizes[part.holder] = sizes.get(part.holder, 0.0) + part.size
    options.check_clients(list(sizes))
    weights = options.client_weights(sizes)
    shares = [weights[part.holder] * (part.size / sizes[part.holder]) for part in parts]
    total = math.fsum(shares)
    own = options.q if isinstance(options.q, Mapping) else None
    scale, levels = options.working_scale, options.levels
    survey = _survey(options, parts, weights)
    return RunSpec(
        value=options.value_in_words,
        levels=levels if own is None else (sum(weight * own[name] for name, weight in weights.items()),),
        clients=tuple(
            ClientSpec(
                name=part.name,
                threshold=options.mechanism(part.holder).threshold,
                weight=share / total if survey is not None else share,
                records=part.records,
                level=None if own is None else own[part.holder],
                file_records=part.records,
                holder="" if survey is None else part.holder,
                weights=None if part.column.weights is None else part.column.weights[:2],
            )
            for part, share in zip(parts, shares, strict=True)
        ),
        scale=scale.name,
        low=scale.low,
        high=scale.high,
        rounds=options.rounds if survey is None else _rounds(options, parts),
        mode=options.mode,
        local_level=options.local_level,
        weighting=options.weighting,
        person=options.person is not None,
        simulated=simulated,
        survey=survey,
        **options.report_options,
    )


def _rounds(options: Options, parts: list[Part]) -> int | None:
    """Of weighted records: as many rounds as the smallest class has records for, unless stated.

    A class may have one record per round: the smallest ones weigh little. Only the file decides, so that a resumed run
    has the same number.
    """
    if options.rounds is not None or options.design not in ("auto", "straddle", "tuned"):
        return options.rounds
    return min(MOST_ROUNDS, min(part.column.records for part in parts) // max(1, len(options.levels)))


def _survey(options: Options, parts: list[Part], weights: Mapping[str, float]) -> Survey | None:
    """What was done about the weights; None without any."""
    classes = [(part.holder, part.column.weights, part.column.records) for part in parts]
    totals = dict.fromkeys(weights, 0.0)
    for holder, own, _ in classes:
        totals[holder] += 0.0 if own is None else own.total
    found = [(weights[holder] / totals[holder], own, kept) for holder, own, kept in classes if own is not None]
    if options.weight is None:
        return None
    kish = math.fsum(scale**2 * own.squares for scale, own, _ in found)
    reached = math.fsum((scale * own.total) ** 2 / kept for scale, own, kept in found)
    widest = max(own.high / own.low for _, own, _ in found)
    return Survey(
        column=options.weight,
        records=sum(own.records for _, own, _ in found),
        effective=1.0 / kish,
        variance=reached / kish,
        widest=widest,
        joined=widest > WIDEST * (1.0 + 1e-9),
    )
