"""Files of today's formats, about which the snapshots are: runs, groups, a federation, a survey, an experiment.

stored.tar.xz keeps the modes of keys. `python -m tests.golden.make stored` writes it again, with other draws: after a
change of formats, and then the snapshots too. Files of the formats before are in old/ (`old_files`).
"""

from __future__ import annotations

import asyncio
import os
import tarfile
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
from click.testing import CliRunner

import privatile
from privatile.cli import main as command
from privatile.federation.operations.record import release
from privatile.records import write_record
from privatile.survey.folder import read_codes
from tests.cli.test_refusals import TINY
from tests.federation.played import make as make_federation
from tests.federation.played import play
from tests.golden.make import INCOMES, TWO
from tests.made_runs import long_run
from tests.survey.kit import Clock, make_survey, visitors

LONG_AGO = 1_735_084_800.0
"""25 December 2024: in the past by every clock."""

FILES = Path(__file__).with_name("stored.tar.xz")


def unpack(folder: Path) -> None:
    """All files as they were; the keys of the ledgers lie in config/, which $XDG_CONFIG_HOME is to name."""
    with tarfile.open(FILES) as archive:
        archive.extractall(folder, filter="tar")


def make() -> None:
    """Write them."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        before = Path.cwd()
        os.chdir(folder)
        try:
            began = time.time()
            with (
                patch.dict(os.environ, {"XDG_CONFIG_HOME": str(folder / "config"), "XDG_STATE_HOME": str(folder)}),
                patch("time.time", lambda: LONG_AGO + time.time_ns() * 1e-9 - began),
            ):
                _runs()
                _federation()
                asyncio.run(_survey())
                _said("survey", "close", "survey", "--yes")
                _said("survey", "release", "survey", "-o", "survey-record.json")
        finally:
            os.chdir(before)
        with tarfile.open(FILES, "w:xz", preset=9) as archive:
            for path in sorted(folder.rglob("*")):
                # What a broker or SQLite makes anew is left out, and the first names this machine's folders.
                if path.is_file() and path.suffix not in (".conf", ".db-shm"):
                    archive.add(path, path.relative_to(folder), filter=_nobodys)


def _nobodys(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """A file without its owner's name."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _said(*words: object) -> None:
    done = CliRunner().invoke(command, [str(word) for word in words])
    if done.exit_code:
        raise RuntimeError(done.output)


def _runs() -> None:
    """A finished run with its ledger and its people, one that goes on, a folder of groups, an experiment's store."""
    rng = np.random.default_rng(4)
    rows = [f"{'north' if k % 3 else 'south'},p{k},{value:.2f}" for k, value in enumerate(rng.normal(50, 9, 900))]
    Path("data.csv").write_text("region,who,pay\n" + "\n".join(rows) + "\n")
    ask = ("--value", "pay", "--client", "region", "--epsilon", 2, "--range", 0, 100, "--rounds", 30)
    _said("estimate", "data.csv", *ask, "--person", "who", "--ledger", "ledger.db", "--save", "run.db", "--yes")
    long_run(Path("going.db"), rounds=40, stop=25, clients=2, length=30, design="auto", value_kind="any")
    people = pd.DataFrame({"pay": np.concatenate(list(TWO.values())), "sex": np.repeat(["f", "m"], 8000)})
    privatile.estimate(
        people, value="pay", by="sex", epsilon=1, range=(0, 100), rounds=30, simulate=True, rng=1, save="groups"
    )
    levels = {"value": "income", "q": (0.25, 0.5), "epsilon": 2, "range": (1e3, 1e6), "scale": "log", "rounds": 20}
    privatile.estimate(INCOMES, **levels, save="levels.db", simulate=True, rng=2)  # type: ignore[call-overload]
    Path("tiny.toml").write_text(TINY)
    _said("simulate", "run", "tiny.toml", "--store", "store.db")


def _federation() -> None:
    """An organizer's folder, its sites with their ledgers, invitations, and the record with a countersignature."""
    federation = make_federation(Path("federation"))
    play(federation)
    record = federation.countersigned(release(federation.directory), "north")
    write_record(record, Path("record.json"))


async def _survey() -> None:
    """A survey that everybody has answered."""
    made = make_survey(Path("survey"), epsilon=3.0, strata={"office": 150, "plant": 100})
    rng, clock = np.random.default_rng(3), Clock(LONG_AGO)
    codes = read_codes(made.folder.codes_file)
    async with visitors(made.folder, clock=clock) as people:
        for number in range(len(codes)):
            one = codes[number * 7 % len(codes)]
            asked = (await people.question(one.code)).json()
            yes = rng.normal(4000, 900) > float(asked["query"])
            await people.answer(one.code, asked["round"], bool(yes != (rng.random() < 0.047)))
            clock.now += 60.0
            if number % 5 == 4:
                await people.service.look()
