"""nats-server's configuration: TLS, keys, and what each party may publish and subscribe to.

Every message is synced to disk before it is acknowledged (`sync_interval: always`); TLS is required; every party logs
in with its nkey; a client may publish its own answers and hellos, read questions, and nothing else.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from privatile.federation import wire
from privatile.federation.wire import MAX_ASK
from privatile.records.keys import PublicKeys
from privatile.run.web import address

COORDINATOR = "coordinator"
"""The coordinator's account on the broker."""

CLIENT_LIMITS = {"max_connections": 16, "max_subscriptions": 64}
"""What one client's account may hold open. A client uses one connection and four subscriptions; the rest is for a
connection that was cut and is not yet known to be, and for a second process, which is told to stop."""

BROKER_LOG = "broker.log"


class BrokerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the embedded broker listens, and the names by which clients reach it."""

    listen: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 4222
    hosts: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ("localhost", "127.0.0.1", "::1")

    @property
    def url(self) -> str:
        """The address that invitations carry: the first host name."""
        return f"tls://{address(self.hosts[0], self.port)}"


class BrokerFiles:
    """The files of one embedded broker."""

    def __init__(self, folder: Path, certificate: Path, key: Path) -> None:
        self.folder = folder
        self.certificate = certificate
        self.key = key
        self.configuration = folder / "nats.conf"
        self.pid = folder / "broker.pid"
        self.log = folder / BROKER_LOG


def question_request(identity: str) -> str:
    """The request for the last question that the broker keeps."""
    return f"$JS.API.DIRECT.GET.{wire.ask_stream(identity)}.{wire.ask_subject(identity)}"


def client_permissions(identity: str, client: str) -> tuple[list[str], list[str]]:
    """(may publish, may subscribe) of one client.

    >>> publish, subscribe = client_permissions("0123456789ab", "north")
    >>> [subject for subject in publish + subscribe if "*" in subject]
    []
    """
    publish = [
        wire.answer_subject(identity, client),
        wire.hello_subject(identity, client),
        question_request(identity),
    ]
    subscribe = [
        wire.ask_subject(identity),
        wire.welcome_subject(identity, client),
        # Its own hellos too: another live holder of the key is heard there.
        wire.hello_subject(identity, client),
        f"{wire.inbox_prefix(client)}.>",
    ]
    return publish, subscribe


def coordinator_permissions(identity: str) -> tuple[list[str], list[str]]:
    """(may publish, may subscribe) of the coordinator."""
    publish = [wire.ask_subject(identity), wire.welcome_subject(identity, "*"), question_request(identity)]
    publish += [f"$JS.API.DIRECT.GET.{wire.answer_stream(identity)}.{wire.answer_subject(identity, '*')}"]
    for stream in (wire.ask_stream(identity), wire.answer_stream(identity)):
        publish += [f"$JS.API.STREAM.{verb}.{stream}" for verb in ("CREATE", "UPDATE", "INFO")]
    subscribe = [
        wire.answer_subject(identity, "*"),
        wire.hello_subject(identity, "*"),
        f"{wire.inbox_prefix('coordinator')}.>",
    ]
    return publish, subscribe


def _account(client: str) -> str:
    """A client's account on the broker: only subjects that are exported and imported cross between accounts."""
    return f"client_{client}"


def configuration_text(
    identity: str,
    settings: BrokerSettings,
    files: BrokerFiles,
    coordinator: PublicKeys,
    clients: Mapping[str, PublicKeys],
) -> str:
    """The configuration file: TLS 1.3, nkeys, an account and permissions by client, a synced JetStream."""
    made = server_settings(f"privatile_{identity}", settings, files, most_stored=1 << 30)
    made["accounts"] = accounts(identity, coordinator, clients)
    return written(made, "A broker of your own needs this.")


def server_settings(name: str, settings: BrokerSettings, files: BrokerFiles, *, most_stored: int) -> dict[str, Any]:
    """What every server has, one for a coordinator or one of a cluster; `most_stored` bounds its streams, in bytes."""
    return {
        "server_name": name,
        "listen": address(settings.listen, settings.port),
        "max_payload": MAX_ASK + 65536,
        "max_control_line": 4096,
        "write_deadline": "10s",
        "ping_interval": "20s",
        "pid_file": str(files.pid),
        "log_file": str(files.log),
        "logfile_size_limit": 10 << 20,
        "tls": {"cert_file": str(files.certificate), "key_file": str(files.key), "min_version": "1.3", "timeout": 5},
        "jetstream": {
            "store_dir": str(files.folder / "jetstream"),
            "sync_interval": "always",
            "max_memory_store": 64 << 20,
            "max_file_store": most_stored,
        },
        "authorization": {"timeout": 5},
    }


def written(configuration: Mapping[str, Any], remark: str = "") -> str:
    """The text of a configuration file; JSON is valid there."""
    first = f"# Written by privatile from the study and the roster; edits are lost. {remark}".rstrip()
    return f"{first}\n{json.dumps(configuration, indent=2)}\n"


def accounts(identity: str, coordinator: PublicKeys, clients: Mapping[str, PublicKeys]) -> dict[str, Any]:
    """One account for the coordinator with its streams, and one for every client.

    The broker does not apply publish permissions to reply subjects: within one account a client could make the broker
    send its replies to another client's subjects. Between accounts it cannot: a reply goes back to the account of the
    request, and only the subjects named here cross at all.
    """
    made: dict[str, Any] = {}
    exports: list[dict[str, Any]] = [{"stream": wire.ask_subject(identity), "accounts": []}]
    question = question_request(identity)
    exports.append({"service": question, "accounts": []})
    for client, keys in sorted(clients.items()):
        account = _account(client)
        sent = [wire.answer_subject(identity, client), wire.hello_subject(identity, client)]
        welcome = wire.welcome_subject(identity, client)
        exports[0]["accounts"].append(account)
        exports[1]["accounts"].append(account)
        exports += [{"service": subject, "accounts": [account]} for subject in sent]
        exports += [{"stream": welcome, "accounts": [account]}]
        made[account] = {
            "limits": CLIENT_LIMITS,
            "users": [user(keys, client_permissions(identity, client))],
            "imports": [
                *({"service": {"account": COORDINATOR, "subject": subject}} for subject in (*sent, question)),
                *(
                    {"stream": {"account": COORDINATOR, "subject": subject}}
                    for subject in (wire.ask_subject(identity), welcome)
                ),
            ],
        }
    users = [user(coordinator, coordinator_permissions(identity))]
    return {COORDINATOR: {"jetstream": True, "users": users, "exports": exports}, **made}


def user(keys: PublicKeys, permissions: tuple[list[str], list[str]]) -> dict[str, Any]:
    """Who logs in with these keys, and what it may publish and subscribe to."""
    publish, subscribe = permissions
    return {"nkey": keys.login, "permissions": {"publish": publish, "subscribe": subscribe}}
