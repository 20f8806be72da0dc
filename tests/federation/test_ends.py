"""An honest federation whose quantile lies at or beyond an end of its range asks about that end, and sites answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from privatile.federation.study import ClientAgreement
from privatile.run.run_file import RunStore
from tests.federation.kit import Federation, make_study
from tests.federation.played import play

pytestmark = pytest.mark.network


def test_a_federation_whose_quantile_lies_beyond_its_range_goes_on_to_its_end(tmp_path: Path) -> None:
    """exp(log(100000)) is above 100000: the sites refused that question, and the run stood still."""
    study = make_study(
        {"north": ClientAgreement(2.0, 1.0, 400)}, 20, design="rounds", scale="log", range=(9e4, 1e5), quorum=1
    )
    federation = Federation(tmp_path, study)
    federation.values["north"] = np.full(400, 1e7)
    play(federation)
    with RunStore.open(federation.directory.store_file, read_only=True) as store:
        sent = [stored.ask.sent for stored in store.all_rounds()]
    assert len(sent) == 20
    assert max(sent) == 1e5
