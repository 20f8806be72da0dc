"""`privatile plan`: how wide the interval would be, and how many people or what ε a width takes."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privatile.cli.options import chosen, json_flag, number
from privatile.cli.printing import echo, echo_json
from privatile.core.kinds import CURVE
from privatile.core.messages import LARGEST_LENGTH
from privatile.errors import InputError

if TYPE_CHECKING:
    from privatile.estimator.clients import Client
    from privatile.planning.plan import RunPlan, Wanted
    from privatile.planning.widths import Guess

CLIENTS = click.IntRange(1, 100_000)
RECORDS = click.IntRange(1, LARGEST_LENGTH)

PROPORTION = 1_000_000
"""Records of each client where their number is to be found: all that counts is that they are alike."""

BUDGET = 1.0
"""ε of each client where it is to be found, likewise."""


class _Width(click.ParamType[float]):
    """The width of a whole interval, or half of it after ±."""

    name = "width"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip()
        half = text.removeprefix("±").removeprefix("+-")
        with suppress(ValueError):
            return float(half.replace(",", "")) * (1.0 if half == text else 2.0)
        self.fail(f"{value!r} is no width: give that of the whole interval, such as 2000, or half of it, ±1000.")


@click.command()
@chosen("q", help="0.5 is the median (the default). Several share the people.", metavar="LEVEL")
@click.option("--clients", type=CLIENTS, default=1, show_default=True, metavar="K", help="Number of equal clients.")
@click.option("--records", type=RECORDS, metavar="N", help="People of each of them; left out, their number is found.")
@chosen("epsilon", metavar="EPSILON", help="Budget of one person; left out, it is found.")
@click.option(
    "--add-client",
    "named",
    multiple=True,
    metavar="NAME=RECORDS,EPSILON[,WEIGHT]",
    help="A client by itself; as often as there are clients, instead of the three above. Weighted by records unless "
    "weights are given.",
)
@chosen("rounds", help="Rounds you can afford (200).")
@click.option(
    "--width",
    type=_Width(),
    metavar="WIDTH",
    help="Wanted, of the whole interval: 2000, or ±1000 for half of it. In units with one of the next four, else in "
    "rank.",
)
@click.option(
    "--population",
    metavar="FAMILY:NAME=NUMBER,…",
    help="Of the values: lognormal:median=48000,sigma=0.6, normal:mean=50,sd=10, uniform:low=0,high=100, laplace, "
    "cauchy, student-t. The plan is then checked by simulation.",
)
@click.option(
    "--like",
    type=click.Path(path_type=Path),
    metavar="RUN.DB",
    help="An earlier run of the same quantity: its density at the quantile is taken.",
)
@number("--spread", "UNITS", "A rough guess: the middle half of the people lies within so many units.")
@number("--density", "F", "Density at the quantile, in 1/units.")
@click.option("--runs", type=click.IntRange(2), default=200, show_default=True, help="Simulated runs of the check.")
@chosen("confidence_level", "simultaneous", "value_kind")
@json_flag("The plan")
def plan(
    q: Any,
    clients: int,
    records: int | None,
    epsilon: Any,
    named: tuple[str, ...],
    width: float | None,
    population: str | None,
    like: Path | None,
    spread: float | None,
    density: float | None,
    runs: int,
    as_json: bool,
    **goals: Any,
) -> None:
    """How wide the interval would be; or how many people, or what ε, a width takes. Asks no one.

    Of people, ε and width give two, and the third is found. A width is that of the whole interval: ±1000 is 2000.

    \b
    privatile plan --epsilon 1 --width 2000 --population lognormal:median=48000,sigma=0.6
    privatile plan --records 50000 --width 2000 --spread 30000
    privatile plan --records 5000 --clients 10 --epsilon 1 --like run.db
    privatile plan -q 0.25 -q 0.5 --add-client north=20000,1 --add-client south=5000,2 --width 0.06
    """
    from privatile.planning.plan import plan_run

    if isinstance(q, Mapping) or isinstance(epsilon, Mapping):
        raise InputError(
            "a plan takes one q and epsilon for all; for each client use --add-client NAME=RECORDS,EPSILON."
        )
    levels: tuple[float, ...] = CURVE if q == "curve" else q if isinstance(q, tuple) else (q or 0.5,)
    law = None
    if len([given for given in (population, like, spread, density) if given is not None]) > 1:
        raise InputError("--population, --like, --spread and --density say the same: give one of them.")
    if population is not None:
        from privatile.simulation.plan_check import parse_population

        law = parse_population(population)
    wanted = _wanted(records, epsilon, width, bool(named))
    members = _clients(levels[0], clients, records, epsilon, named)
    guess = _guess(levels, population, law, like, spread, density)
    given = {name: value for name, value in goals.items() if value is not None}
    made = plan_run(levels, members, wanted=wanted, width=width, guess=guess, **given)
    check = None
    if law is not None:
        from privatile.simulation.plan_check import check_plan

        check = check_plan(made, law, runs)
    if as_json:
        echo_json(made.to_dict() | ({} if check is None else {"simulated": check}))
        return
    echo(made.to_text())
    for index, found in enumerate(check or ()):
        echo(_checked(made, index, found))


def _wanted(records: int | None, epsilon: float | None, width: float | None, named: bool) -> "Wanted":
    """What is to be found: whichever of people, ε and width was not given."""
    if named:
        if records is not None or epsilon is not None:
            raise InputError("--add-client goes without --records and --epsilon: it holds both for one client.")
        return "width"
    if sum(given is not None for given in (records, epsilon, width)) < 2:
        raise InputError(
            "a plan takes two of three, and finds the third: the people (--records N, and --clients K), the budget "
            "(--epsilon E), the width of the interval (--width W). Or --add-client NAME=RECORDS,EPSILON for each."
        )
    if records is None:
        return "people"
    return "epsilon" if epsilon is None else "width"


def _guess(
    levels: tuple[float, ...],
    population: str | None,
    law: Any,
    like: Path | None,
    spread: float | None,
    density: float | None,
) -> "Guess | None":
    """Where units come from."""
    from privatile.planning.widths import from_densities, from_results, from_spread

    if population is not None:
        from privatile.simulation.plan_check import guess_of

        return guess_of(population, law)
    if spread is not None:
        return from_spread(spread)
    if density is not None:
        return from_densities(dict.fromkeys(levels, density), f"a density of {density:g} per unit")
    if like is not None:
        from privatile.run.view import RunView

        return from_results(RunView.read(like).all_results(), levels, like.name)
    return None


def _checked(made: "RunPlan", index: int, found: dict[str, Any]) -> str:
    """Simulated beside predicted."""
    first = made.preview.widths[index][0]
    least = "at least " if first.method == "any-shape" else ""
    width = "no interval was bounded"
    if found["width"] is not None:
        width = f"median width {found['width']:.4g} (predicted {first.width:.4g})"
    spec = made.preview.spec
    return (
        f"Simulated at level {found['level']:g}: {found['coverage'] * found['runs']:.0f} of {found['runs']} intervals "
        f"held the quantile (predicted: {least}{100 * spec.confidence_level:g}%), {width}."
    )


def _clients(
    level: float, count: int, records: int | None, epsilon: float | None, named: tuple[str, ...]
) -> "list[Client]":
    from privatile.core.mechanism import RandomizedResponse
    from privatile.estimator.clients import Client

    if not named:
        coin = RandomizedResponse.from_epsilon(BUDGET if epsilon is None else epsilon)
        size = PROPORTION if records is None else records
        return [Client(f"client {k + 1}", coin, 1.0 / count, level, size) for k in range(count)]
    clients: dict[str, Client] = {}
    parsed = [_parse_client(text) for text in named]
    given = [weight is not None for *_, weight in parsed]
    if any(given) and not all(given):
        raise InputError(
            "--add-client gives a weight to some clients only. Give one to each, or to none: then sizes count."
        )
    for name, size, budget, weight in parsed:
        if name in clients:
            raise InputError(f"--add-client names {name!r} more than once.")
        clients[name] = Client(name, RandomizedResponse.from_epsilon(budget), weight or float(size), level, size)
    return list(clients.values())


def _parse_client(text: str) -> tuple[str, int, float, float | None]:
    name, _, numbers = text.partition("=")
    with suppress(ValueError):
        records, epsilon, *rest = numbers.split(",")
        (weight,) = map(float, rest) if rest else (None,)
        if name and 1 <= int(records) <= LARGEST_LENGTH and (weight is None or 0.0 < weight < float("inf")):
            return name, int(records), float(epsilon), weight
    raise InputError(f"--add-client takes NAME=RECORDS,EPSILON or NAME=RECORDS,EPSILON,WEIGHT; got {text!r}.")
