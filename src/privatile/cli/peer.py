"""`privatile peer`: one organization's part in a federation without a coordinator."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from privatile.cli.options import file, number, text
from privatile.errors import InputError

if TYPE_CHECKING:
    from privatile.federation.setup.peer_folder import PeerFolder
    from privatile.federation.study.study import FederationStudy


def _folder(_context: click.Context, _parameter: click.Parameter, path: Path) -> "PeerFolder":
    # Imported when a command is called: --help works without the extra, and at once.
    from privatile.federation.setup.peer_folder import PeerFolder

    return PeerFolder(path)


FOLDER = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path), callback=_folder)
PORT = click.IntRange(1, 65535)


def write_study(path: Path, study: "FederationStudy", given: Mapping[str, bool]) -> None:
    """What `privatile federation init --leaderless` writes: the study, and one invitation for all."""
    from privatile.federation.setup.files import replace_file
    from privatile.federation.setup.peer_roster import write_peer_invitation
    from privatile.federation.study.study import study_toml

    if not given["--leaderless"]:
        raise InputError("--tolerate is for federations without a coordinator: add --leaderless, or leave it out.")
    for option in ("--host", "--broker"):
        if given[option]:
            raise InputError(
                f"{option} is not for --leaderless: every organization names its own server when it enrolls."
            )
    if path.exists() and any(path.iterdir()):
        raise InputError(f"{path} is not empty. Choose a new folder.")
    path.mkdir(parents=True, exist_ok=True)
    replace_file(path / "study.toml", study_toml(study))
    write_peer_invitation(path / "invitation.json", study)
    count, quorum = len(study.clients), study.signing_quorum
    click.echo(f"study        {path / 'study.toml'}  (hash {study.digest[:16]})")
    click.echo(f"invitation   {path / 'invitation.json'}  -> send to all; it holds no secret")
    click.echo(
        f"signing      {quorum} of {count} sign every round: {count - quorum} may be away, {study.tolerate} may lie"
    )
    click.echo("Each organization runs `privatile peer enroll` and sends its enrolment to all others.")


@click.group()
def peer() -> None:
    """A federation without a coordinator: one organization's part.

    \b
    privatile federation init STUDY --leaderless --client north --client south --client west ...
    privatile peer enroll STUDY/invitation.json DIR --client north --host north.example
    (everybody sends DIR/north.peer.json to everybody)
    privatile peer admit DIR *.peer.json
    privatile peer run DIR --source salaries.csv --value salary
    """


@peer.command()
@click.argument("invitation", type=click.Path(path_type=Path))
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--client", required=True, metavar="NAME", help="Which client of the study this organization is.")
@file("--site", "DIR", "Folder of keys, limits and ledger: one for all studies, in your state folder, unless given.")
@number("--max-epsilon", "NUMBER", "This site's own limit: the most one person may spend for life. Said once.")
@text("--host", "NAME", "Name or address of the server that this organization runs; without it, it runs none.")
@click.option("--port", type=PORT, default=4222, show_default=True, help="Port of that server for peers.")
@click.option("--cluster-port", type=PORT, default=6222, show_default=True, help="Port for the other servers.")
@text("--listen", "ADDRESS", "Address that the server listens on; all of this machine unless given.")
def enroll(
    invitation: Path,
    folder: Path,
    client: str,
    site: Path | None,
    max_epsilon: float | None,
    host: str | None,
    port: int,
    cluster_port: int,
    listen: str | None,
) -> None:
    """Make this organization's folder DIR, its keys, and the enrolment to send to all others. Keys stay here."""
    from privatile.api.folders import state_folder
    from privatile.federation.setup.peer_folder import ServerPlace, check_new_folder, make_peer_folder
    from privatile.federation.setup.peer_roster import PeerInvitation, read_peer_invitation
    from privatile.federation.site.folder import enroll as enroll_site

    study = read_peer_invitation(invitation)
    check_new_folder(folder, study, client)
    invited = PeerInvitation(client, study)
    for label, words in invited.rows():
        click.echo(f"{label:>18}  {words}")
    place = enroll_site(invited, site or state_folder(), max_epsilon=max_epsilon)
    at = ServerPlace(host or "", port, cluster_port, listen or "")
    made = make_peer_folder(folder, study, client, place.path, place.key(), at)
    click.echo(f"\n{'limits':>18}  {place.limits_file}  <- what this site allows; read and edit it")
    click.echo(f"{'ledger':>18}  {place.ledger_file}  <- who has answered, for all studies")
    click.echo(f"{'send to all':>18}  {made.enrolment_file}")
    click.echo(f"{'your fingerprint':>18}  {place.key().public.fingerprint}")


@peer.command()
@FOLDER
@click.argument("enrolments", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--fingerprint", help="The roster's fingerprint, as all have compared it: anything else is refused.")
def admit(folder: "PeerFolder", enrolments: tuple[Path, ...], fingerprint: str | None) -> None:
    """Build the roster from everybody's enrolments. All compare its fingerprint once, by telephone."""
    roster = folder.admit(list(enrolments), fingerprint)
    for label, words in roster.rows():
        click.echo(f"{label:>18}  {words}")
    if fingerprint is None:
        click.echo("\nCompare the roster's fingerprint with all others, by telephone. It covers every line above.")
