"""`privatile ledger`: what has been spent, by whom. Never a value."""

from dataclasses import asdict
from pathlib import Path

import click

from privatile.cli.options import file, json_flag
from privatile.cli.printing import echo_json

LEDGER = file("--ledger", "FILE", "The ledger; yours in your state folder unless given.")


@click.group()
def ledger() -> None:
    """The account of who has answered."""


@ledger.command()
@LEDGER
@json_flag("The statement")
def show(ledger: Path | None, as_json: bool) -> None:
    """Per client and column: records, answers given, records left, runs, the most any record has spent."""
    from privatile.api.folders import ledger_path
    from privatile.client.ledger.ledger import Ledger
    from privatile.client.ledger.statement import statement
    from privatile.result.result import finite

    with Ledger.open(ledger or ledger_path(), create=False, read_only=True) as book:
        facts = statement(book)
    if as_json:
        # JSON has no infinity, which is what records that answered without privacy have spent: null stands for it.
        lines = [{**asdict(line), "epsilon": finite(line.epsilon)} for line in facts.datasets]
        rest = {**asdict(facts), "datasets": lines, "person_epsilon": finite(facts.person_epsilon)}
        echo_json({"ledger": str(book.path), **rest})
        return
    click.echo(f"{book.path}: {facts.entries} entries")
    rows: list[tuple[str, ...]] = [("client", "column", "records", "answers", "unasked", "runs", "largest ε spent")]
    for line in facts.datasets:
        counts = (f"{count:,}" for count in (line.records, line.reports, line.unasked))
        rows.append((line.client, line.column, *counts, str(line.runs), f"{line.epsilon:.4g}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, "<<>>>>>", widths, strict=True)
        click.echo("  ".join(f"{cell:{side}{width}}" for cell, side, width in cells))
    if facts.people:
        click.echo(f"{facts.people:,} people are known; the most that one has spent is ε = {facts.person_epsilon:.4g}.")


@ledger.command()
@click.argument("run")
@LEDGER
def release(run: str, ledger: Path | None) -> None:
    """Give up RUN: other runs may ask what it has reserved and not asked. What it has asked stays spent."""
    from privatile.api.folders import ledger_path
    from privatile.client.ledger.ledger import Ledger
    from privatile.client.ledger.reservations import release_run

    with Ledger.open(ledger or ledger_path(), create=False) as book:
        released = release_run(book, run)
    click.echo(f"{released:,} records reserved by run {run} were not asked and are free again.")
