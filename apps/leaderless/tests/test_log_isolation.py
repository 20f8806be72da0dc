"""An attack of an organization without a server on the log of a live broker."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import nats.errors
import pytest

from peers_kit import Peers, leaderless
from privatile.errors import BrokerError
from privatile.federation.connection import Connection, connected
from privatile_leaderless.folder import log_request, log_stream, log_subject
from privatile_leaderless.log import SECOND, LogPort
from tests.federation.kit import PATIENCE

pytestmark = [pytest.mark.network, pytest.mark.process]


async def ask(connection: Connection, verb: str, body: Any = None, seconds: float = 20.0) -> Any:
    try:
        reply = await connection.nc.request(log_request(verb), json.dumps(body or {}).encode(), timeout=seconds)
    except (nats.errors.Error, TimeoutError):
        return None
    return json.loads(reply.data)


def test_an_organization_without_a_server_cannot_have_the_log_deleted(tmp_path: Path) -> None:
    """A stream that copies the log and sends an empty entry on to the broker's own request would delete it."""
    peers = Peers(tmp_path, leaderless(2, rounds=5, length=4), servers=1)
    identity, stream = peers.study.identity, log_stream(peers.study.identity, 0)
    roster = peers.folders["site0"].peers()
    (url,) = [server.url() for server in roster.servers.values()]

    def connect(name: str) -> Any:
        return connected(name, [url], peers.folders[name].key(), roster.authorities)

    async def play() -> None:
        async with peers.servers(), connect("site0") as honest, connect("site1") as liar:
            waits = LogPort(liar, identity, 0, "site1", replicas=1, makes=False)
            with pytest.raises(BrokerError, match="no log yet"):
                await waits.open()
            await LogPort(honest, identity, 0, "site0", replicas=1).open()
            own = log_subject(identity, 0, "site1")
            for verb in ("DELETE", "PURGE"):
                sent = {"src": own, "dest": f"$JS.API.STREAM.{verb}.{stream}"}
                made = {"name": f"COPY{verb}", "sources": [{"name": stream}], "republish": sent}
                assert await ask(liar, f"STREAM.CREATE.COPY{verb}", made, 0.3) is None
            await liar.nc.flush(20)
            for verb in ("DELETE", "PURGE"):  # refused, and not only slow
                assert (await ask(honest, f"STREAM.INFO.COPY{verb}"))["error"]["code"] == 404
            await liar.nc.publish(own, b"")
            await liar.nc.flush(20)
            async with asyncio.timeout(PATIENCE):
                while (await ask(honest, f"STREAM.INFO.{stream}"))["state"]["messages"] != 1:
                    await asyncio.sleep(0.05)
            # A log has room for so many consumers: those that live on without anybody could take all of it.
            lasting = {"deliver_policy": "all", "ack_policy": "explicit", "inactive_threshold": 3600 * SECOND}
            for config, refused in ((lasting, True), ({**lasting, "inactive_threshold": SECOND}, False)):
                made = {"stream_name": stream, "config": config}
                assert ("error" in await ask(liar, f"CONSUMER.CREATE.{stream}", made)) is refused
            # The control: who runs a server may make a stream.
            assert "error" not in await ask(honest, "STREAM.CREATE.OTHER", {"name": "OTHER", "subjects": ["other"]})

    asyncio.run(play())
