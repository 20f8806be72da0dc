"""`privatile federation`: set up a federation, admit clients, look after a run."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privatile.cli.asking import ABORT, NEEDS_YES, YES, ask_first
from privatile.cli.federation_options import by_client, by_size, open_settings, whole_numbers
from privatile.cli.options import json_flag
from privatile.cli.printing import echo, echo_facts
from privatile.errors import InputError, require

if TYPE_CHECKING:
    from privatile.federation.setup.directory import Directory


def _directory(_context: click.Context, _parameter: click.Parameter, path: Path) -> "Directory":
    # Imported when a command is called: --help works without the extra, and at once.
    from privatile.federation.run.folders import open_organizer

    return open_organizer(path)


def _any_folder(_context: click.Context, _parameter: click.Parameter, path: Path) -> "Directory":
    from privatile.federation.run.folders import open_folder

    return open_folder(path)


DIRECTORY = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path), callback=_directory)
ANY_FOLDER = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path), callback=_any_folder)
PORT = click.IntRange(1, 65535)


@click.group()
def federation() -> None:
    """Set up a federation, admit clients, look after a run.

    \b
    privatile federation init DIR --client north --client south --q 0.5 --epsilon 1 --range 0 200 --records 5000
    (send invitations/north.json to north; north runs `privatile enroll`, sends back its enrolment)
    privatile federation admit DIR north.enrolment.json
    privatile serve DIR
    """


@federation.command()
@DIRECTORY
@click.option("--client", "clients", multiple=True, required=True, metavar="NAME", help="A client; repeat for each.")
@click.option(
    "--q",
    "levels",
    type=float,
    multiple=True,
    default=(0.5,),
    metavar="LEVEL",
    help="Level: 0.5 is the median (the default). Repeat for several; each record answers about one of them.",
)
@click.option("--epsilon", multiple=True, metavar="[CLIENT=]NUMBER", help="Privacy budget of a record. No default.")
@click.option(
    "--weight", multiple=True, metavar="CLIENT=NUMBER", help="Weights in the mixture; by their records unless given."
)
@click.option("--records", multiple=True, required=True, metavar="[CLIENT=]NUMBER", help="Records asked of a client.")
@click.option(
    "--range", "range_", nargs=2, type=float, required=True, metavar="LOW HIGH", help="Where the quantile can lie."
)
@click.option("--scale", default="linear", show_default=True, help="linear, log, logit or identity.")
@click.option("--rounds", type=int, help="Rounds; 100 to 500 suffice, 200 unless given.")
@click.option("--open", "is_open", is_flag=True, help="Records arrive over weeks: --records is the most of a client.")
@click.option("--round-answers", type=int, help="With --open: answers that close a round; 25 and more unless given.")
@click.option("--end-date", metavar="DATE", help="With --open: it ends then, as 2027-01-31 or 2027-01-31T18:00Z.")
@click.option("--end-answers", type=int, help="With --open: it ends after so many answers.")
@click.option("--end-width", type=float, help="With --open: it ends when the interval is so narrow, in units.")
@click.option(
    "--design", default="auto", show_default=True, help="How rounds are cut; see `privatile estimate --help`."
)
@click.option("--mode", default="cohort", show_default=True, help="cohort or local.")
@click.option("--missing", default="noise", show_default=True, help="noise, drop or fail.")
@click.option(
    "--values",
    default="any",
    show_default=True,
    metavar="KIND",
    help="What you declare about the values: any, continuous, whole or step=NUMBER; see `privatile estimate --help`.",
)
@click.option("--confidence-level", type=float, default=0.95, show_default=True)
@click.option("--deadline", type=float, default=60.0, show_default=True, help="Seconds a round waits.")
@click.option("--quorum", type=int, default=0, help="Answers that close a round at once; all unless given.")
@click.option("--patience", type=int, default=5, show_default=True, help="Silent rounds before the run pauses.")
@click.option("--allow-weak", is_flag=True, help="Accept an epsilon above 10.")
@click.option("--title", default="A quantile", show_default=True)
@click.option("--asked-by", default="not stated", show_default=True, help="Who asks, in words.")
@click.option("--value", default="value", show_default=True, help="What a record's value is, in words.")
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="Name or address of the broker; first is invited.")
@click.option("--listen", default="127.0.0.1", show_default=True, help="Address the embedded broker listens on.")
@click.option("--port", type=PORT, default=4222, show_default=True, help="Port of the embedded broker.")
@click.option("--broker", "brokers", multiple=True, metavar="URL", help="A broker of your own, for the invitations.")
def init(
    directory: "Directory",
    clients: tuple[str, ...],
    epsilon: tuple[str, ...],
    weight: tuple[str, ...],
    records: tuple[str, ...],
    range_: tuple[float, float],
    hosts: tuple[str, ...],
    listen: str,
    port: int,
    brokers: tuple[str, ...],
    is_open: bool,
    **study: Any,
) -> None:
    """Write a new federation into DIR: study, authority, keys, one invitation per client."""
    from privatile.federation.setup.broker_configuration import BrokerSettings
    from privatile.federation.setup.directory import initialize, new_identity
    from privatile.federation.study.study import FederationStudy

    if len(set(clients)) < len(clients):
        raise InputError("every client is named once.")
    columns: dict[str, dict[str, Any]] = {
        "epsilon": by_client("epsilon", epsilon, clients),
        "weight": by_client("weight", weight, clients),
        "records": whole_numbers(by_client("records", records, clients)),
    }
    study = open_settings(is_open, study)
    if study["design"] == "open" and not columns["weight"] and len(clients) > 1:
        raise InputError("in an open study nobody knows how many come: give --weight CLIENT=NUMBER for every client.")
    columns["weight"] = columns["weight"] or by_size(columns["records"])
    tables = {name: {key: column[name] for key, column in columns.items() if name in column} for name in clients}
    plain = {"identity": new_identity(), "range": list(range_), "clients": tables, **study}
    agreed = FederationStudy.from_dict(plain)
    if agreed.extension is not None:
        agreed.extension.begin(directory.path, agreed)
        return
    settings = BrokerSettings(listen, port, hosts or BrokerSettings().hosts)
    made = initialize(directory.path, agreed, settings, brokers)
    echo(f"study        {made.study_file}  (hash {made.study().digest[:16]})")
    echo(f"coordinator  {made.key().public.fingerprint}  <- sites compare this fingerprint")
    for name in clients:
        echo(f"invitation   {made.invitation_file(name)}  -> send to {name}; it holds no secret")
    echo("Each site runs `privatile enroll`, sends its enrolment back, and you `privatile federation admit` it.")


@federation.command()
@DIRECTORY
@click.option("--broker", "brokers", multiple=True, metavar="URL", help="A broker of your own.")
def invite(directory: "Directory", brokers: tuple[str, ...]) -> None:
    """Write the invitations again, after an edit of the study."""
    for path in directory.invite(brokers):
        echo(str(path))
    directory.write_configuration()


@federation.command()
@DIRECTORY
@click.argument("enrolment", type=click.Path(path_type=Path))
@click.option("--fingerprint", help="As the site read it out to you; asked for when not given.")
def admit(directory: "Directory", enrolment: Path, fingerprint: str | None) -> None:
    """Admit a client's key, or replace its old one. The fingerprint comes from the site, by telephone."""
    from privatile.federation.setup.directory import admit as admit_key
    from privatile.federation.setup.invitation import read_enrolment

    given = read_enrolment(enrolment)
    if fingerprint is None:
        echo(f"Ask {given.client} to read out the fingerprint that `privatile enroll` showed.")
        fingerprint = click.prompt("Fingerprint as read out")
    reloaded = admit_key(directory, given, str(fingerprint))
    echo(f"{given.client} admitted with key {given.keys.fingerprint}." + (" The broker knows." if reloaded else ""))


@federation.command()
@DIRECTORY
@click.argument("client")
def revoke(directory: "Directory", client: str) -> None:
    """Take a client's key away, for good. The run pauses once its patience is over."""
    from privatile.federation.setup.directory import revoke as revoke_key

    reloaded = revoke_key(directory, client)
    echo(f"{client} is revoked." + (" The broker knows, and has cut it off." if reloaded else ""))


@federation.command()
@DIRECTORY
@click.argument("client")
@click.option("--epsilon", type=float, required=True, help="Its privacy budget.")
@click.option("--records", type=int, required=True, help="Records asked of it.")
@click.option(
    "--weight", type=float, help="Its weight; the others keep their proportions. By its records unless given."
)
def add(directory: "Directory", client: str, epsilon: float, records: int, weight: float | None) -> None:
    """Add a client to the study, before its run begins: the estimand changes with it."""
    from privatile.federation.setup.directory import add_client

    add_client(directory, client, epsilon, records, weight)
    echo(f"{client} is in the study (hash {directory.study().digest[:16]}). All invitations are new: send them.")


@federation.command()
@DIRECTORY
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="Names of the broker from now on.")
@click.option("--port", type=PORT, help="Port from now on; the invitations change with it.")
@click.option("--listen", help="Address to listen on from now on.")
def renew(directory: "Directory", hosts: tuple[str, ...], port: int | None, listen: str | None) -> None:
    """Issue the broker's certificate again, for the same or other names; clients trust it as they did."""
    from privatile.federation.setup.directory import renew as renew_certificate

    renew_certificate(directory, hosts=hosts, port=port, listen=listen)
    echo("The certificate is new. A running broker uses it after the next `privatile serve`.")


@federation.command()
@ANY_FOLDER
@json_flag("The findings")
def check(directory: "Directory", as_json: bool) -> None:
    """Look at everything in DIR and report everything that is wrong, at once.

    Ends with 1 while a client is missing: not admitted, never heard, silent or in quarantine; and where the run's
    process has ended without being asked to.
    """
    from privatile.federation.run.check_report import look

    report = look(directory)
    if as_json or report.to_text():
        echo_facts(report, as_json)
    if report.errors:
        raise InputError("\n".join(["this federation is not ready:", *report.errors]))
    if report.alarms:
        sys.exit(1)


@federation.command()
@ANY_FOLDER
@json_flag("The state")
def status(directory: "Directory", as_json: bool) -> None:
    """Where the run stands."""
    from privatile.federation.run.status import read_status

    echo_facts(read_status(directory), as_json)


@federation.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.argument("to", metavar="NEW", type=click.Path(path_type=Path))
@click.option("--keys", is_flag=True, help="The secret keys too: once, to a safe place that other backups are not in.")
def backup(folder: Path, to: Path, keys: bool) -> None:
    """Copy a federation's folder, or a site's (its ledger), to the new folder NEW; safe while it is in use.

    A site's folder is the one named with --site, else ~/.local/state/privatile. A ledger that is put back
    answers nobody until that is declared: `privatile join … --restored`, or `privatile ledger restored`.
    """
    from privatile.federation.run.backup import back_up

    echo(back_up(folder, to, keys=keys).to_text())


@federation.command()
@DIRECTORY
def stop(directory: "Directory") -> None:
    """Stop the coordinator after the round in hand; `privatile serve` continues later."""
    from privatile.federation.run.requests import stop_coordinator

    echo(stop_coordinator(directory))


@federation.command()
@DIRECTORY
def close(directory: "Directory") -> None:
    """End an open run after the round in hand; what was answered counts."""
    from privatile.federation.run.requests import close_run

    echo(close_run(directory))


@federation.command()
@DIRECTORY
@YES
def abort(directory: "Directory", yes: bool) -> None:
    """End the run for good and tell the clients. What was answered stays spent. Asks before, or needs --yes."""
    from privatile.federation.run.requests import abort_run

    ask_first(ABORT, f": {NEEDS_YES}", yes=yes)
    echo(abort_run(directory))


@federation.command()
@DIRECTORY
@click.argument("new", metavar="NEW", type=click.Path(path_type=Path))
@click.option("--without", multiple=True, required=True, metavar="NAME", help="A client that is lost; repeat for each.")
@click.option("--weight", multiple=True, metavar="CLIENT=NUMBER", help="The weight of every client that is left.")
@click.option("--proportional", is_flag=True, help="Or state that those left keep their proportions.")
@click.option("--records", multiple=True, metavar="[CLIENT=]NUMBER", help="Records asked; what is left unless given.")
@click.option("--rounds", type=int, help="Rounds; as before unless given.")
@click.option("--title", help="The new study's title; the old one, with who is missing, unless given.")
def derive(
    directory: "Directory",
    new: Path,
    without: tuple[str, ...],
    weight: tuple[str, ...],
    records: tuple[str, ...],
    **changes: Any,
) -> None:
    """Begin again without a lost client: write NEW from DIR, whose run is finished or aborted.

    Keys and admissions of the others stay. The estimand is another: the mixture of the clients that are left.
    """
    from privatile.federation.run.derive import derive as derive_directory

    left = tuple(name for name in directory.study().clients if name not in without)
    weights = by_client("weight", weight, left)
    asked = whole_numbers(by_client("records", records, left))
    made = derive_directory(directory, new, without, weights=weights, records=asked, **changes)
    echo(made.to_text())


@federation.command()
@DIRECTORY
@click.option("--readmit", "clients", multiple=True, required=True, metavar="NAME", help="Count its answers again.")
def resume(directory: "Directory", clients: tuple[str, ...]) -> None:
    """Decide about quarantined clients. Going on without a client is a new study: its estimand is another."""
    from privatile.federation.run.requests import readmit

    for client in clients:
        echo(readmit(directory, client))


@federation.command()
@click.option("--sites", type=click.IntRange(1, 5), default=3, show_default=True, help="How many sites.")
@click.option("--once", is_flag=True, help="End when the run has ended, without a dashboard.")
def demo(sites: int, once: bool) -> None:
    """Three sites, broker, coordinator and dashboard on this machine, with made-up data, until Ctrl-C.

    End a site (`kill` and the process number that is shown) and look at the dashboard. Everything lies in a temporary
    folder and is removed at the end.
    """
    for module in ("nats", "starlette"):  # before anything of the federation is imported
        require(module, "federation,broker,dashboard")
    from privatile.cli.dashboard_options import DashboardOptions
    from privatile.federation.run.demo import running_demo

    page = DashboardOptions(not once, None, None, keep=not once)
    rounds = 200 if once else 1000  # half a minute, to have something to look at
    try:
        with running_demo(lambda line: echo(line, err=True), sites=sites, rounds=rounds) as running:
            directory = running.directory
            with page.running(directory.store_file):
                echo(f"look        privatile federation status {directory.path}", err=True)
                echo(running.wait())
                echo(f"The true median of the made-up salaries is {running.truth:,.0f}.")
                page.linger()
    except KeyboardInterrupt:
        echo("\nThe demo was ended; its processes and its folder are gone.", err=True)
