"""`privatile audit`: measure a client's privacy from outside."""

from __future__ import annotations

import shlex

import click

from privatile.errors import PrivatileError


@click.command()
@click.option("--epsilon", type=float, required=True, help="The budget the client claims to keep.")
@click.option("--off", type=float, default=0.02, show_default=True, help="Share by which a wrong truth rate is found.")
@click.option("--command", help="Another client to audit; it takes the arguments of `privatile join`.")
def audit(epsilon: float, off: float, command: str | None) -> None:
    """Run the real client against planted data and measure what its answers and its traces give away.

    The likelihood ratio of its reports is bounded from both sides by exact confidence bounds; the number of reports is
    chosen so that a truth rate wrong by --off is found 999 times in a thousand (600,000 or so at epsilon 1).
    """
    from privatile.federation.audit import audit as measure

    found = measure(
        epsilon, shlex.split(command) if command else None, off=off, say=lambda line: click.echo(line, err=True)
    )
    click.echo(found.to_text())
    if not found.passed:
        raise PrivatileError("the audit found something; see above.")
