"""A peer answers through what the audit of a client measures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from peers_kit import Peers, leaderless
from privatile.client.randomizer import OperatingSystemCoins
from privatile.federation.operations import join as join
from privatile.federation.operations.join import prepare_responder
from privatile.federation.site.responder import SiteResponder
from privatile_leaderless import service
from tests.federation.kit import Federation, make_study


@pytest.mark.network  # the kits look for free ports
def test_a_peer_answers_through_what_the_audit_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`privatile join` is audited; a peer has the same responder, coins and ledger, made by the same function."""
    made: list[SiteResponder] = []

    def watched(*arguments: Any, **options: Any) -> Any:
        found = prepare_responder(*arguments, **options)
        made.append(found[1])
        return found

    monkeypatch.setattr(join, "prepare_responder", watched)
    monkeypatch.setattr(service, "prepare_responder", watched)
    federation = Federation(tmp_path / "with", make_study())
    peers = Peers(tmp_path / "without", leaderless(2), servers=1)
    client, peer = federation.client("site0"), peers.service("site0")
    assert [client.core.responder, peer.responder] == made
    for responder in made:
        assert type(responder._responder._randomizer._coins) is OperatingSystemCoins
    peers.logs["site0"].close()
