"""`privatile enroll`: make a client's key on its own machine."""

from pathlib import Path

import click

from privatile.cli.options import file


@click.command()
@click.argument("invitation", type=click.Path(path_type=Path))
@file("--site", "DIR", "Folder of key, limits and ledger; beside the invitation unless given.")
@click.option("--new-key", is_flag=True, help="Replace this site's key; the organizer must admit the new one.")
def enroll(invitation: Path, site: Path | None, new_key: bool) -> None:
    """Make this site's key and limits, and the enrolment file to send back. The key never leaves this machine."""
    from privatile.federation.setup.invitation import read_invitation
    from privatile.federation.site.folder import default_folder
    from privatile.federation.site.folder import enroll as enroll_site

    invited = read_invitation(invitation)
    for label, text in invited.rows():
        click.echo(f"{label:>18}  {text}")
    made = enroll_site(invited, site or default_folder(invitation, invited.client), new_key=new_key)
    click.echo(f"\n{'limits':>18}  {made.limits_file}  <- what this site allows; read and edit it")
    click.echo(f"{'send back':>18}  {made.enrolment_file}")
    click.echo(f"{'your fingerprint':>18}  {made.key().public.fingerprint}")
    click.echo("\nRead your fingerprint to the organizer by telephone, and have theirs (coordinator) read to you.")
