"""`privatile plan`: how narrow the interval would be, and what it takes to make it so."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from privatile.cli.options import json_flag
from privatile.cli.printing import echo_json
from privatile.core.messages import LARGEST_LENGTH
from privatile.errors import InputError

if TYPE_CHECKING:
    from privatile.estimator.clients import Client

CLIENTS = click.IntRange(1, 100_000)
RECORDS = click.IntRange(1, LARGEST_LENGTH)


@click.command()
@click.option("--q", "level", type=float, default=0.5, show_default=True, metavar="LEVEL", help="0.5 is the median.")
@click.option("--clients", type=CLIENTS, default=1, show_default=True, metavar="K", help="Number of equal clients.")
@click.option("--records", type=RECORDS, metavar="N", help="Records of each of them.")
@click.option("--epsilon", type=float, metavar="EPSILON", help="Budget of one record at each of them.")
@click.option(
    "--client",
    "named",
    multiple=True,
    metavar="NAME=RECORDS,EPSILON[,WEIGHT]",
    help="A client by itself; as often as there are clients, instead of the three above. Weighted by records unless "
    "weights are given.",
)
@click.option("--rounds", type=RECORDS, metavar="N", help="Rounds you can afford (200).")
@click.option("--half-width", type=float, metavar="H", help="Half-width wanted: in units with a density, else in rank.")
@click.option("--density", type=float, metavar="F", help="Density at the quantile, in 1/units.")
@click.option(
    "--population",
    metavar="FAMILY[:LOCATION,SCALE]",
    help="normal, lognormal, laplace, cauchy, uniform:LOW,HIGH, …: gives the density, and the plan is checked by "
    "simulation.",
)
@click.option("--runs", type=click.IntRange(2), default=400, show_default=True, help="Simulated runs of that check.")
@click.option("--confidence-level", type=float, default=0.95, show_default=True, metavar="LEVEL")
@click.option(
    "--values",
    default="any",
    show_default=True,
    metavar="KIND",
    help="What you will declare about the values: any, continuous, whole or step=NUMBER.",
)
@json_flag("The plan")
def plan(
    level: float,
    clients: int,
    records: int | None,
    epsilon: float | None,
    named: tuple[str, ...],
    population: str | None,
    runs: int,
    as_json: bool,
    **goals: Any,
) -> None:
    """Expected half-width from records and budgets, or the records or budgets that a half-width takes. Asks no one.

    \b
    privatile plan --clients 10 --records 5000 --epsilon 1
    privatile plan --q 0.8 --client north=20000,1 --client south=5000,2 --half-width 0.01
    privatile plan --clients 10 --records 5000 --epsilon 1 --population normal:50,10 --half-width 0.2
    """
    from privatile.planning.plan import plan_run

    members = _clients(level, clients, records, epsilon, named)
    law = None
    if population is not None:
        from privatile.simulation.plan_check import check_plan, parse_population

        law = parse_population(population)
        goals["density"] = float(law.density(law.quantile(level)))
    made = plan_run(level, members, **goals)
    check = None if law is None else check_plan(made, law, runs)
    if as_json:
        echo_json(made.to_dict() | ({} if check is None else {"simulated": check}))
        return
    click.echo(made.to_text())
    if check is not None:
        target = "at least " if made.headline.method == "any-shape" else ""
        width = "no interval was bounded"
        if check["half_width"] is not None:
            width = f"median half-width {check['half_width']:.4g} (predicted {made.half_width:.4g})"
        click.echo(
            f"Simulated, {check['runs']} runs: coverage {check['coverage']:.3f} ± {check['coverage_error']:.3f} "
            f"(predicted {target}{goals['confidence_level']:g}), {width}."
        )


def _clients(
    level: float, count: int, records: int | None, epsilon: float | None, named: tuple[str, ...]
) -> "list[Client]":
    from privatile.core.mechanism import RandomizedResponse
    from privatile.estimator.clients import Client

    if not named:
        if records is None or epsilon is None:
            raise InputError(
                "a plan needs the clients' records and budgets: --records N --epsilon E (and --clients K), or --client "
                "NAME=RECORDS,EPSILON for each."
            )
        coin = RandomizedResponse.from_epsilon(epsilon)
        return [Client(f"client {k + 1}", coin, 1.0 / count, level, records) for k in range(count)]
    if records is not None or epsilon is not None:
        raise InputError("--client goes without --records and --epsilon: it holds both for one client.")
    clients: dict[str, Client] = {}
    parsed = [_parse_client(text) for text in named]
    given = [weight is not None for *_, weight in parsed]
    if any(given) and not all(given):
        raise InputError(
            "--client gives a weight to some clients only. Give one to each, or to none: then sizes count."
        )
    for name, size, budget, weight in parsed:
        if name in clients:
            raise InputError(f"--client names {name!r} more than once.")
        clients[name] = Client(name, RandomizedResponse.from_epsilon(budget), weight or float(size), level, size)
    return list(clients.values())


def _parse_client(text: str) -> tuple[str, int, float, float | None]:
    name, _, numbers = text.partition("=")
    with suppress(ValueError):
        records, epsilon, *rest = numbers.split(",")
        (weight,) = map(float, rest) if rest else (None,)
        if name and 1 <= int(records) <= LARGEST_LENGTH and (weight is None or 0.0 < weight < float("inf")):
            return name, int(records), float(epsilon), weight
    raise InputError(f"--client takes NAME=RECORDS,EPSILON or NAME=RECORDS,EPSILON,WEIGHT; got {text!r}.")
