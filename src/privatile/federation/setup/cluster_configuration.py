"""The configuration of one server of the cluster: TLS to peers and between servers, an account per organization.

The log lives in an account of its own, without users: its subjects and the few requests that reading and publishing
take are exported to every organization's account, and only they cross. So a peer publishes on its own subject, reads
the log through consumers of its own, and cannot make the broker send anything to another one. All servers have the same
accounts, built from the roster. None of this is trusted: what an entry says is decided by its signature.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from privatile.federation.setup.broker_configuration import CLIENT_LIMITS, BrokerFiles, BrokerSettings
from privatile.federation.setup.peer_roster import PeerRoster
from privatile.federation.wire import subjects
from privatile.federation.wire.keys import PublicKeys
from privatile.federation.wire.messages import LARGEST_ASK

LOG_ACCOUNT = "log"
"""The account that holds the stream."""

READING = ("STREAM.INFO.*", "CONSUMER.CREATE.*", "CONSUMER.MSG.NEXT.*.*")
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
    return publish, [f"{subjects.inbox_prefix(peer)}.>"]


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
        publish, subscribe = peer_permissions(identity, peer, verbs)
        exports.append({"service": own, "accounts": [_account(peer)]})
        found[_account(peer)] = {
            "limits": CLIENT_LIMITS,
            "users": [{"nkey": own_keys.login, "permissions": {"publish": publish, "subscribe": subscribe}}],
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
    server = roster.servers[peer]
    tls = {"cert_file": str(files.certificate), "key_file": str(files.key), "min_version": "1.3", "timeout": 5}
    configuration: dict[str, Any] = {
        "server_name": f"privatile_{identity}_{peer}",
        "listen": _listens(settings.listen, server.port),
        "max_payload": LARGEST_ASK + 65536,
        "max_control_line": 4096,
        "write_deadline": "10s",
        "ping_interval": "20s",
        "pid_file": str(files.pid),
        "log_file": str(files.log),
        "logfile_size_limit": 10 << 20,
        "tls": tls,
        "jetstream": {
            "store_dir": str(files.folder / "jetstream"),
            "sync_interval": "always",
            "max_memory_store": 64 << 20,
            "max_file_store": 16 << 30,
        },
        "authorization": {"timeout": 5},
        "accounts": cluster_accounts(identity, keys or roster.keys, roster.servers),
    }
    others = [one.url(cluster=True) for name, one in roster.servers.items() if name != peer]
    if others:
        configuration["cluster"] = {
            "name": f"privatile_{identity}",
            "listen": _listens(settings.listen, server.cluster_port),
            # Both sides show a certificate that an authority of the roster has signed.
            "tls": {**tls, "ca_file": authorities, "verify": True},
            "routes": others,
            "no_advertise": True,
        }
    remark = "# Written by privatile from the study and the roster; edits are lost."
    return f"{remark}\n{json.dumps(configuration, indent=2)}\n"


def _listens(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
