"""`privatile join`: run a federation's client next to its data."""

from pathlib import Path
from typing import Any

import click

from privatile.cli.options import file
from privatile.cli.printing import echo
from privatile.cli.reading_options import ReadingOptions
from privatile.cli.service_options import write_unit
from privatile.cli.site_options import agree, site_choices, site_options, unit_words


@click.command()
@click.argument("invitation", type=click.Path(path_type=Path))
@site_options
@file("--site", "DIR", "Folder of keys, limits and ledger: one for all studies, in your state folder, unless given.")
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
    from privatile.federation.monitoring import start_logging
    from privatile.federation.run.join import join_run
    from privatile.federation.run.units import systemd_unit
    from privatile.federation.setup.directory import check_coordinated
    from privatile.federation.setup.invitation import read_invitation
    from privatile.federation.site.folder import find_site

    check_coordinated(invitation)
    invited = read_invitation(invitation)
    place = find_site(site or state_folder(), invited, invitation)
    options = site_choices(reading, policy, values)
    if install_unit is not None:
        arguments = ["join", str(invitation.absolute()), "--site", str(place.path.absolute())]
        arguments += unit_words(source, reading, options)
        writes = (place.path, state_folder(), config_folder())
        write_unit(install_unit, invited.client, systemd_unit(f"client {invited.client}", arguments, writes))
        return
    rows = reading.data(source, "--source")
    agree(invited.rows(), "Answer this study?", yes=yes)
    start_logging(as_json=json_logs, verbose=verbose)
    end = join_run(invited, place, rows, options, lambda line: echo(line, err=True))
    echo(f"The study is {end}." if end != "stopped" else "Stopped; the same command continues.", err=True)
