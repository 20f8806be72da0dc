"""A peer's folder becomes a running peer; what people do with one that does not run: recover, catch up."""

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from privatile.client.randomizer import Coins
from privatile.client.sources.source import Source
from privatile.core.file_systems import require_volume
from privatile.core.text import counted
from privatile.errors import InputError
from privatile.federation.coordinator.journal import Journal
from privatile.federation.operations.join import JoinOptions, prepare_responder
from privatile.federation.operations.serve import Say, hosted
from privatile.federation.setup.broker import EmbeddedBroker, reload_broker
from privatile.federation.setup.folder import Roster
from privatile.federation.setup.invitation import check_url
from privatile.federation.site.folder import Site
from privatile.records.keys import PublicKeys, same_fingerprint
from privatile.run.certificates import ends_soon, issue_broker, read_certificate
from privatile.run.locks import lock_folder
from privatile.run.run_file import RunStore
from privatile.run.state import is_aborted
from privatile.run.tables import running_process
from privatile_leaderless import quorums
from privatile_leaderless.entries import Decision
from privatile_leaderless.folder import PeerFolder
from privatile_leaderless.peer_file import PeerLog
from privatile_leaderless.roster import PeerInvitation, read_peer_enrolment
from privatile_leaderless.service import PeerService
from privatile_leaderless.votes import VoteBox

PORT_IN_USE = (
    "Stop that program, or go on with the others' servers: --broker URL. The port is part of the roster: for another "
    "one enroll into a new folder (the keys in --site stay), before the run has begun, and let all admit the new file."
)
"""What the operator of a peer can do about a port that is taken."""

MOST_LOGS = 1_000_000
"""The highest number of a log: one that was mistyped cannot be taken back."""


@dataclass(frozen=True)
class PeerOptions:
    """How a peer is run."""

    brokers: tuple[str, ...] = ()
    """Servers of others to connect to; empty: the own one, else those of the roster."""
    linger: float = 60.0


def open_log(folder: PeerFolder) -> PeerLog:
    """A peer's own file: its entries of the log, what it has signed, and the run's committed rounds."""
    require_volume(folder.store_file, "the run's file")
    return PeerLog.open(folder.store_file, folder.study(), folder.peers().digest)


def run_peer(folder: PeerFolder, source: object, join: JoinOptions, options: PeerOptions, say: Say) -> str:
    """Run a peer until the study ends or somebody stops it."""
    rows = join.open(source)
    with lock_folder(folder.pid_file, "peer"), ExitStack() as stack:
        peer_log = open_log(folder)
        stack.callback(peer_log.close)

        async def serve() -> str:
            # The responder first: nothing is started for a peer whose limits or ledger refuse the study.
            service = prepare_peer(folder, rows, join, options, peer_log)
            if rows.how_read:
                say(rows.how_read)
            if not options.brokers and folder.server() is not None:
                service.broker = start_server(folder, service.replica.keys, say)
                stack.callback(service.broker.stop)
            study = service.replica.study
            say(f"study       {study.title}, {len(study.clients)} peers, hash {study.digest[:16]}")
            say(f"roster      {service.roster.fingerprint}")
            say(f"store       {folder.store_file} ({service.replica.committed} of {study.rounds} rounds committed)")
            if service.replica.finished:
                say(f"finished    this peer stays {options.linger:g} s for others who lack rounds, then ends")
            async with hosted(service, join.ops_host, join.ops_port, join.ops_names, say):
                return await service.run()

        return asyncio.run(serve())


def prepare_peer(
    folder: PeerFolder,
    source: Source,
    join: JoinOptions,
    options: PeerOptions,
    peer_log: PeerLog,
    *,
    coins: Coins | None = None,
) -> PeerService:
    """Check limits, ledger, data and roster, all before the peer connects to anything; `coins` are for tests."""
    study, roster = folder.study(), folder.peers()
    invited = PeerInvitation(folder.client, study, roster)
    limits, responder = prepare_responder(invited, Site(folder.site, folder.client), source, join, coins=coins)
    own = folder.server()
    others = [server.url() for name, server in roster.servers.items() if name != folder.client]
    for url in options.brokers:
        check_url(url)
    urls = options.brokers or ([own.url(), *others] if own is not None else others)
    return PeerService(
        folder.client,
        folder.key(),
        roster,
        peer_log,
        peer_log.replica(roster.keys),
        responder,
        limits,
        VoteBox(folder.path / "votes"),
        urls=urls,
        restored=join.restored,
        linger=options.linger,
        on_key=partial(_use_new_keys, folder),
    )


def start_server(folder: PeerFolder, keys: Mapping[str, PublicKeys], say: Say) -> EmbeddedBroker:
    """Start the organization's own server of the cluster, with a new certificate where the old one ends soon."""
    files, settings = folder.broker_files, folder.settings()
    if ends_soon(read_certificate(files.certificate), "the server's certificate"):
        issue_broker(folder.authority, folder.authority_key, files.certificate, files.key, settings.hosts, cluster=True)
        say("certificate issued again: it would have ended within a month")
    before = files.configuration.read_bytes() if files.configuration.exists() else b""
    folder.write_configuration(Roster(keys, ()))
    servers = folder.peers().servers
    cluster_port = servers[folder.client].cluster_port if len(servers) > 1 else None
    broker = EmbeddedBroker(files, settings, PORT_IN_USE, cluster_port)
    broker.start(unchanged=before == files.configuration.read_bytes())
    how = "adopted" if broker.adopted else "started"
    say(f"server      {how} {broker.binary} ({broker.version}), {settings.url}, process {broker.process_id}")
    return broker


def _use_new_keys(folder: PeerFolder, keys: Mapping[str, PublicKeys]) -> None:
    """A quorum has replaced a key: let the own server admit the new one."""
    if folder.server() is not None:
        folder.write_configuration(Roster(keys, ()))
        reload_broker(folder.broker_files)


def recover(folder: PeerFolder, epoch: int | None = None) -> int:
    """After the loss of the log: begin a new one with the next start of this peer; gives its number."""
    with lock_folder(folder.pid_file, "peer"):
        peer_log = open_log(folder)
        try:
            number = peer_log.epoch + 1 if epoch is None else epoch
            if not peer_log.epoch < number <= MOST_LOGS:
                raise InputError(
                    f"this peer reads log {peer_log.epoch}; a new one has a higher number, of at most {MOST_LOGS:,}; "
                    f"got {number:,}."
                )
            peer_log.begin_epoch(number)
            return number
        finally:
            peer_log.close()


def catch_up(folder: PeerFolder, other: Path) -> str:
    """Take over the rounds of another peer's file, each checked as if it came from the log; says what was new."""
    with lock_folder(folder.pid_file, "peer"):
        peer_log = open_log(folder)
        try:
            replica = peer_log.replica(folder.peers().keys)
            before, had_finished = replica.committed, replica.finished
            peer_log.catch_up(replica, other)
        finally:
            peer_log.close()
    new = counted(replica.committed - before, "round")
    end = " and the end of the run" if replica.finished and not had_finished else ""
    state = "finished" if replica.finished else "not finished"
    return f"New here: {new}{end}. {folder.client} has {counted(replica.committed, 'round')}; the run is {state} here."


def check_goes_on(folder: PeerFolder) -> None:
    """Refuse a vote about a run that is over."""
    if folder.store_file.exists():
        with RunStore.open(folder.store_file, read_only=True) as store:
            over = "finished" if store.finished is not None else "aborted" if is_aborted(store) else ""
        if over:
            raise InputError(f"{folder.path}: the run is {over}: there is nothing to decide any more.")


def _check_quarantined(folder: PeerFolder, client: str) -> None:
    """Refuse to readmit a peer that is not in quarantine, as far as this peer has read the log."""
    if not folder.store_file.exists():
        return
    with RunStore.open(folder.store_file, read_only=True) as store:
        known = Journal(store).quarantined()
    if client not in known:
        read = "" if running_process(folder.pid_file) else ", up to where it was stopped: start it, then vote"
        raise InputError(
            f"{client} is not in quarantine: there is nothing to vote for. In quarantine: "
            f"{', '.join(sorted(known)) or 'nobody'} (by what this peer has read of the log{read})."
        )


def vote(
    folder: PeerFolder, *, readmit: str | None = None, key: Path | None = None, fingerprint: str | None = None
) -> str:
    """Put a vote into the box of this peer: to readmit a peer, to take a new key, else to abort."""
    check_goes_on(folder)
    clients = folder.study().clients
    if readmit is not None:
        if readmit not in clients:
            raise InputError(f"the study has no client {readmit!r}. Its clients: {', '.join(clients)}.")
        _check_quarantined(folder, readmit)
        decision = Decision("readmit", readmit)
    elif key is not None:
        enrolment = read_peer_enrolment(key)
        if enrolment.study != folder.study().digest or enrolment.client not in clients:
            raise InputError(f"{key}: this enrolment is for another study, or another version of this one.")
        if not same_fingerprint(fingerprint or "", enrolment.keys.fingerprint):
            given = f"; {fingerprint!r} was given: there is no vote" if fingerprint else ""
            raise InputError(
                f"{enrolment.client}'s new key has the fingerprint {enrolment.keys.fingerprint}{given}. Have its owner "
                "read it out to you, and give what you heard with --fingerprint."
            )
        decision = Decision("key", enrolment.client, keys=enrolment.keys)
    else:
        decision = Decision("abort")
    VoteBox(folder.path / "votes").put(decision)
    quorum = quorums.signing(folder.study())
    running = running_process(folder.pid_file) is not None
    when = "The running peer publishes it" if running else "The next `privatile peer run` publishes it"
    return f"{when}. It holds when {quorum} of {len(clients)} organizations have voted for the same."
