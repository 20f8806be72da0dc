"""The configuration of one server of the cluster: TLS to peers and between servers, an account per organization.

The log lives in an account of its own, without users: its subjects and the few requests that reading and publishing
take are exported to every organization's account, and only they cross. So a peer publishes on its own subject, reads
the log through consumers of its own, and cannot make the broker send anything to another one. All servers have the same
accounts, built from the roster. None of this is trusted: what an entry says is decided by its signature.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from privatile.federation import wire
from privatile.federation.setup.permissions import (
    CLIENT_LIMITS,
    BrokerFiles,
    BrokerSettings,
    server_settings,
    user,
    written,
)
from privatile.records.keys import PublicKeys
from privatile.run.web import address
from privatile_leaderless.roster import PeerRoster

LOG_ACCOUNT = "log"
"""The account that holds the stream."""

READING = ("STREAM.INFO.*", "STREAM.MSG.GET.*", "CONSUMER.CREATE.*", "CONSUMER.MSG.NEXT.*.*")
"""Requests to the broker that every peer may make about the log: look at it, read it. None deletes or purges."""

MAKING = "STREAM.CREATE.*"
"""The request to make it, only for organizations that run a server. Whoever makes a stream chooses where the broker
sends what comes in (`republish`), its own requests included: that could delete the log, as a server's operator can."""


def log_subject(identity: str, epoch: int | str, peer: str) -> str:
    """Where one peer, and no other, publishes its entries of one epoch.

    >>> log_subject("0123456789ab", 0, "north")
    'privatile.0123456789ab.log.0.north'
    """
    return f"privatile.{identity}.log.{epoch}.{peer}"


def log_stream(identity: str, epoch: int) -> str:
    """The stream that keeps the entries of one epoch in order.

    >>> log_stream("0123456789ab", 0)
    'PRIVATILE_0123456789ab_LOG0'
    """
    return f"PRIVATILE_{identity}_LOG{epoch}"


def log_request(verb: str) -> str:
    """What a peer asks of the log's account, as its own account names it.

    `$JS.API` itself always means streams of one's own account, and an organization's has none.
    """
    return f"LOG.API.{verb}"


def peer_permissions(identity: str, peer: str, verbs: Sequence[str] = READING) -> tuple[list[str], list[str]]:
    """(may publish, may subscribe) of one peer that may make these requests."""
    publish = [log_subject(identity, "*", peer), *(log_request(verb) for verb in verbs)]
    return publish, [f"{wire.inbox_prefix(peer)}.>"]


def cluster_accounts(identity: str, keys: Mapping[str, PublicKeys], makers: Collection[str]) -> dict[str, Any]:
    """The log's account, and one account for every organization; the same on every server.

    `makers` run a server: they may make the log.
    """
    accounts = [_account(peer) for peer in keys]
    exports = [
        # One request for the next entries has many replies.
        {"service": f"$JS.API.{verb}", "accounts": accounts, "response_type": "stream" if "NEXT" in verb else "single"}
        for verb in READING
    ]
    exports.append({"service": f"$JS.API.{MAKING}", "accounts": [_account(peer) for peer in keys if peer in makers]})
    found: dict[str, Any] = {}
    for peer, own_keys in keys.items():
        own = log_subject(identity, "*", peer)
        verbs = (MAKING, *READING) if peer in makers else READING
        exports.append({"service": own, "accounts": [_account(peer)]})
        found[_account(peer)] = {
            "limits": CLIENT_LIMITS,
            "users": [user(own_keys, peer_permissions(identity, peer, verbs))],
            "imports": [
                {"service": {"account": LOG_ACCOUNT, "subject": own}},
                *(
                    {"service": {"account": LOG_ACCOUNT, "subject": f"$JS.API.{verb}"}, "to": log_request(verb)}
                    for verb in verbs
                ),
            ],
        }
    return {LOG_ACCOUNT: {"jetstream": True, "exports": exports}, **found}


def _account(peer: str) -> str:
    return f"peer_{peer}"


def cluster_text(
    identity: str,
    roster: PeerRoster,
    peer: str,
    settings: BrokerSettings,
    files: BrokerFiles,
    authorities: str,
    keys: Mapping[str, PublicKeys] | None = None,
) -> str:
    """The configuration file of one peer's server; `authorities` is the file with those of all servers.

    `keys` are those that the peers have now, where a quorum has replaced some of the roster's.
    """
    made = server_settings(f"privatile_{identity}_{peer}", settings, files, most_stored=16 << 30)
    made["accounts"] = cluster_accounts(identity, keys or roster.keys, roster.servers)
    others = [one.url(cluster=True) for name, one in roster.servers.items() if name != peer]
    if others:
        made["cluster"] = {
            "name": f"privatile_{identity}",
            "listen": address(settings.listen, roster.servers[peer].cluster_port),
            # Both sides show a certificate that an authority of the roster has signed.
            "tls": {**made["tls"], "ca_file": authorities, "verify": True},
            "routes": others,
            "no_advertise": True,
        }
    return written(made)
