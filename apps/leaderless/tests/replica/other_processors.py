"""A replica over a recorded log, under another setting of the processor or with another Python and numpy.

    python -m replica.other_processors FOLDER OUT

reads the logs that `write` has made, and writes what this machine makes of them: every chain value, and in how many
rounds it would itself have asked another question, by its last bits. The settings are fixed when numpy is imported, so
each reads in a process of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privatile.federation.study import ClientAgreement, FederationStudy
from privatile_leaderless.entries import Proposal, read_entry
from replica.kit import Logged, Peer, make_study, new_replica, run

STUDIES: tuple[dict[str, Any], ...] = (
    {"design": "auto", "levels": (0.25, 0.5), "length": 40},
    {"design": "tuned", "value_kind": "continuous", "length": 40},
    {"design": "auto", "scale": "log", "range": (1.0, 1000.0), "length": 25},
)
"""Designs that fit curves, where the last bits of two processors differ."""


def study_of(number: int, rounds: int) -> FederationStudy:
    """One of the studies."""
    settings = dict(STUDIES[number])
    records = rounds * settings.pop("length")
    clients = {f"peer{k}": ClientAgreement(2.0, 0.25, records + 100 * k) for k in range(4)}
    return make_study(4, rounds, 1, agreements=clients, **settings)


def write(folder: Path, studies: Sequence[int], rounds: int) -> dict[str, list[str]]:
    """Play studies among honest peers of this machine and record their logs; gives the chain values."""
    found = {}
    for number in studies:
        study = study_of(number, rounds)
        peers = [Peer(study, name) for name in study.clients]
        log = run(peers, [], steps=20 * rounds)
        assert all(peer.replica.finished for peer in peers)
        entries = [(sender, payload.decode("ascii")) for sender, payload in log]
        (folder / f"{number}.log").write_text(json.dumps({"rounds": rounds, "log": entries}))
        found[str(number)] = [*peers[0].replica._history.chains, peers[0].replica.head]
    return found


def read(folder: Path) -> dict[str, Any]:
    """What this machine makes of every log."""
    found = {path.stem: _read(int(path.stem), path) for path in sorted(folder.glob("*.log"))}
    return {"numpy": np.__version__, "python": sys.version.split()[0], "logs": found}


def _read(number: int, path: Path) -> dict[str, Any]:
    recorded = json.loads(path.read_text())
    log: list[Logged] = [(sender, text.encode("ascii")) for sender, text in recorded["log"]]
    replica, others, kinds = new_replica(study_of(number, recorded["rounds"])), 0, set()
    for sender, payload in log:
        entry = read_entry(payload, replica.keys[sender].signer)
        if isinstance(entry, Proposal) and entry.round == replica.closed + 1 and replica.asked is None:
            others += replica.proposal(sender).asks != entry.asks
        kinds |= {one.kind for one in replica.apply(sender, payload)}
    return {
        "chains": [*replica._history.chains, replica.head],
        "finished": replica.finished,
        "other_bits": others,
        "kinds": sorted(kinds),
    }


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(read(Path(sys.argv[1]))))
