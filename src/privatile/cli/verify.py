"""`privatile verify`: check a release record, from the counts alone."""

from pathlib import Path

import click

from privatile.cli.options import existing, json_flag
from privatile.cli.printing import echo, echo_json
from privatile.core.private_files import state_folder
from privatile.errors import InputError


@click.command()
@click.argument("record", type=click.Path(path_type=Path))
@click.option(
    "--transcript",
    type=click.Path(path_type=Path),
    callback=existing,
    help="The run's file (run.db): recompute everything.",
)
@click.option(
    "--countersign", is_flag=True, help="Add this site's signature if everything holds and is what its own ledger says."
)
@click.option("--invitation", type=click.Path(path_type=Path), help="This site's invitation, for --countersign.")
@click.option(
    "--site", type=click.Path(path_type=Path), help="This site's folder, for --countersign; yours unless given."
)
@json_flag("The verdict and the checks")
def verify(
    record: Path,
    transcript: Path | None,
    countersign: bool,
    invitation: Path | None,
    site: Path | None,
    as_json: bool,
) -> None:
    """Check the signatures of RECORD and, with --transcript, recompute its estimate from the counts alone.

    --countersign compares every question and count of this site with its own ledger before it signs.
    """
    from privatile.client.ledger.ledger import Ledger
    from privatile.core.extensions import of_study
    from privatile.federation.operations.record import countersign as add_signature
    from privatile.federation.operations.record import verify_record
    from privatile.federation.setup.invitation import read_invitation
    from privatile.federation.site.folder import find_site
    from privatile.records.countersignature import read_statement, statement_lines
    from privatile.records.signing import read_record, write_record
    from privatile.records.verification import VerificationFailed
    from privatile.survey.record import is_survey_record, verify_survey_record

    if countersign and invitation is None:
        raise InputError("--countersign needs --invitation FILE, this site's own: it says which client it is.")
    content = read_record(record)
    if is_survey_record(content):
        if countersign:
            raise InputError("a survey's record is signed by its organiser alone: leave out --countersign.")
        checked = verify_survey_record(content, transcript)
    else:
        if countersign and (extension := of_study(content["body"].get("study"))) is not None:
            raise InputError(extension.how_to_sign(record))
        checked = verify_record(content, transcript)
    recomputed = transcript is not None
    if as_json:
        echo_json(checked.to_dict(recomputed=recomputed))
    else:
        echo(checked.to_text())
    if checked.failed:
        raise VerificationFailed(f"{record} cannot be trusted: {len(checked.failed)} of the checks fail; see above.")
    if not as_json:
        echo(checked.verdict(recomputed=recomputed))
    if invitation is not None and countersign:
        if transcript is None:
            raise InputError(
                "--countersign needs --transcript FILE, the run's file: its questions and counts are compared with "
                "this site's own ledger. Ask the coordinator for it."
            )
        invited = read_invitation(invitation)
        place = find_site(site or state_folder(), invited, invitation)
        with Ledger.open(place.ledger_file, create=False, read_only=True) as ledger:
            signed = add_signature(content, invited.client, place.key(), transcript, ledger)
        write_record(signed, record)
        echo(f"{record}: countersigned by {invited.client}.", err=as_json)
        statement = read_statement(signed["signatures"]["clients"][invited.client]["statement"])
        for line in [] if statement is None else statement_lines(statement):
            echo(line, err=as_json)
