"""`privatile federation`: set up a federation, admit clients, look after a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from privatile.cli.printing import echo_json
from privatile.errors import InputError

FOLDER = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))


def by_client(option: str, given: tuple[str, ...], clients: tuple[str, ...]) -> dict[str, float]:
    """`NUMBER` for all, or `CLIENT=NUMBER` for each.

    >>> by_client("epsilon", ("1", "north=0.5"), ("north", "south"))
    {'north': 0.5, 'south': 1.0}
    """
    values: dict[str, float] = {}
    for text in sorted(given, key=lambda one: "=" in one):
        name, equals, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            raise InputError(f"--{option} takes NUMBER or CLIENT=NUMBER; got {text!r}.") from None
        if equals and name not in clients:
            raise InputError(f"--{option} names {name!r}, which is not a client. Clients: {', '.join(clients)}.")
        values.update({name: value} if equals else dict.fromkeys(clients, value))
    return {client: values[client] for client in clients if client in values}


def whole(number: float) -> int | float:
    """A whole number as one; anything else as it is, for the study to refuse.

    >>> whole(5000.0), whole(99.5)
    (5000, 99.5)
    """
    return int(number) if number.is_integer() else number


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
@FOLDER
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
@click.option("--weight", multiple=True, metavar="CLIENT=NUMBER", help="Weights in the mixture; equal unless given.")
@click.option("--records", multiple=True, required=True, metavar="[CLIENT=]NUMBER", help="Records asked of a client.")
@click.option("--range", "range_", nargs=2, type=float, required=True, metavar="LOW HIGH", help="Where q can lie.")
@click.option("--scale", default="linear", show_default=True, help="linear, log, logit or identity.")
@click.option("--rounds", type=int, default=200, show_default=True, help="Rounds; 100 to 500 suffice.")
@click.option("--design", default=None, help="How rounds are cut; see `privatile estimate --help`.")
@click.option("--mode", default="cohort", show_default=True, help="cohort or local.")
@click.option("--missing", default="noise", show_default=True, help="noise, drop or fail.")
@click.option("--confidence-level", type=float, default=0.95, show_default=True)
@click.option("--deadline", type=float, default=60.0, show_default=True, help="Seconds a round waits.")
@click.option("--quorum", type=int, default=0, help="Answers that close a round at once; all unless given.")
@click.option("--patience", type=int, default=20, show_default=True, help="Silent rounds before the run pauses.")
@click.option("--allow-weak", is_flag=True, help="Accept an epsilon above 10.")
@click.option("--title", default="A quantile", show_default=True)
@click.option("--asked-by", default="not stated", show_default=True, help="Who asks, in words.")
@click.option("--value", default="value", show_default=True, help="What a record's value is, in words.")
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="Name or address of the broker; first is invited.")
@click.option("--listen", default="127.0.0.1", show_default=True, help="Address the embedded broker listens on.")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=4222, show_default=True, help="Port of the embedded broker."
)
@click.option("--broker", "brokers", multiple=True, metavar="URL", help="A broker of your own, for the invitations.")
def init(
    folder: Path,
    clients: tuple[str, ...],
    epsilon: tuple[str, ...],
    weight: tuple[str, ...],
    records: tuple[str, ...],
    range_: tuple[float, float],
    design: str | None,
    hosts: tuple[str, ...],
    listen: str,
    port: int,
    brokers: tuple[str, ...],
    **study: Any,
) -> None:
    """Write a new federation into DIR: study, authority, keys, one invitation a client."""
    from privatile.federation.setup.broker_configuration import BrokerSettings
    from privatile.federation.setup.directory import initialize, new_identity
    from privatile.federation.study.study import FederationStudy

    if len(set(clients)) < len(clients):
        raise InputError("every client is named once.")
    budgets = by_client("epsilon", epsilon, clients)
    weights = by_client("weight", weight, clients) or dict.fromkeys(clients, 1.0 / len(clients))
    counts = by_client("records", records, clients)
    tables = {
        name: {
            **({"epsilon": budgets[name]} if name in budgets else {}),
            **({"weight": weights[name]} if name in weights else {}),
            **({"records": whole(counts[name])} if name in counts else {}),
        }
        for name in clients
    }
    plain = {"identity": new_identity(), "range": list(range_), "clients": tables, **study}
    settings = BrokerSettings(listen, port, hosts or BrokerSettings().hosts)
    made = initialize(
        folder, FederationStudy.from_dict(plain | ({"design": design} if design else {})), settings, brokers
    )
    click.echo(f"study        {made.study_file}  (hash {made.study().digest[:16]})")
    click.echo(f"coordinator  {made.key().public.fingerprint}  <- sites compare this fingerprint")
    for name in clients:
        click.echo(f"invitation   {made.invitation_file(name)}  -> send to {name}; it holds no secret")
    click.echo("Each site runs `privatile enroll`, sends its enrolment back, and you `privatile federation admit` it.")


@federation.command()
@FOLDER
@click.option("--broker", "brokers", multiple=True, metavar="URL", help="A broker of your own.")
def invite(folder: Path, brokers: tuple[str, ...]) -> None:
    """Write the invitations again, after an edit of the study."""
    from privatile.federation.setup.directory import Directory

    directory = Directory(folder)
    for path in directory.invite(brokers):
        click.echo(str(path))
    directory.write_configuration()


@federation.command()
@FOLDER
@click.argument("enrolment", type=click.Path(path_type=Path))
@click.option("--fingerprint", help="As the site read it out to you; asked for when not given.")
def admit(folder: Path, enrolment: Path, fingerprint: str | None) -> None:
    """Admit a client's key, or replace its old one. The fingerprint comes from the site, by telephone."""
    from privatile.federation.setup.directory import Directory
    from privatile.federation.setup.directory import admit as put_in
    from privatile.federation.setup.invitation import read_enrolment

    given = read_enrolment(enrolment)
    if fingerprint is None:
        click.echo(f"Ask {given.client} to read out the fingerprint that `privatile enroll` showed.")
        fingerprint = click.prompt("Fingerprint as read out")
    told = put_in(Directory(folder), given, str(fingerprint))
    click.echo(f"{given.client} admitted with key {given.keys.fingerprint}." + (" The broker knows." if told else ""))


@federation.command()
@FOLDER
@click.argument("client")
def revoke(folder: Path, client: str) -> None:
    """Take a client's key away, for good. The run pauses once its patience is over."""
    from privatile.federation.setup.directory import Directory
    from privatile.federation.setup.directory import revoke as take_out

    told = take_out(Directory(folder), client)
    click.echo(f"{client} is revoked." + (" The broker knows, and has cut it off." if told else ""))


@federation.command()
@FOLDER
@click.argument("client")
@click.option("--epsilon", type=float, required=True, help="Its privacy budget.")
@click.option("--records", type=int, required=True, help="Records asked of it.")
@click.option("--weight", type=float, required=True, help="Its weight; the others keep their proportions.")
def add(folder: Path, client: str, epsilon: float, records: int, weight: float) -> None:
    """Add a client to the study, before its run begins: the estimand changes with it."""
    from privatile.federation.setup.directory import Directory, add_client

    directory = Directory(folder)
    add_client(directory, client, epsilon, records, weight)
    click.echo(f"{client} is in the study (hash {directory.study().digest[:16]}). All invitations are new: send them.")


@federation.command()
@FOLDER
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="Names of the broker from now on.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port from now on; the invitations change with it.")
@click.option("--listen", help="Address to listen on from now on.")
def renew(folder: Path, hosts: tuple[str, ...], port: int | None, listen: str | None) -> None:
    """Issue the broker's certificate again, for the same or other names; clients trust it as they did."""
    from privatile.federation.setup.directory import Directory
    from privatile.federation.setup.directory import renew as issue

    issue(Directory(folder), hosts=hosts, port=port, listen=listen)
    click.echo("The certificate is new. A running broker uses it after the next `privatile serve`.")


@federation.command()
@FOLDER
def check(folder: Path) -> None:
    """Look at everything in DIR and report everything that is wrong, at once."""
    from privatile.federation.setup.check import check as look
    from privatile.federation.setup.directory import Directory

    findings = look(Directory(folder))
    for text in findings.remarks:
        click.echo(f"note   {text}")
    if findings.errors:
        raise InputError("\n".join(["this federation is not ready:", *findings.errors]))
    click.echo("Everything is in order.")


@federation.command()
@FOLDER
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def status(folder: Path, as_json: bool) -> None:
    """Where the run stands."""
    from privatile.federation.run.status import read_status
    from privatile.federation.setup.directory import Directory

    report = read_status(Directory(folder))
    if as_json:
        echo_json(report.to_dict())
    else:
        click.echo(report.to_text())


@federation.command()
@FOLDER
def stop(folder: Path) -> None:
    """Stop the coordinator after the round in hand; `privatile serve` goes on later."""
    from privatile.federation.run.status import stop_coordinator
    from privatile.federation.setup.directory import Directory

    click.echo(stop_coordinator(Directory(folder)))


@federation.command()
@FOLDER
@click.confirmation_option(prompt="Abort the run for good? What was answered stays spent.")
def abort(folder: Path) -> None:
    """End the run for good and tell the clients. What was answered stays spent."""
    from privatile.federation.run.status import abort_run
    from privatile.federation.setup.directory import Directory

    click.echo(abort_run(Directory(folder)))


@federation.command()
@FOLDER
@click.argument("new", metavar="NEW", type=click.Path(path_type=Path))
@click.option("--without", multiple=True, required=True, metavar="NAME", help="A client that is lost; repeat for each.")
@click.option("--weight", multiple=True, metavar="CLIENT=NUMBER", help="The weight of every client that is left.")
@click.option("--proportional", is_flag=True, help="Or state that those left keep their proportions.")
@click.option("--records", multiple=True, metavar="[CLIENT=]NUMBER", help="Records asked; what is left unless given.")
@click.option("--rounds", type=int, help="Rounds; as before unless given.")
@click.option("--title", help="The new study's title; the old one, with who is missing, unless given.")
def derive(
    folder: Path,
    new: Path,
    without: tuple[str, ...],
    weight: tuple[str, ...],
    proportional: bool,
    records: tuple[str, ...],
    rounds: int | None,
    title: str | None,
) -> None:
    """Begin again without a lost client: write NEW from DIR, whose run is finished or aborted.

    Keys and admissions of the others stay. The estimand is another: the mixture of the clients that are left.
    """
    from privatile.federation.run.derive import derive as make
    from privatile.federation.setup.directory import Directory

    old = Directory(folder)
    left = tuple(name for name in old.study().clients if name not in without)
    made = make(
        old,
        new,
        without,
        weights=by_client("weight", weight, left),
        proportional=proportional,
        records={name: int(count) for name, count in by_client("records", records, left).items()},
        rounds=rounds,
        title=title,
    )
    click.echo(made.to_text())


@federation.command()
@FOLDER
@click.option("--readmit", "clients", multiple=True, required=True, metavar="NAME", help="Count its answers again.")
def resume(folder: Path, clients: tuple[str, ...]) -> None:
    """Decide about quarantined clients. Going on without a client is a new study: its estimand is another."""
    from privatile.federation.run.status import readmit
    from privatile.federation.setup.directory import Directory

    for client in clients:
        click.echo(readmit(Directory(folder), client))
