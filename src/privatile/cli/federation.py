"""`privatile federation`, `enroll`, `serve`, `join`, `release` and `audit`: a federation's organizer and its sites."""

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privatile.cli.options import (
    ABORT,
    NEEDS_YES,
    YES,
    DashboardOptions,
    agree,
    ask_first,
    dashboard_options,
    file,
    json_flag,
    named,
    number,
    service_options,
    site_choices,
    site_options,
)
from privatile.cli.printing import echo, echo_facts
from privatile.core.kinds import numbers_by_client, one_for_all
from privatile.core.private_files import state_folder
from privatile.errors import InputError, OptionError, PrivatileError, require

if TYPE_CHECKING:
    from privatile.federation.setup.folder import Directory


def by_client(option: str, given: tuple[str, ...], clients: tuple[str, ...]) -> dict[str, float]:
    """`NUMBER` for all clients, `CLIENT=NUMBER` for one.

    >>> by_client("epsilon", ("1", "north=0.5"), ("north", "south"))
    {'north': 0.5, 'south': 1.0}
    """
    with named(option):
        numbers, values = numbers_by_client(given)
        common = one_for_all(numbers)
    for name in values:
        if name not in clients:
            raise OptionError(option, f"names {name!r}, which is not a client. Clients: {', '.join(clients)}.")
    if common is not None:
        values = dict.fromkeys(clients, common) | values
    return {client: values[client] for client in clients if client in values}


def whole_numbers(values: dict[str, float]) -> dict[str, Any]:
    """Whole numbers as integers; others stay as they are, for the study to refuse.

    >>> whole_numbers({"north": 5000.0, "south": 99.5})
    {'north': 5000, 'south': 99.5}
    """
    return {name: int(value) if value.is_integer() else value for name, value in values.items()}


def by_size(records: dict[str, Any]) -> dict[str, float]:
    """Weights in proportion to the records that each client agrees to answer with.

    >>> by_size({"north": 3000, "south": 1000})
    {'north': 0.75, 'south': 0.25}
    """
    total = sum(records.values())
    return {name: count / total for name, count in records.items()} if total > 0 else {}


ARRIVALS = ("round_answers", "end_date", "end_answers", "end_width")


def open_settings(is_open: bool, study: dict[str, Any]) -> dict[str, Any]:
    """The settings of a study, an open one or not; refused where options of the one are given for the other."""
    arrivals = {name: value for name in ARRIVALS if (value := study.pop(name)) is not None}
    if is_open and study["design"] not in ("auto", "open"):
        raise InputError(f"--open is a design of its own: leave out --design; got {study['design']!r:.40}.")
    if is_open or study["design"] == "open":
        return {**{name: value for name, value in study.items() if value is not None}, "design": "open"} | (
            {"arrivals": arrivals} if arrivals else {}
        )
    if arrivals:
        given = ", ".join(f"--{name.replace('_', '-')}" for name in arrivals)
        raise InputError(f"{given} go with --open: other studies end after their rounds.")
    return {**study, "rounds": 200 if study["rounds"] is None else study["rounds"]}


@click.command()
@click.argument("invitation", type=click.Path(path_type=Path))
@file("--site", "DIR", "Folder of keys, limits and ledger: one for all studies, in your state folder, unless given.")
@number("--max-epsilon", "NUMBER", "This site's own limit: the most one person may spend for life. Said once.")
@click.option("--new-key", is_flag=True, help="Replace this site's key; the organizer must admit the new one.")
def enroll(invitation: Path, site: Path | None, max_epsilon: float | None, new_key: bool) -> None:
    """Make this site's key and limits, and the enrolment file to send back. The key never leaves this machine."""
    from privatile.federation.setup.folder import check_coordinated
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


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--broker", "brokers", multiple=True, metavar="URL", help="tls://host:port of your own broker.")
@click.option(
    "--replicas", type=click.IntRange(1), default=1, show_default=True, help="Copies that a broker cluster keeps."
)
@service_options
@dashboard_options
@click.option("--exit-when-paused", is_flag=True, help="Exit with code 3 instead of waiting when the run pauses.")
@click.option("--verbose", is_flag=True, help="Log every round.")
def serve(
    folder: Path,
    json_logs: bool,
    verbose: bool,
    dashboard: DashboardOptions,
    **options: Any,
) -> None:
    """Run the coordinator of DIR, with an embedded broker unless --broker. Stop and start it at any time."""
    from privatile.federation.monitoring import start_logging
    from privatile.federation.operations.serve import ServeOptions, serve_run
    from privatile.federation.setup.folder import open_organizer

    directory = open_organizer(folder)
    start_logging(as_json=json_logs, verbose=verbose)
    with dashboard.running(directory.store_file):
        end = serve_run(directory, ServeOptions(**options), lambda line: echo(line, err=True))
        if end == "finished":
            from privatile.federation.operations.status import run_results

            shown = "\n\n".join(str(result) for result in run_results(directory))
            echo(shown or "The run is over and has no interval: too few have answered.")
        else:
            more = " `privatile serve` continues it." if end == "stopped" else ""
            echo(f"The run is {end}.{more}", err=True)
        sys.stdout.flush()
        dashboard.linger(at_a_terminal=False)


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
    json_logs: bool,
    verbose: bool,
    policy: Path | None,
    **values: Any,
) -> None:
    """Answer a study's questions from this site's own file until the study ends. Connects outward only.

    Each record answers once: the ledger in the site's folder makes sure of it. The file policy.toml in the same folder
    sets this site's limits; what exceeds them is refused, whatever the study asks.
    """
    from privatile.federation.monitoring import start_logging
    from privatile.federation.operations.join import join_run
    from privatile.federation.setup.folder import check_coordinated
    from privatile.federation.setup.invitation import read_invitation
    from privatile.federation.site.folder import find_site

    check_coordinated(invitation)
    invited = read_invitation(invitation)
    place = find_site(site or state_folder(), invited, invitation)
    rows, options = site_choices(source, policy, values)
    agree(invited.rows(), "Answer this study?", yes=yes)
    start_logging(as_json=json_logs, verbose=verbose)
    end = join_run(invited, place, rows, options, lambda line: echo(line, err=True))
    echo(f"The study is {end}." if end != "stopped" else "Stopped; the same command continues.", err=True)


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("record.json"), show_default=True)
@click.option("--unfinished", is_flag=True, help="Release a run that has not finished; the record says so.")
def release(folder: Path, output: Path, unfinished: bool) -> None:
    """Write the signed record of DIR's run: study, budgets, estimate, interval, caveats, transcript digest."""
    from privatile.federation.operations.record import UNFINISHED
    from privatile.federation.operations.record import release as make
    from privatile.federation.setup.folder import open_organizer
    from privatile.records.signing import write_record

    record = make(open_organizer(folder), unfinished=unfinished)
    write_record(record, output)
    if not record["body"]["finished"]:
        echo(f"Before you use it: {UNFINISHED}.", err=True)
    echo(
        f"{output}: signed by the coordinator. Sites may add theirs, each with its own invitation (and the --site DIR "
        f"that it joined with, if any), given this file and the run's: privatile verify {shlex.quote(str(output))} "
        f"--transcript {shlex.quote(str(folder / 'run.db'))} --countersign --invitation INVITATION.json"
    )


@click.command()
@click.option("--epsilon", type=float, required=True, help="The budget that the client claims to keep.")
@click.option(
    "--off", type=float, default=0.02, show_default=True, help="Find a truth rate that is wrong by this share."
)
@click.option("--command", help="Another client to audit; it takes the arguments of `privatile join`.")
def audit(epsilon: float, off: float, command: str | None) -> None:
    """Run the real client against planted data and measure what its answers and its files give away.

    Several sites are asked as in a real run, again from copies of their folders, under another study, and in cohorts of
    1 to 100 and large ones. An honest client fails at most once in 1,000 audits. A truth rate wrong by --off is found
    999 times in a thousand (900,000 reports at epsilon 1). At epsilon 1 and --off 0.02 also found, 99 times in 100:
    noise with 0.75 of its variance or less, 7% of the records of cohorts below 100 telling the truth, 40% of the coins
    used twice; for other values this was not measured. No audit finds a client that recognises it, or that leaks by
    another way than counts and files.
    """
    from privatile.federation.audit.audit import audit as measure

    if not 0.0 < off < 1.0:
        raise InputError(f"--off is a share and must lie inside (0, 1); got {off:g}. 0.02 finds a rate wrong by 2%.")
    found = measure(epsilon, _words(command), off=off, say=lambda line: echo(line, err=True))
    echo(found.to_text())
    if not found.passed:
        raise PrivatileError("the client does not pass the audit; see above.")


def _words(command: str | None) -> list[str] | None:
    if command is None:
        return None
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    if not words or shutil.which(words[0]) is None:
        raise InputError(f"--command takes a program and its first arguments; {command!r} starts no program here.")
    # The client runs in a folder of its own: a file that is named here is named from there.
    return [str(Path(word).absolute()) if Path(word).exists() else word for word in words]


def _directory(_context: click.Context, _parameter: click.Parameter, path: Path) -> "Directory":
    # Imported when a command is called: --help works without the extra, and at once.
    from privatile.federation.setup.folder import open_organizer

    return open_organizer(path)


def _any_folder(_context: click.Context, _parameter: click.Parameter, path: Path) -> "Directory":
    from privatile.federation.setup.folder import open_folder

    return open_folder(path)


DIRECTORY = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path), callback=_directory)
ANY_FOLDER = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path), callback=_any_folder)
PORT = click.IntRange(1, 65535)
FROM = "Go on from OLD's study, whose run is over, --without lost clients."


def _old_folder(context: click.Context, parameter: click.Parameter, path: Path | None) -> "Directory | None":
    return None if path is None else _directory(context, parameter, path)


def _go_on(
    context: click.Context,
    new: "Directory",
    old: "Directory",
    without: tuple[str, ...],
    weight: tuple[str, ...],
    records: tuple[str, ...],
) -> None:
    from privatile.federation.setup.folder import initialize_from

    kept = ("directory", "old", "without", "weight", "records", "rounds", "title")
    typed = click.core.ParameterSource.COMMANDLINE
    given = {one.name: one for one in context.command.params if context.get_parameter_source(one.name or "") is typed}
    for name in given.keys() - kept:
        raise InputError(f"{given[name].opts[0]} is as in the old study: leave it out with --from.")
    before = old.study()
    left = tuple(name for name in before.clients if name not in without)
    made = initialize_from(
        old,
        new.path,
        without,
        by_client("client-weights", weight, left),
        records=whole_numbers(by_client("records", records, left)),
        rounds=context.params["rounds"],
        title=context.params["title"] if "title" in given else None,
    )
    study = made.study()
    echo(f"study        {made.study_file}  (hash {study.digest[:16]}, was {before.digest[:16]})")
    for name, agreement in study.clients.items():
        echo(f"client       {name}: weight {agreement.weight:g}, {agreement.records:,} records")
    gone = ", ".join(name for name in before.clients if name not in study.clients)
    echo(f"estimand     ANOTHER ONE: the quantile of the mixture of these clients, without {gone}.")
    for name in study.clients:
        echo(f"invitation   {made.invitation_file(name)}  -> send to {name}")
    echo("The clients' keys stay admitted; nobody enrols again. Sites join with the new invitation.")


@click.group()
def federation() -> None:
    """Set up a federation, admit clients, look after a run.

    \b
    privatile federation init DIR --add-client north --add-client south --q 0.5 --epsilon 1 --range 0 200 --records 5000
    (send invitations/north.json to north; north runs `privatile enroll`, sends back its enrolment)
    privatile federation admit DIR north.enrolment.json
    privatile serve DIR
    """


@federation.command()
@DIRECTORY
@click.option("--add-client", "clients", multiple=True, metavar="NAME", help="A client; repeat for each.")
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
    "--client-weights",
    "weight",
    multiple=True,
    metavar="CLIENT=NUMBER",
    help="Weights in the mixture; by their records unless given.",
)
@click.option("--records", multiple=True, metavar="[CLIENT=]NUMBER", help="Records asked of a client.")
@click.option("--range", "range_", nargs=2, type=float, metavar="LOW HIGH", help="Where the quantile can lie.")
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
    "--value-kind",
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
@click.option("--from", "old", metavar="OLD", callback=_old_folder, type=click.Path(path_type=Path), help=FROM)
@click.option("--without", multiple=True, metavar="NAME", help="With --from: a client that is lost; repeat for each.")
@click.pass_context
def init(
    context: click.Context,
    /,
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
    old: "Directory | None",
    without: tuple[str, ...],
    **study: Any,
) -> None:
    """Write a new federation into DIR: study, authority, keys, one invitation per client.

    With --from OLD, whose run is finished or aborted, it goes on without lost clients. Keys and admissions of the
    others stay, and records that OLD asked are not asked again. The estimand is another: that of the clients left.
    """
    from privatile.federation.setup.folder import initialize, new_identity
    from privatile.federation.setup.permissions import BrokerSettings
    from privatile.federation.study import FederationStudy

    if old is not None:
        _go_on(context, directory, old, without, weight, records)
        return
    for option, given in (("--add-client", clients), ("--records", records), ("--range", range_)):
        if not given:
            raise click.MissingParameter(param_hint=option, param_type="option")
    if without:
        raise InputError("--without goes with --from OLD: the folder of the study that goes on without a client.")
    if len(set(clients)) < len(clients):
        raise InputError("every client is named once.")
    columns: dict[str, dict[str, Any]] = {
        "epsilon": by_client("epsilon", epsilon, clients),
        "weight": by_client("client_weights", weight, clients),
        "records": whole_numbers(by_client("records", records, clients)),
    }
    study = open_settings(is_open, study)
    if study["design"] == "open" and not columns["weight"] and len(clients) > 1:
        raise InputError(
            "in an open study nobody knows how many come: give --client-weights CLIENT=NUMBER for every client."
        )
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
    from privatile.federation.setup.folder import admit as admit_key
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
    from privatile.federation.setup.folder import revoke as revoke_key

    reloaded = revoke_key(directory, client)
    echo(f"{client} is revoked." + (" The broker knows, and has cut it off." if reloaded else ""))


@federation.command()
@DIRECTORY
@click.argument("client")
@click.option("--epsilon", type=float, required=True, help="Its privacy budget.")
@click.option("--records", type=int, required=True, help="Records asked of it.")
@click.option(
    "--client-weight",
    "weight",
    type=float,
    help="Its weight; the others keep their proportions. By its records unless given.",
)
def add(directory: "Directory", client: str, epsilon: float, records: int, weight: float | None) -> None:
    """Add a client to the study, before its run begins: the estimand changes with it."""
    from privatile.federation.setup.folder import add_client

    add_client(directory, client, epsilon, records, weight)
    echo(f"{client} is in the study (hash {directory.study().digest[:16]}). All invitations are new: send them.")


@federation.command()
@DIRECTORY
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="Names of the broker from now on.")
@click.option("--port", type=PORT, help="Port from now on; the invitations change with it.")
@click.option("--listen", help="Address to listen on from now on.")
def renew(directory: "Directory", hosts: tuple[str, ...], port: int | None, listen: str | None) -> None:
    """Issue the broker's certificate again, for the same or other names; clients trust it as they did."""
    from privatile.federation.setup.folder import renew as renew_certificate

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
    from privatile.federation.operations.status import look

    report = look(directory)
    if as_json or report.to_text():
        echo_facts(report, as_json)
    if report.errors:
        raise InputError("\n".join(["this federation is not ready:", *report.errors]))
    if report.alarms:
        sys.exit(1)


@federation.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.argument("to", metavar="NEW", type=click.Path(path_type=Path))
@click.option("--keys", is_flag=True, help="The secret keys too: once, to a safe place that other backups are not in.")
def backup(folder: Path, to: Path, keys: bool) -> None:
    """Copy a federation's folder, or a site's (its ledger), to the new folder NEW; safe while it is in use.

    A site's folder is the one named with --site, else ~/.local/state/privatile. A ledger that is put back
    answers nobody until that is declared: `privatile join … --restored`, or `privatile ledger restored`.
    """
    from privatile.federation.operations.commands import back_up

    echo(back_up(folder, to, keys=keys).to_text())


@federation.command()
@DIRECTORY
def stop(directory: "Directory") -> None:
    """Stop the coordinator after the round in hand; `privatile serve` continues later."""
    from privatile.federation.operations.commands import stop_coordinator

    echo(stop_coordinator(directory))


@federation.command()
@DIRECTORY
def close(directory: "Directory") -> None:
    """End an open run after the round in hand; what was answered counts."""
    from privatile.federation.operations.commands import close_run

    echo(close_run(directory))


@federation.command()
@DIRECTORY
@YES
def abort(directory: "Directory", yes: bool) -> None:
    """End the run for good and tell the clients. What was answered stays spent. Asks before, or needs --yes."""
    from privatile.federation.operations.commands import abort_run

    ask_first(ABORT, f": {NEEDS_YES}", yes=yes)
    echo(abort_run(directory))


@federation.command()
@DIRECTORY
@click.option("--readmit", "clients", multiple=True, required=True, metavar="NAME", help="Count its answers again.")
def resume(directory: "Directory", clients: tuple[str, ...]) -> None:
    """Decide about quarantined clients. Going on without a client is a new study: its estimand is another."""
    from privatile.federation.operations.commands import readmit

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
    from privatile.cli.options import DashboardOptions
    from privatile.federation.operations.demo import running_demo

    page = DashboardOptions(not once, None, None, keep=not once)
    rounds = 200 if once else 1000  # half a minute, to have something to look at
    try:
        with running_demo(lambda line: echo(line, err=True), sites=sites, rounds=rounds) as running:
            directory = running.directory
            with page.running(directory.store_file):
                echo(f"look        privatile status {directory.path}", err=True)
                echo(running.wait())
                echo(f"The true median of the made-up salaries is {running.truth:,.0f}.")
                page.linger()
    except KeyboardInterrupt:
        echo("\nThe demo was ended; its processes and its folder are gone.", err=True)
