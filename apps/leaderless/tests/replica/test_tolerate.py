"""`tolerate` in a study: who may take part, how many sign, and nothing new for studies with a coordinator."""

from __future__ import annotations

from typing import Any

import pytest

from privatile.errors import InputError
from privatile.federation.study import ClientAgreement, FederationStudy, study_toml
from privatile.federation.wire import MAX_ASK
from privatile_leaderless import quorums
from privatile_leaderless.entries import MAX_ENTRY_BYTES
from replica.kit import Peer, after, make_study


@pytest.mark.parametrize(
    ("clients", "tolerate", "quorum"),
    [(2, 0, 2), (3, 0, 2), (4, 0, 3), (4, 1, 3), (5, 1, 4), (6, 1, 4), (7, 1, 5), (7, 2, 5), (10, 3, 7)],
)
def test_the_quorum_is_the_smallest_number_above_half_of_peers_and_liars(
    clients: int, tolerate: int, quorum: int
) -> None:
    assert quorums.signing(make_study(clients, 2, tolerate)) == quorum
    assert 2 * quorum - clients > tolerate  # two quorums share an honest peer
    assert 2 * (quorum - 1) - clients <= tolerate  # and with one fewer they need not
    assert quorum <= clients - tolerate  # liars that fall silent do not stop it


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"clients": 3, "tolerate": 1}, "1 takes at least 4 clients; the study has 3"),
        ({"clients": 6, "tolerate": 2}, "2 takes at least 7 clients; the study has 6"),
        ({"clients": 1, "tolerate": 0}, "must be at least 2 in a study without a coordinator"),
        ({"clients": 4, "tolerate": -1}, "must be at least 0 organizations"),
        ({"clients": 4, "tolerate": 1, "quorum": 3}, "must be left out, or be 4"),
        ({"clients": 4, "tolerate": 1, "design": "open", "rounds": 0}, 'cannot be "open"'),
    ],
)
def test_a_study_that_cannot_be_kept_is_refused(settings: dict[str, Any], words: str) -> None:
    clients, tolerate = settings.pop("clients"), settings.pop("tolerate")
    rounds = settings.pop("rounds", 2)
    with pytest.raises(InputError, match=words):
        make_study(clients, rounds, tolerate, **settings)


def test_a_study_with_a_coordinator_says_nothing_of_it() -> None:
    study = make_study(3, 2, None)
    assert "tolerate" not in study.to_dict()
    assert "tolerate" not in study_toml(study)
    assert study.digest != make_study(3, 2, 0).digest
    with pytest.raises(InputError, match="has a coordinator"):
        _ = quorums.signing(study)
    again = FederationStudy.from_dict(make_study(4, 2, 1).to_dict())
    assert (again, quorums.liars(again)) == (make_study(4, 2, 1), 1)


@pytest.mark.parametrize("levels", [(0.5,), (0.1234567890123, 0.25, 0.5, 0.75)])
def test_a_closed_round_of_the_largest_study_fits_an_entry(levels: tuple[float, ...]) -> None:
    agreements = {f"{k}" * 40: ClientAgreement(1.0, 0.25, 400_000) for k in range(4)}
    study = make_study(4, 4, 1, levels=levels, agreements=agreements)
    peers = [Peer(study, name) for name in study.clients]
    after(peers, 1)
    stand = peers[0].replica.stand(peers[0].name, peers[0].slots, ())  # which carries it whole
    assert len(stand.text()) < 4 * (700 + 70 * len(levels))
    many = {f"peer{k}": ClientAgreement(1.0, 1 / 1400, 8) for k in range(1400)}
    with pytest.raises(InputError, match="a closed round of 1,400 clients"):
        make_study(1400, 2, 1, agreements=many)
    assert MAX_ENTRY_BYTES == MAX_ASK
