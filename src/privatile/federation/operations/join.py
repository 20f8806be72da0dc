"""An invitation becomes a running client."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from privatile.client.ledger.account import SpendingRules
from privatile.client.ledger.ledger import Ledger
from privatile.client.ledger.restore import mark_restored
from privatile.client.randomizer import Coins
from privatile.client.sources.csv import TextFormat
from privatile.client.sources.databases import open_source
from privatile.client.sources.source import Source
from privatile.core.private_files import default_person_key
from privatile.errors import InputError
from privatile.federation.connection import Connection, NatsSite, connecting
from privatile.federation.operations.serve import Say, hosted
from privatile.federation.setup.invitation import Invitation
from privatile.federation.site.core import SiteCore
from privatile.federation.site.folder import Site
from privatile.federation.site.limits import Invited, SiteLimits, read_limits, refused
from privatile.federation.site.responder import OpenSiteResponder, SiteResponder, open_responder
from privatile.federation.site.service import HEARTBEAT, ClientService

log = logging.getLogger("privatile.federation.client")


LEDGER_SECONDS = 60
"""How long to wait while another study's client writes the ledger: a slow disk recovers, and clients run for months."""


@dataclass(frozen=True)
class JoinOptions:
    """How a client is run."""

    value: str
    person: str | None = None
    weight: str | None = None
    sql: str | None = None
    text_format: TextFormat | None = None
    limits: Path | None = None
    restored: bool = False
    new_people: bool = False
    ops_host: str = "127.0.0.1"
    ops_port: int | None = None
    ops_names: tuple[str, ...] = ()
    heartbeat: float = HEARTBEAT

    def open(self, source: object) -> Source:
        """The site's records, by the columns that the options name."""
        return open_source(
            source,
            value=self.value,
            person=self.person,
            weight=self.weight,
            sql=self.sql,
            text_format=self.text_format,
        )


def join_run(invitation: Invitation, site: Site, source: object, options: JoinOptions, say: Say) -> str:
    """Run a client until the study ends or somebody stops it."""
    read = partial(options.open, source)
    rows = read()

    async def serve() -> str:
        service = prepare_client(invitation, site, rows, options, read=read)
        if rows.how_read:
            say(rows.how_read)
        async with hosted(service, options.ops_host, options.ops_port, options.ops_names, say):
            return await service.run()

    return asyncio.run(serve())


def prepare_client(
    invitation: Invitation,
    site: Site,
    source: Source,
    options: JoinOptions,
    *,
    coins: Coins | None = None,
    read: Callable[[], Source] | None = None,
) -> ClientService:
    """Check limits, ledger and data, all before the client connects to anything.

    `read` opens the source anew, for an open study, in every round. `coins` are for simulation and tests; no option,
    file or environment variable leads to them.
    """
    limits, responder = prepare_responder(invitation, site, source, options, coins=coins, read=read)
    key, client, identity = site.key(), invitation.client, invitation.study.identity

    def transport(connection: Connection) -> NatsSite:
        return NatsSite(connection, identity, client)

    return ClientService(
        SiteCore(invitation, key, limits, responder, restored=options.restored),
        connecting(client, invitation.brokers, key, invitation.authority, transport),
        heartbeat=options.heartbeat,
    )


def prepare_responder(
    invitation: Invited,
    site: Site,
    source: Source,
    options: JoinOptions,
    *,
    coins: Coins | None = None,
    read: Callable[[], Source] | None = None,
) -> tuple[SiteLimits, SiteResponder]:
    """What answers for the site's records, and its limits, with or without a coordinator."""
    study = invitation.study
    if study.is_open and options.person is None:
        raise InputError(
            "records of an open study arrive while it runs, and only a person column shows who has answered: name it "
            "with --person COLUMN."
        )
    site.check_one_client(invitation)
    limits_file = options.limits or site.limits_file
    limits = read_limits(limits_file)
    if reasons := limits.refusals(invitation, options.value):
        raise refused(reasons, f"Edit {limits_file}")
    ledger = Ledger.open_or_make(site.ledger_file, restored=options.restored)
    ledger.execute(f"PRAGMA busy_timeout = {LEDGER_SECONDS * 1000}")
    person_key = None
    if options.person is not None:
        person_key = ledger.person_key(default_person_key())
    if options.restored:
        for line in mark_restored(ledger, study.run):
            if line.lost or line.kept:
                log.warning("the ledger was restored: %s", line)
    rules = SpendingRules(
        new_people=options.new_people, max_epsilon=limits.max_epsilon, in_federation=True, arriving=study.is_open
    )
    responder: SiteResponder
    if study.is_open:
        responder = OpenSiteResponder(
            study, invitation.client, read or (lambda: source), ledger, rules, person_key,
            fewest=limits.min_cohort, coins=coins,
        )  # fmt: skip
    else:
        responder = open_responder(study, invitation.client, source, ledger, rules, person_key=person_key, coins=coins)
    return limits, responder
