"""An open federation without a broker: sites with files that grow, a run file, and a clock that the test moves."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from privatile.client.sources.databases import open_source
from privatile.client.sources.source import Source
from privatile.federation.coordinator.core import MAX_GRACE, CoordinatorCore
from privatile.federation.operations.join import JoinOptions, prepare_client
from privatile.federation.operations.serve import OpenRun
from privatile.federation.site.responder import OpenSiteResponder
from privatile.federation.site.service import ClientService
from privatile.federation.study import Arrivals, ClientAgreement, FederationStudy
from tests.federation.kit import Federation, make_study
from tests.federation.played import reply

DAY = 86_400.0


def make_open_study(
    weights: Mapping[str, float] | None = None,
    *,
    epsilon: float = 1.0,
    records: int = 10_000,
    deadline: float = DAY,
    value_kind: str = "any",
    **arrivals: Any,
) -> FederationStudy:
    shares = weights or {"north": 0.6, "south": 0.4}
    clients = {name: ClientAgreement(epsilon, weight, records) for name, weight in shares.items()}
    settings: dict[str, Any] = {
        "rounds": 0,
        "patience": 5,
        "design": "open",
        "deadline": deadline,
        "value_kind": value_kind,
        "arrivals": Arrivals(**arrivals),
    }
    return make_study(clients, **settings)


class OneCoin:
    """Coins that are the same for all records of a round: a count does not depend on the order of the records.

    Where everybody who comes is asked, too, a run does not depend on its ledgers' keys: it is the same every time.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self.present = np.uint64(0)
        self.drawn = 0

    def next_round(self) -> np.uint64:
        self.present = self._rng.integers(0, 1 << 64, dtype=np.uint64)
        return self.present

    def draw(self, count: int) -> NDArray[np.uint64]:
        self.drawn += count
        return np.full(count, self.present, dtype=np.uint64)


class OpenFederation(Federation):
    """Sites whose files have a column of people; the coordinator's part is played round by round.

    Without `files` the sites read tables in memory, which is faster.
    """

    def __init__(self, folder: Path, study: FederationStudy, *, files: bool = False) -> None:
        super().__init__(folder, study)
        self.files = files
        self.database: Path | None = None
        """An SQLite file whose table `people` the sites read instead."""
        self.now = 1000.0
        """The clock of the sites, in seconds."""
        self.rows: dict[str, list[tuple[str, float]]] = {name: [] for name in study.clients}
        self.services: dict[str, ClientService] = {}
        self.run_: OpenRun = self.open_run()
        self.core: CoordinatorCore = self.new_core(self.run_)
        self.clock = time.time()
        """The coordinator's clock."""
        for name in study.clients:
            self.write(name)

    def file(self, name: str) -> Path:
        return self.sites_folder / name / "data.csv"

    def write(self, name: str) -> None:
        """The site's file as `rows` say."""
        if not self.files:
            return
        lines = [f"{person},{value:.6f}" for person, value in self.rows[name]]
        self.file(name).write_text("\n".join(["id,x", *lines]) + "\n", encoding="utf-8")

    def read(self, name: str) -> Source:
        """What the site reads in a round."""
        if self.database is not None:
            return open_source(self.database, value="x", person="id", sql="SELECT id, x FROM people ORDER BY id")
        if self.files:
            return open_source(self.file(name), value="x", person="id")
        people, values = zip(*self.rows[name], strict=True) if self.rows[name] else ((), ())
        table = pa.table({"id": pa.array(people, pa.string()), "x": pa.array(values, pa.float64())})
        return open_source(table, value="x", person="id")

    def arrive(self, name: str, values: Mapping[str, float]) -> None:
        self.rows[name] += values.items()
        self.write(name)

    def start(self, name: str, coins: Any = None, **options: Any) -> ClientService:
        """A new process of the site: nothing but the files is known to it."""
        if name in self.services:
            self.services.pop(name).core.responder.ledger.close()
        read = partial(self.read, name)
        settings = JoinOptions("x", person="id", heartbeat=0.1, **options)
        service = prepare_client(self.invitation(name), self.sites[name], read(), settings, coins=coins, read=read)
        assert isinstance(service.core.responder, OpenSiteResponder)
        service.core.responder._clock = lambda: self.now
        self.services[name] = service
        return service

    def open_round(self) -> bytes:
        """Ask the next round; the question as it is sent, empty when the run is over."""
        return self.core.question(self.clock)

    def answer(self, name: str, asked: bytes) -> bytes | None:
        """What a site sends back to a question, or nothing."""
        return reply(self.services[name].core, asked)

    def close_round(self) -> None:
        """Let the round's time pass, and that of answers under way: it closes if somebody has answered."""
        for passed in (self.study.deadline, MAX_GRACE):
            self.clock += passed
            if self.core.intake.is_open:
                self.core.look(self.clock)

    def play(self, rounds: int, before: Callable[[int], None] = lambda number: None) -> None:
        """So many rounds, each open for a day; `before` lets people arrive."""
        for _ in range(rounds):
            number = self.run_.coordinator.done + 1
            before(number)
            asked = self.open_round()
            if not asked:
                return
            for name in self.services:
                self.answer(name, asked)  # sees the question; answers where as many have come as are asked for
            self.now += self.study.deadline
            for name in self.services:
                payload = self.answer(name, asked)
                if payload is not None:
                    assert self.core.take(name, payload).outcome == "counted"
            self.close_round()


def people(prefix: str, count: int, centre: float = 50.0) -> dict[str, float]:
    """Made-up people with their values, the same for the same prefix whichever tests were run before."""
    values = np.random.default_rng(list(prefix.encode())).normal(centre, 10.0, count)
    return {f"{prefix}-{k}": float(value) for k, value in enumerate(values)}


def spent(federation: OpenFederation, name: str) -> tuple[int, float]:
    """How many people of a site have answered, and the most that one of them has spent."""
    return federation.services[name].core.responder.ledger.lifetime_budgets.totals()
