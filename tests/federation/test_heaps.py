"""A site of a study that declares its values continuous hears by its own log if they are not; no one else does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privatile.client.ledger.account import SpendingRules
from privatile.client.ledger.ledger import Ledger
from privatile.client.randomizer import SeededCoins
from privatile.client.sources.databases import open_source
from privatile.core.messages import Question
from privatile.federation.site import responder as responders
from privatile.federation.site.responder import SiteResponder, open_responder
from privatile.federation.study import ClientAgreement, FederationStudy
from tests.federation.kit import make_study
from tests.federation.open_kit import OpenFederation, make_open_study

AGES = np.random.default_rng(1).normal(45, 15, 1_000).round()
CENTS = np.random.default_rng(1).lognormal(10.7, 0.6, 1_000).round(2)
TOLD = "client north lie on heaps"


def study(values: str = "continuous", sites: int = 4) -> FederationStudy:
    names = ("north", "south", "east", "west")[:sites]
    clients = {name: ClientAgreement(1.0, 1.0 / sites, 1_000) for name in names}
    return make_study(clients, 40, value_kind=values, identity="a" * 12)


def opened(asked: FederationStudy, values: object, ledger: Ledger) -> SiteResponder:
    coins = SeededCoins(np.random.default_rng(1))
    return open_responder(asked, "north", open_source(values), ledger, SpendingRules(max_epsilon=1.0), coins=coins)


@pytest.mark.parametrize(
    ("values", "declared", "told"),
    [(AGES, "continuous", True), (AGES, "any", False), (AGES, "whole", False), (CENTS, "continuous", False)],
)
def test_a_site_is_told_of_its_own_values(
    values: Any, declared: str, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = Ledger.in_memory()
    opened(study(declared), values, ledger)
    assert (TOLD in caplog.text) == told


def test_only_before_it_has_answered(caplog: pytest.LogCaptureFixture) -> None:
    ledger, asked = Ledger.in_memory(), study()
    opened(asked, AGES, ledger).answer([Question(asked.run, 1, 0.5, 45.0, 10)])
    caplog.clear()
    opened(asked, AGES, ledger)
    assert TOLD not in caplog.text


def test_what_is_sent_does_not_know_of_it(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    def sent() -> bytes:
        asked, ledger = study(), Ledger.in_memory(master=bytes(32))
        message = opened(asked, AGES, ledger).message(asked.digest, [Question(asked.run, 1, 0.5, 45.0, 10)])
        return repr(message).encode()

    told = sent()
    assert TOLD in caplog.text
    caplog.clear()
    monkeypatch.setattr(responders, "has_heaps", lambda *given: False)
    assert sent() == told
    assert TOLD not in caplog.text


def test_the_error_in_rank_of_the_agreed_records() -> None:
    """√Σ p²/(4r²n): four sites of 1,000 records each are as one of 4,000; two levels halve the records."""
    rate = study().clients["north"].mechanism.truth_rate
    assert study().error_in_rank == pytest.approx(1.0 / (2.0 * rate * 4_000**0.5))
    two = make_study({"north": ClientAgreement(1.0, 1.0, 1_000)}, 40, levels=(0.25, 0.5))
    assert two.error_in_rank == pytest.approx(1.0 / (2.0 * rate * 500**0.5))
    assert make_open_study({"north": 1.0}, records=400).error_in_rank == pytest.approx(1.0 / (2.0 * rate * 20.0))


@pytest.mark.network
@pytest.mark.parametrize("declared", ["continuous", "any"])
def test_a_site_of_an_open_study_when_it_starts(
    declared: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    federation = OpenFederation(tmp_path, make_open_study({"north": 1.0}, value_kind=declared))
    federation.arrive("north", {f"p{k}": float(age) for k, age in enumerate(AGES)})
    federation.start("north")
    assert (TOLD in caplog.text) == (declared == "continuous")
    caplog.clear()
    federation.answer("north", federation.open_round())
    assert TOLD not in caplog.text
