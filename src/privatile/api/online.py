"""The estimator for people who bring their own loop: ask `query`, give counts to `update`, read `result`."""

from collections.abc import Mapping
from numbers import Integral
from typing import Any

from privatile.core.kinds import EPSILON, LEVEL, POSITIVE, PerClient, checked
from privatile.core.mechanism import RandomizedResponse
from privatile.core.scale import make_scale, units_inside
from privatile.core.text import client_name
from privatile.errors import InputError
from privatile.estimator.clients import Client, check_clients, shares
from privatile.estimator.open_ended import End, OpenPlan
from privatile.estimator.plan import Ask, begin, step
from privatile.estimator.settings import ReportSettings
from privatile.inference.trajectory import Trajectory
from privatile.result.result import QuantileResult
from privatile.result.summary import LevelFacts, all_of, make_results


class OnlineQuantile:
    """A quantile estimate that moves with every round of counts. It sees counts only, never a record.

    `epsilon` is one budget for all clients named in `client_weights`, or a mapping of client to budget. Without
    `client_weights` all clients count alike: how many records each will answer for is not known beforehand, so they
    cannot count by size, as they do elsewhere. Give the sizes as `client_weights` where you know them. Rounds may have
    any length and never end, and no length may depend on the answers. The questions are those of an open-ended run
    (`RunSpec(design="open")`), and the interval holds whatever the distribution and however often it is looked at; with
    `value_kind="continuous"` it is the narrower one that needs a smooth distribution, unless the answers contradict
    that. Where a number of `answers` is fixed beforehand, the smooth interval of that end stands beside it from then
    on.

    >>> import numpy as np
    >>> rng, site = np.random.default_rng(1), RandomizedResponse.from_epsilon(1.0)
    >>> median = OnlineQuantile(q=0.5, epsilon={"all": 1.0}, range=(0, 100))
    >>> for _ in range(400):
    ...     truths = rng.normal(60, 10, size=50) > median.query      # the question
    ...     coins = rng.integers(0, 2**64, size=50, dtype=np.uint64)  # real clients ask the operating system
    ...     median.update({"all": (int(site.respond(truths, coins).sum()), 50)})
    >>> bool(abs(median.result().estimate - 60) < 2)
    True
    """

    def __init__(
        self,
        q: float,
        *,
        epsilon: Mapping[str, float],
        range: tuple[float, float],
        scale: str = "linear",
        client_weights: Mapping[str, float] | None = None,
        confidence_level: float = 0.95,
        value: str = "the value",
        value_kind: str = "any",
        answers: int | None = None,
    ) -> None:
        checked("q", LEVEL, q)
        epsilon = checked("epsilon", PerClient(EPSILON), epsilon)
        if not isinstance(epsilon, Mapping) or not epsilon:
            raise InputError("epsilon must name at least one client: epsilon={'north': 1.0}.")
        weights = None if client_weights is None else checked("client_weights", PerClient(POSITIVE), client_weights)
        if weights is not None and not isinstance(weights, Mapping):
            raise InputError("client_weights must name the clients: client_weights={'north': 0.5}.")
        if weights is not None and set(weights) != set(epsilon):
            raise InputError("client_weights must name the same clients as epsilon.")
        parts = dict.fromkeys(epsilon, 1.0 / len(epsilon)) if weights is None else shares(weights)
        clients = tuple(
            Client(name, RandomizedResponse.from_epsilon(budget), parts[name], q, records=1)
            for name, budget in epsilon.items()
        )
        check_clients(clients)
        self._settings = ReportSettings(
            value,
            (q,),
            design="online",
            confidence_level=confidence_level,
            weighting="equal" if weights is None else "given",
            missing="fail",
            value_kind=value_kind,
        )
        self._plan = OpenPlan(
            clients, make_scale(scale, *range), answers=None if answers is None else End(answers=answers).answers
        )
        self._state = begin(self._plan)
        self._trajectory = Trajectory()

    @property
    def query(self) -> float:
        """The threshold to ask about next, in units of the data."""
        return units_inside(self._plan.scale, self._next((1,)).query)

    @property
    def rounds(self) -> int:
        """Rounds so far."""
        return self._state.round

    def update(self, counts: Mapping[str, tuple[int, int]]) -> None:
        """One round: client -> (ones, records that answered about `query`). A client left out is silent.

        A round to which nobody came is none: without any client nothing changes, and the question stands.
        """
        named = {client_name(name): pair for name, pair in counts.items()}
        if len(named) < len(counts):
            raise InputError("counts names one client more than once. Give each client one pair.")
        unknown = set(named) - {client.name for client in self._plan.clients}
        if unknown:
            raise InputError(f"unknown client {sorted(unknown)[0]!r}; the clients are those of epsilon.")
        for name, pair in named.items():
            _check_pair(name, pair)
        if not named:
            return
        given = [named.get(client.name) for client in self._plan.clients]
        lengths = tuple(0 if pair is None else pair[1] for pair in given)
        ask = self._next(lengths)
        ones = [None if pair is None else pair[0] for pair in given]
        self._state = step(self._state, ask, ones, self._plan)
        self._trajectory.record(ask, self._state, self._plan)

    def _next(self, lengths: tuple[int, ...]) -> Ask:
        """The present round, answered by so many records of every client."""
        return self._plan.present(self._state)._replace(lengths=lengths)

    def result(self) -> QuantileResult:
        """The estimate and its interval as they stand; needs two rounds after the search."""
        plan, state = self._plan, self._state
        level = LevelFacts(plan, state, self._trajectory, at_fixed_end=plan.is_reached(state))
        return all_of(make_results(self._settings, [level], run="online"))[0]


def _check_pair(name: str, pair: Any) -> None:
    """One client's counts: two whole numbers, of at least one record."""
    is_pair = isinstance(pair, tuple | list) and len(pair) == 2
    if not is_pair or not all(isinstance(one, Integral) and not isinstance(one, bool) for one in pair):
        raise InputError(
            f"the counts of client {name!r} must be a pair of whole numbers, (ones, records that answered); got "
            f"{pair!r}. Write update({{{name!r}: (3, 10)}}) where 3 of 10 answers were one."
        )
    if pair[1] < 1:
        raise InputError(
            f"client {name!r} must have at least one record that answered; got {pair[1]!r}. Leave a client out of the "
            "round when nobody came."
        )
