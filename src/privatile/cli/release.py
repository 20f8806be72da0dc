"""`privatile release`: the signed record of a federation's run."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from privatile.core.words import counted
from privatile.errors import InputError

if TYPE_CHECKING:
    from privatile.federation.setup.peer_folder import PeerFolder


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("record.json"), show_default=True)
@click.option("--unfinished", is_flag=True, help="Release a run that has not finished; the record says so.")
@click.option(
    "--sign",
    "given",
    type=click.Path(path_type=Path),
    metavar="RECORD",
    help="Without a coordinator: check another organization's record against this one's file and ledger, and sign it.",
)
def release(folder: Path, output: Path, unfinished: bool, given: Path | None) -> None:
    """Write the signed record of DIR's run: study, budgets, estimate, interval, caveats, transcript digest.

    Without a coordinator one organization writes the record, and the others sign the same file in turn: --sign RECORD.
    """
    from privatile.federation.record.document import release as make
    from privatile.federation.record.document import write_record
    from privatile.federation.run.folders import open_folder
    from privatile.federation.setup.peer_folder import PeerFolder

    directory = open_folder(folder)
    if isinstance(directory, PeerFolder):
        if unfinished:
            raise InputError("without a coordinator only a finished run is released: leave out --unfinished.")
        _release_by_peer(directory, output, given)
        return
    if given is not None:
        raise InputError(
            "--sign is for an organization of a federation without a coordinator. A site countersigns with: privatile "
            f"verify {shlex.quote(str(given))} --transcript RUN.DB --countersign --invitation INVITATION.json"
        )
    record = make(directory, unfinished=unfinished)
    write_record(record, output)
    for result in record["body"]["results"]:
        for caveat in result["caveats"]:
            if caveat["code"] == "unfinished":
                click.echo(f"Before you use it: {caveat['text']}", err=True)
    click.echo(
        f"{output}: signed by the coordinator. Sites may add theirs, each with its own invitation (and the --site DIR "
        f"that it joined with, if any), given this file and the run's: privatile verify {shlex.quote(str(output))} "
        f"--transcript {shlex.quote(str(folder / 'run.db'))} --countersign --invitation INVITATION.json"
    )


def _release_by_peer(directory: "PeerFolder", output: Path, given: Path | None) -> None:
    """Write the record, or sign the one that another peer has written."""
    from privatile.federation.record.checks import VerificationFailed
    from privatile.federation.record.countersignature import read_statement, statement_lines
    from privatile.federation.record.document import read_record, write_record
    from privatile.federation.record.peers import check_has_rounds, release_of_peers, sign_as_peer
    from privatile.federation.record.verification import verify_record

    study = directory.study()
    if given is None:
        if output.exists():
            raise InputError(
                f"{output} is there, and may hold signatures of others. Sign it with --sign "
                f"{shlex.quote(str(output))}, or write another file with -o."
            )
        record = release_of_peers(directory)
    else:
        record, output = read_record(given), given
        check_has_rounds(record, directory)
        checked = verify_record(record, directory.store_file, complete=False)
        if checked.failed:
            click.echo(checked.to_text())
            raise VerificationFailed(
                f"{given} is not what {directory.client} has seen: {counted(len(checked.failed), 'failed check')}, see "
                "above; it is not signed. Keep the file, and ask the others."
            )
        record = sign_as_peer(record, directory)
    write_record(record, output)
    signed = list(record["signatures"]["peers"])
    enough = "these are enough, all is better" if len(signed) >= study.signing_quorum else "it does not hold yet"
    enough = enough if len(signed) < len(study.clients) else "that is everybody"
    needed = f"{study.signing_quorum} of {len(study.clients)} are needed"
    click.echo(f"{output}: signed by {', '.join(signed)}; {needed}: {enough}.")
    statement = read_statement(record["signatures"]["clients"][directory.client]["statement"])
    for line in [] if statement is None else statement_lines(statement):
        click.echo(line)
    if len(signed) < len(study.clients):
        click.echo(f"The next organization signs it with: privatile release DIR --sign {shlex.quote(str(output))}")
