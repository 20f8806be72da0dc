"""`privatile verify`: check a release record, from the counts alone."""

from pathlib import Path

import click

from privatile.errors import InputError


@click.command()
@click.argument("record", type=click.Path(path_type=Path))
@click.option("--transcript", type=click.Path(path_type=Path), help="The run's file (run.db): recompute everything.")
@click.option("--countersign", is_flag=True, help="Add this site's signature if everything holds.")
@click.option("--invitation", type=click.Path(path_type=Path), help="This site's invitation, for --countersign.")
@click.option("--site", type=click.Path(path_type=Path), help="This site's folder, for --countersign.")
def verify(
    record: Path, transcript: Path | None, countersign: bool, invitation: Path | None, site: Path | None
) -> None:
    """Check the signatures of RECORD and, with --transcript, recompute its estimate from the counts alone."""
    from privatile.federation.record.document import countersign as add_signature
    from privatile.federation.record.document import read_record, write_record
    from privatile.federation.record.verification import VerificationFailed, verify_record
    from privatile.federation.setup.invitation import read_invitation
    from privatile.federation.site.folder import find_site

    content = read_record(record)
    checked = verify_record(content, transcript)
    click.echo(checked.to_text())
    if checked.failed:
        raise VerificationFailed(f"{record} cannot be trusted: {len(checked.failed)} of the checks fail; see above.")
    if countersign:
        if invitation is None:
            raise InputError("--countersign needs --invitation FILE, this site's own: it says which client it is.")
        invited = read_invitation(invitation)
        key = find_site(invitation, invited, site).key()
        write_record(add_signature(content, invited.client, key), record)
        click.echo(f"{record}: countersigned by {invited.client}.")
