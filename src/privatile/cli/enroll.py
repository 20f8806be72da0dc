"""`privatile enroll`: make a client's key on its own machine."""

import sys
from pathlib import Path

import click

from privatile.cli.options import file, number
from privatile.cli.printing import echo


@click.command()
@click.argument("invitation", type=click.Path(path_type=Path))
@file("--site", "DIR", "Folder of keys, limits and ledger: one for all studies, in your state folder, unless given.")
@number("--max-epsilon", "NUMBER", "This site's own limit: the most one person may spend for life. Said once.")
@click.option("--new-key", is_flag=True, help="Replace this site's key; the organizer must admit the new one.")
def enroll(invitation: Path, site: Path | None, max_epsilon: float | None, new_key: bool) -> None:
    """Make this site's key and limits, and the enrolment file to send back. The key never leaves this machine."""
    from privatile.api.folders import state_folder
    from privatile.federation.setup.directory import check_coordinated
    from privatile.federation.setup.invitation import read_invitation
    from privatile.federation.site.folder import Site
    from privatile.federation.site.folder import enroll as enroll_site
    from privatile.federation.site.limits import COUNT_TWICE

    check_coordinated(invitation)
    invited = read_invitation(invitation)
    for label, text in invited.rows():
        echo(f"{label:>18}  {text}")
    place = site or state_folder()
    if max_epsilon is None and sys.stdin.isatty() and not Site(place, invited.client).limits_file.exists():
        echo("\nThis site has no limits yet. They are its own, for all studies, whatever a study asks for.")
        max_epsilon = click.prompt("The most that one person may spend for life (epsilon)", type=float)
    made = enroll_site(invited, place, max_epsilon=max_epsilon, new_key=new_key)
    echo(f"\n{'limits':>18}  {made.limits_file}  <- what this site allows; read and edit it")
    echo(f"{'':>18}  {COUNT_TWICE}")
    echo(f"{'ledger':>18}  {made.ledger_file}  <- who has answered, for all studies")
    echo(f"{'send back':>18}  {made.enrolment_file}")
    echo(f"{'your fingerprint':>18}  {made.key().public.fingerprint}")
    echo("\nRead your fingerprint to the organizer by telephone, and have theirs (coordinator) read to you.")
