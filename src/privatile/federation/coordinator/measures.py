"""A coordinator's metrics, and what is wrong with its run."""

import logging
import math
import time
from collections import Counter

from privatile.federation.coordinator.journal import Journal
from privatile.federation.monitoring import COORDINATOR_METRICS, Metrics
from privatile.federation.progress import Progress
from privatile.federation.study.study import FederationStudy
from privatile.server.alarms import KINDS, Alarm, silent_rounds
from privatile.server.coordinator import Coordinator, has_interval

log = logging.getLogger("privatile.federation.coordinator")


class Measures:
    """The metrics of one run: those that cost something are computed when somebody asks for them."""

    def __init__(self, study: FederationStudy, coordinator: Coordinator, journal: Journal) -> None:
        self._coordinator = coordinator
        self._journal = journal
        self._progress = Progress(log, coordinator.planned, coordinator.done, time.monotonic())
        self._measured = -1
        """The round whose estimate is in the metrics."""
        labels = {"client": [*study.clients], "level": [f"{level:g}" for level in study.levels], "kind": KINDS}
        self.metrics = Metrics("privatile", COORDINATOR_METRICS, labels, self._measure)
        self.metrics.set("deadline_seconds", study.deadline)
        self.metrics.set("rounds_planned", coordinator.planned)
        self.metrics.set("round", coordinator.done)
        self.metrics.set("quarantined", len(journal.quarantined()))
        for client, at in journal.heard().items():
            self.metrics.set("heard", at, client=client)

    def count_round(self, number: int) -> None:
        """This round is closed."""
        self.metrics.set("round", number)
        self.metrics.add("rounds")
        if number != self._coordinator.planned:
            self._progress.tell(number, time.monotonic())

    def alarms(self) -> list[Alarm]:
        """What is wrong with the run now, the worst first."""
        return self._journal.alarms(silent_rounds(self._coordinator.tracks))

    def _measure(self) -> None:
        kinds = Counter(alarm.kind for alarm in self.alarms())
        for kind in KINDS:
            self.metrics.set("alarms", kinds[kind], kind=kind)
        done = self._coordinator.done
        if done == self._measured or not has_interval(self._coordinator.tracks):
            return
        self._measured = done
        for result in self._coordinator.results():
            low, high = result.first_interval
            estimate = result.estimate if result.located else math.nan
            values = {"estimate": estimate, "interval_low": low, "interval_high": high, "width": high - low}
            for name, value in values.items():
                self.metrics.set(name, value, level=f"{result.level:g}")
