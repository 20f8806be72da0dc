"""`privatile join`: run a federation's client next to its data."""

import sys
from pathlib import Path
from typing import Any

import click

from privatile.cli.options import file, text
from privatile.cli.reading_options import ReadingOptions, reading_options
from privatile.cli.service_options import operations_arguments, service_options, write_unit
from privatile.errors import InputError


@click.command()
@click.argument("invitation", type=click.Path(path_type=Path))
@text("--source", "FILE", "CSV, Parquet or JSON (also .gz) with this site's records; SQLite or DuckDB with --sql.")
@click.option("--value", required=True, metavar="COLUMN", help="Column with the numbers.")
@text("--person", "COLUMN", "Column with the person of each record: the budget is then per person.")
@text("--weight", "COLUMN", "Column with the survey weights, where the study asks for a weight class.")
@reading_options
@file("--site", "DIR", "Folder of keys, limits and ledger: one for all studies, in your state folder, unless given.")
@file("--policy", "FILE", "File of this site's limits instead of policy.toml in its folder.")
@click.option("--restored", is_flag=True, help="The ledger was restored from a backup: mark what it has lost as spent.")
@click.option(
    "--new-people", is_flag=True, help="The people in this file are not those of earlier files with this column."
)
@click.option("--yes", is_flag=True, help="Agree to the study that is shown; do not ask.")
@service_options
@click.option("--verbose", is_flag=True, help="Log every answer.")
def join(
    invitation: Path,
    source: str | None,
    site: Path | None,
    yes: bool,
    install_unit: Path | None,
    json_logs: bool,
    verbose: bool,
    policy: Path | None,
    reading: ReadingOptions,
    **values: Any,
) -> None:
    """Answer a study's questions from this site's own file until the study ends. Connects outward only.

    Each record answers once: the ledger in the site's folder makes sure of it. The file policy.toml in the same folder
    sets this site's limits; what exceeds them is refused, whatever the study asks.
    """
    from privatile.api.folders import state_folder
    from privatile.client.ledger.key_files import config_folder
    from privatile.client.sources.text_format import TextFormat
    from privatile.federation.monitoring import start_logging
    from privatile.federation.run.join import JoinOptions, join_run
    from privatile.federation.run.units import systemd_unit
    from privatile.federation.setup.invitation import read_invitation
    from privatile.federation.site.folder import find_site

    invited = read_invitation(invitation)
    place = find_site(site or state_folder(), invited, invitation)
    options = JoinOptions(limits=policy, sql=reading.sql, text_format=TextFormat(**reading.text_format), **values)
    rows = reading.data(source, "--source") if install_unit is None else None
    if install_unit is not None:
        arguments = ["join", str(invitation.absolute()), "--value", options.value, *reading.arguments()]
        arguments += ["--source", str(Path(source).absolute())] if source else []
        arguments += ["--site", str(place.path.absolute()), "--yes", "--json-logs"]
        arguments += ["--person", options.person] if options.person else []
        arguments += ["--weight", options.weight] if options.weight else []
        arguments += ["--policy", str(policy.absolute())] if policy else []
        arguments += operations_arguments(options.ops_port, options.ops_host, options.ops_names)
        writes = (place.path, state_folder(), config_folder())
        write_unit(install_unit, invited.client, systemd_unit(f"client {invited.client}", arguments, writes))
        return
    for label, words in invited.rows():
        click.echo(f"{label:>18}  {words}", err=True)
    if not yes:
        if not sys.stdin.isatty():
            raise InputError(
                "there is no terminal to ask whether you agree to the study. Read it, then agree with --yes."
            )
        click.confirm("Answer this study?", abort=True, err=True)
    start_logging(as_json=json_logs, verbose=verbose)
    end = join_run(invited, place, rows, options, lambda line: click.echo(line, err=True))
    click.echo(f"The study is {end}." if end != "stopped" else "Stopped; the same command continues.", err=True)
