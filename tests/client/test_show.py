"""`privatile ledger show --json` is JSON whatever was spent."""

import json
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from privatile.cli.ledger import ledger as ledger_command
from privatile.client.coins import OperatingSystemCoins
from privatile.client.ledger.ledger import Ledger
from privatile.client.order.shuffle import shuffle
from privatile.client.responder import Responder
from privatile.client.sources.opening import open_source
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Question


def test_infinity_is_null(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "l.db") as ledger:
        column = shuffle(open_source(np.arange(9.0)), ledger)["all"]
        site = Responder("run", column, RandomizedResponse.not_private(), ledger, OperatingSystemCoins())
        site.answer(Question(run="run", round=1, level=0.5, query=3.0, length=9))
    shown = CliRunner().invoke(ledger_command, ["show", "--json", "--ledger", str(tmp_path / "l.db")])
    assert shown.exit_code == 0

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    said = json.loads(shown.output, parse_constant=refuse)
    assert said["datasets"][0]["epsilon"] is None
    assert said["datasets"][0]["reports"] == 9
