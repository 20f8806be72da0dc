"""`privatile ledger`: what has been spent, by whom. Never a value."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from privatile.cli.printing import echo_json

LEDGER = click.option(
    "--ledger",
    "path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The ledger; yours in your state folder unless given.",
)


@click.group()
def ledger() -> None:
    """The book of who has answered."""


@ledger.command()
@LEDGER
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def show(path: Path | None, as_json: bool) -> None:
    """Per client and column: records, answers given, records left, runs, the most any record has spent."""
    from privatile.api.folders import ledger_path
    from privatile.client.ledger.ledger import Ledger
    from privatile.client.ledger.statement import statement
    from privatile.result.result import finite

    with Ledger.open(path or ledger_path(), create=False, read_only=True) as book:
        said = statement(book)
        where = str(book.path)
    if as_json:
        # JSON has no infinity, which is what records that answered without privacy have spent: null stands for it.
        lines = [{**asdict(line), "epsilon": finite(line.epsilon)} for line in said.datasets]
        content = {**asdict(said), "datasets": lines, "person_epsilon": finite(said.person_epsilon)}
        echo_json({"ledger": where, **content})
        return
    click.echo(f"{where}: {said.entries} entries")
    heads = ("client", "column", "records", "answers", "unasked", "runs", "largest ε spent")
    rows = [
        (
            line.client,
            line.column,
            f"{line.records:,}",
            f"{line.reports:,}",
            f"{line.unasked:,}",
            f"{line.runs}",
            f"{line.epsilon:.4g}",
        )
        for line in said.datasets
    ]
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    for row in (heads, *rows):
        left = [f"{cell:<{width}}" for cell, width in zip(row[:2], widths[:2], strict=True)]
        right = [f"{cell:>{width}}" for cell, width in zip(row[2:], widths[2:], strict=True)]
        click.echo("  ".join(left + right))
    if said.people:
        click.echo(f"{said.people:,} people are known; the one who spent most has spent ε = {said.person_epsilon:.4g}.")


@ledger.command()
@click.argument("run")
@LEDGER
def release(run: str, path: Path | None) -> None:
    """Give up RUN: other runs may ask what it has reserved and not asked. What it has asked stays spent."""
    from privatile.api.folders import ledger_path
    from privatile.client.ledger.ledger import Ledger
    from privatile.client.ledger.reservations import release_run

    with Ledger.open(path or ledger_path(), create=False) as book:
        released = release_run(book, run)
    click.echo(f"{released:,} records reserved by run {run} were not asked and are free again.")
