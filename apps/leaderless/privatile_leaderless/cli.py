"""`privatile peer`, and the options that `privatile federation init` and `privatile release` get besides."""

import copy
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privatile.cli.options import (
    ABORT,
    NEEDS_YES,
    YES,
    agree,
    ask_first,
    existing,
    file,
    number,
    site_choices,
    site_options,
    text,
)
from privatile.cli.printing import echo
from privatile.core.extensions import of_path
from privatile.core.private_files import state_folder
from privatile.core.text import counted
from privatile.errors import InputError
from privatile_leaderless import extension, quorums

if TYPE_CHECKING:
    from privatile.federation.study import FederationStudy
    from privatile_leaderless.folder import PeerFolder


def _folder(_context: click.Context, _parameter: click.Parameter, path: Path) -> "PeerFolder":
    # Imported when a command is called: --help works without the extra, and at once.
    from privatile_leaderless.folder import open_peer

    return open_peer(path)


FOLDER = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path), callback=_folder)
PORT = click.IntRange(1, 65535)


def check_options(*, leaderless: bool, is_open: bool, hosts: Sequence[str], brokers: Sequence[str]) -> None:
    """Refuse options of `privatile federation init` that do not go together."""
    if is_open:
        raise InputError("an open study needs a coordinator: leave out --leaderless and --tolerate, or --open.")
    if not leaderless:
        raise InputError("--tolerate is for federations without a coordinator: add --leaderless, or leave it out.")
    for option, given in (("--host", hosts), ("--broker", brokers)):
        if given:
            raise InputError(
                f"{option} is not for --leaderless: every organization names its own server when it enrolls."
            )


def write_study(path: Path, study: "FederationStudy") -> None:
    """What `privatile federation init --leaderless` writes: the study, and one invitation for all."""
    from privatile.federation.study import study_toml
    from privatile.run.files import replace_file
    from privatile_leaderless.roster import write_peer_invitation

    if path.exists() and any(path.iterdir()):
        raise InputError(f"{path} is not empty. Choose a new folder.")
    path.mkdir(parents=True, exist_ok=True)
    replace_file(path / "study.toml", study_toml(study))
    write_peer_invitation(path / "invitation.json", study)
    count, quorum = len(study.clients), quorums.signing(study)
    echo(f"study        {path / 'study.toml'}  (hash {study.digest[:16]})")
    echo(f"invitation   {path / 'invitation.json'}  -> send to all; it holds no secret")
    away, liars = count - quorum, quorums.liars(study)
    echo(f"signing      {quorum} of {count} sign every round: {away} may be away, {liars} may lie")
    echo("Each organization runs `privatile peer enroll` and sends its enrolment to all others.")


@click.group()
def peer() -> None:
    """A federation without a coordinator: one organization's part.

    \b
    privatile federation init STUDY --leaderless --add-client north --add-client south --add-client west ...
    privatile peer enroll STUDY/invitation.json DIR --as-client north --host north.example
    (everybody sends DIR/north.peer.json to everybody)
    privatile peer admit DIR *.peer.json
    privatile peer run DIR --source salaries.csv --value salary
    """


@peer.command()
@click.argument("invitation", type=click.Path(path_type=Path))
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--as-client", "client", required=True, metavar="NAME", help="Which client of the study this organization is."
)
@file("--site", "DIR", "Folder of keys, limits and ledger: one for all studies, in your state folder, unless given.")
@number("--max-epsilon", "NUMBER", "This site's own limit: the most one person may spend for life. PeerPosition once.")
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
    from privatile.federation.site.folder import enroll as enroll_site
    from privatile.federation.site.limits import COUNT_TWICE
    from privatile_leaderless.folder import ServerPlace, check_new_folder, make_peer_folder
    from privatile_leaderless.roster import PeerInvitation, read_peer_invitation

    study = read_peer_invitation(invitation)
    invited = PeerInvitation(client, study)
    at = ServerPlace(host or "", port, cluster_port, listen or "")
    check_new_folder(folder, study, client, at)
    for label, words in invited.rows():
        echo(f"{label:>18}  {words}")
    place = enroll_site(invited, site or state_folder(), max_epsilon=max_epsilon)
    made = make_peer_folder(folder, study, client, place.path, place.key(), at)
    echo(f"\n{'limits':>18}  {place.limits_file}  <- what this site allows; read and edit it")
    echo(f"{'':>18}  {COUNT_TWICE}")
    echo(f"{'ledger':>18}  {place.ledger_file}  <- who has answered, for all studies")
    echo(f"{'send to all':>18}  {made.enrolment_file}")
    echo(f"{'your fingerprint':>18}  {place.key().public.fingerprint}")


@peer.command()
@FOLDER
@click.argument("enrolments", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--fingerprint", help="The roster's fingerprint, as all have compared it: anything else is refused.")
def admit(folder: "PeerFolder", enrolments: tuple[Path, ...], fingerprint: str | None) -> None:
    """Build the roster from everybody's enrolments. All compare its fingerprint once, by telephone."""
    roster = folder.admit(list(enrolments), fingerprint)
    for label, words in roster.rows():
        echo(f"{label:>18}  {words}")
    if fingerprint is None:
        echo("\nCompare the roster's fingerprint with all others, by telephone. It covers every line above.")


@peer.command()
@FOLDER
@site_options
@click.option("--broker", "brokers", multiple=True, metavar="URL", help="Servers of others, instead of the own one.")
@click.option(
    "--linger", type=float, default=60.0, show_default=True, help="Seconds its server stays for those who are late."
)
@click.option("--verbose", is_flag=True, help="Log every round.")
def run(
    folder: "PeerFolder",
    source: str | None,
    brokers: tuple[str, ...],
    linger: float,
    yes: bool,
    json_logs: bool,
    verbose: bool,
    policy: Path | None,
    **values: Any,
) -> None:
    """Answer the study from this organization's own file, and follow the log, until the study ends.

    Starts the organization's own server, unless it runs none or --broker names others. Stop and start it at any time.
    """
    from privatile.federation.monitoring import start_logging
    from privatile.federation.operations.status import run_results
    from privatile_leaderless.roster import PeerInvitation
    from privatile_leaderless.service import PeerOptions, run_peer

    rows, options = site_choices(source, policy, values)
    agree(PeerInvitation(folder.client, folder.study(), folder.peers()).rows(), "Take part in this study?", yes=yes)
    start_logging(as_json=json_logs, verbose=verbose)
    end = run_peer(folder, rows, options, PeerOptions(brokers, linger), lambda line: echo(line, err=True))
    if end == "finished":
        echo("\n\n".join(str(result) for result in run_results(folder)))
    else:
        echo(f"The run is {end}." if end != "stopped" else "Stopped; the same command continues.", err=True)


@peer.command()
@FOLDER
@click.option("--abort", is_flag=True, help="End the run for good. What was answered stays spent. Asks before.")
@YES
def vote(folder: "PeerFolder", abort: bool, yes: bool) -> None:
    """Vote to abort. The run ends when enough organizations have voted so; nobody decides alone.

    A vote cannot be taken back. `privatile status DIR` shows who has voted.
    """
    from privatile_leaderless.service import check_goes_on, vote_to_abort

    if not abort:
        raise InputError("the one vote there is: --abort.")
    check_goes_on(folder)
    ask_first(f"Vote to abort? {ABORT}", f": {NEEDS_YES}", yes=yes)
    echo(vote_to_abort(folder))


@peer.command()
@FOLDER
@click.option("--epoch", type=click.IntRange(1), help="The new log's number, where peers have come to different ones.")
@YES
def recover(folder: "PeerFolder", epoch: int | None, yes: bool) -> None:
    """After the loss of the log: begin a new one. Every organization does this, with its peer stopped. Asks before.

    It begins at the earliest place that a quorum can still sign, by what all say of themselves. What was answered
    beyond it stays spent.
    """
    from privatile_leaderless.service import recover as begin

    ask_first("Is the log lost for good, and do all organizations begin a new one?", f": {NEEDS_YES}", yes=yes)
    echo(f"The next `privatile peer run` reads log {begin(folder, epoch)}. All others must have the same number.")


@peer.command("catch-up")
@FOLDER
@click.option(
    "--from", "other", required=True, type=click.Path(path_type=Path), callback=existing, help="Another peer's run.db."
)
def catch_up(folder: "PeerFolder", other: Path) -> None:
    """Take over the rounds in another peer's run.db, each checked by its signatures, with this peer stopped."""
    from privatile_leaderless.service import catch_up as follow

    echo(follow(folder, other))


SIGN = click.Option(
    ["--sign", "given"],
    type=click.Path(path_type=Path),
    metavar="RECORD",
    help="Without a coordinator: check another organization's record against this one's file and ledger, and sign it.",
)
LEADERLESS = (
    click.Option(
        ["--leaderless"], is_flag=True, help="No coordinator: the clients run `privatile peer`, and agree by a log."
    ),
    click.Option(["--tolerate"], type=int, help="With --leaderless: how many clients may lie; 0 unless given."),
)


def extend(name: str, command: click.Command) -> click.Command:
    """`privatile federation` and `privatile release`, with the options of a federation without a coordinator."""
    if name == "release":
        return _with_options(command, (SIGN,), release)
    found = copy.copy(command)
    assert isinstance(found, click.Group)
    found.commands = {**found.commands, "init": _with_options(found.commands["init"], LEADERLESS, init)}
    return found


def _with_options(
    command: click.Command, options: tuple[click.Option, ...], call: Callable[..., None]
) -> click.Command:
    found = copy.copy(command)
    found.params, found.callback = [*command.params, *options], partial(call, command.callback)
    return found


def init(begin: Callable[..., None], *, leaderless: bool, tolerate: int | None, **options: Any) -> None:
    """Begin a federation, without a coordinator where that is asked for."""
    if not leaderless and tolerate is None:
        begin(**options)
        return
    is_open = options["is_open"] or options["design"] == "open"
    check_options(leaderless=leaderless, is_open=is_open, hosts=options["hosts"], brokers=options["brokers"])
    begin(**options, tolerate=tolerate or 0)


def release(make: Callable[..., None], *, folder: Path, output: Path, unfinished: bool, given: Path | None) -> None:
    """Make a record: one organization writes it, and the others sign the same file in turn."""
    from privatile_leaderless.folder import open_peer

    if of_path(folder) is extension:
        own = open_peer(folder)
        if unfinished:
            raise InputError("without a coordinator only a finished run is released: leave out --unfinished.")
        _release(own, output, given)
        return
    if given is not None:
        raise InputError(
            "--sign is for an organization of a federation without a coordinator. A site countersigns with: privatile "
            f"verify {shlex.quote(str(given))} --transcript RUN.DB --countersign --invitation INVITATION.json"
        )
    make(folder=folder, output=output, unfinished=unfinished)


def _release(directory: "PeerFolder", output: Path, given: Path | None) -> None:
    """Write the record, or sign the one that another peer has written."""
    from privatile.records.countersignature import read_statement, statement_lines
    from privatile.records.signing import read_record, write_record
    from privatile.records.verification import Checks, VerificationFailed
    from privatile_leaderless.record import check_has_rounds, release_of_peers, sign_as_peer, verify

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
        checked = Checks()
        verify(checked, record, study, directory.store_file, complete=False)
        if checked.failed:
            echo(checked.to_text())
            raise VerificationFailed(
                f"{given} is not what {directory.client} has seen: {counted(len(checked.failed), 'failed check')}, see "
                "above; it is not signed. Keep the file, and ask the others."
            )
        record = sign_as_peer(record, directory)
    write_record(record, output)
    signed = list(record["signatures"]["peers"])
    enough = "these are enough, all is better" if len(signed) >= quorums.signing(study) else "it does not hold yet"
    enough = enough if len(signed) < len(study.clients) else "that is everybody"
    needed = f"{quorums.signing(study)} of {len(study.clients)} are needed"
    echo(f"{output}: signed by {', '.join(signed)}; {needed}: {enough}.")
    statement = read_statement(record["signatures"]["clients"][directory.client]["statement"])
    for line in [] if statement is None else statement_lines(statement):
        echo(line)
    if len(signed) < len(study.clients):
        echo(f"The next organization signs it with: privatile release DIR --sign {shlex.quote(str(output))}")
