"""`estimate`: from data to a result, in one call. The command line calls the same function."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np

from privatile.api.in_process import Progress, run
from privatile.client.coins import Coins, OperatingSystemCoins, SeededCoins
from privatile.client.ledger.keys import PersonKey
from privatile.client.ledger.ledger import Ledger
from privatile.client.ledger.spending_rules import SpendingRules
from privatile.client.order.column import ShuffledColumn
from privatile.client.order.shuffle import shuffle
from privatile.client.responder import Responder
from privatile.client.sources.opening import open_source
from privatile.errors import InputError, LedgerError, StoreError
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.planning.options import Options
from privatile.report.run_page import RunReporter
from privatile.report.view import RunRecord
from privatile.result.result import QuantileResult
from privatile.server.coordinator import Coordinator, new_run_name
from privatile.server.store import RunStore
from privatile.server.writer import claim


def state_folder() -> Path:
    """Where ledgers and unfinished runs live when no path is given: $XDG_STATE_HOME/privatile, or its usual place."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "privatile"


def person_key_path() -> Path:
    """Where the key that hashes people lives: apart from the ledger, in $XDG_CONFIG_HOME/privatile."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "privatile" / "person.key"


@dataclass(frozen=True)
class Prepared:
    """Data read, budgets known, nothing asked yet."""

    spec: RunSpec
    options: Options
    columns: Mapping[str, ShuffledColumn]
    ledger: Ledger
    coins: Coins
    store: RunStore | None
    """An unfinished run of the same specification, to be continued; none: a new run."""

    @property
    def rules(self) -> SpendingRules:
        """What the holder of the data allows beyond "once"."""
        return SpendingRules(self.options.spend_again, self.options.new_people, self.options.max_epsilon)

    def responders(self, run_name: str) -> list[Responder]:
        """One a client, in the specification's order."""
        return [
            Responder(
                run_name,
                self.columns[client.name],
                client.mechanism,
                self.ledger,
                self.coins,
                scale=self.spec.working_scale,
                missing=self.spec.missing,
                dither=self.spec.dither,
                rules=self.rules,
            )
            for client in self.spec.clients
        ]


def prepare(data: object, options: Options, rng: np.random.Generator | None = None) -> Prepared:
    """Read the data and work out the run. With `rng` everything is a simulation: seeded coins, no ledger file."""
    coins: Coins
    if rng is None:
        ledger = Ledger.open(options.ledger or state_folder() / "ledger.db")
        coins = OperatingSystemCoins()
    else:
        ledger = Ledger.in_memory(master=rng.bytes(32))
        coins = SeededCoins(rng)
    key = None
    if options.person is not None:
        key = PersonKey.open(options.person_key or person_key_path())
    source = open_source(data, value=options.value, client=options.client, person=options.person, query=options.query)
    columns = shuffle(source, ledger, missing=options.missing, person_key=key)
    names = sorted(columns)
    if options.only is not None:
        if options.only not in names:
            raise InputError(f"only names {options.only!r}, which is no client. The clients: {', '.join(names[:8])}.")
        names = [options.only]
    options.check_clients(names)
    weights = options.client_weights({name: columns[name].records for name in names})
    own = options.q if isinstance(options.q, Mapping) else None
    levels = options.levels if own is None else (sum(weights[name] * own[name] for name in names),)
    scale = options.working_scale
    request = RunSpec(
        value=(options.value or "the value") + (f" at {options.only}" if options.only is not None else ""),
        levels=levels,
        clients=tuple(
            ClientSpec(
                name=name,
                threshold=options.mechanism(name).threshold,
                weight=weights[name],
                records=columns[name].records,
                level=None if own is None else own[name],
                file_records=columns[name].records,
            )
            for name in names
        ),
        scale=scale.name,
        low=scale.low,
        high=scale.high,
        rounds=options.rounds,
        mode=options.mode,
        local_level=options.local_level,
        weighting=options.weighting,
        person=options.person is not None,
        simulated=rng is not None,
        **options.report_options,
    )
    prepared = Prepared(request, options, columns, ledger, coins, None)
    store = None if rng is not None and options.save is None else _unfinished(prepared)
    if store is not None:
        return replace(prepared, spec=store.spec.reported_as(request), store=store)
    _check_plans(request)  # what the whole file could not fill is refused before the ledger is asked
    # What is left to answer may be less than the file holds: earlier runs have asked the rest.
    counts = [responder.available() for responder in prepared.responders(new_run_name())]
    clients = tuple(replace(client, records=count) for client, count in zip(request.clients, counts, strict=True))
    spec = replace(request, clients=clients)
    _check_plans(spec)
    return replace(prepared, spec=spec)


def _check_plans(spec: RunSpec) -> None:
    """Refuse a schedule that does not fit the data, before anyone is asked."""
    for index in range(len(spec.levels)):
        spec.plan(index)


def _store_path(prepared: Prepared) -> Path:
    if prepared.options.save is not None:
        return Path(prepared.options.save)
    base = prepared.ledger.path.parent if prepared.ledger.path else state_folder()
    return base / "runs" / f"{prepared.spec.questions.digest[:24]}.db"


def _unfinished(prepared: Prepared) -> RunStore | None:
    path = _store_path(prepared)
    if not path.exists():
        return None
    if RunStore.is_blank(path):
        forget(path)
        return None
    if prepared.options.new_run:
        if prepared.options.save is not None:
            raise StoreError(f"{path} holds a run. Name another file for the new one with save (--save).")
        _give_up(prepared, path)
        return None
    store = RunStore.open(path)
    if store.spec.questions.digest != prepared.spec.questions.digest:
        raise StoreError(f"{path} holds another run (other options or clients). Name another file with save (--save).")
    if store.finished is not None and prepared.options.spend_again:
        if prepared.options.save is None:
            store.close()
            forget(path)
            return None
        raise StoreError(f"{path} holds a finished run. Name another file for the second one with save (--save).")
    return store


def _give_up(prepared: Prepared, path: Path) -> None:
    """Leave an unfinished run: what it had reserved and not asked may be asked by others."""
    old = RunStore.open(path)
    name = old.run
    old.close()
    # A file that has changed since holds other records than the run had reserved: there is nothing to give back.
    with suppress(LedgerError):
        for responder in prepared.responders(name):
            responder.release()
    forget(path)


def forget(path: Path) -> None:
    """Remove a run's file and what SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def open_store(prepared: Prepared) -> RunStore:
    """The run's store: the unfinished one, or a new one."""
    if prepared.store is not None:
        return prepared.store
    simulated = prepared.spec.simulated and prepared.options.save is None
    path: Path | str = ":memory:" if simulated else _store_path(prepared)
    if isinstance(path, Path) and prepared.options.save is None:
        if path.exists():
            raise StoreError("the same estimate is running in another process. Wait for it; it will give the result.")
        try:
            for folder in (path.parent.parent, path.parent):  # the mode is the last folder's only
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StoreError(
                f"{path.parent} cannot be made ({os.strerror(error.errno or 0)}). Set XDG_STATE_HOME to a folder you "
                "may write to, or name the files with --ledger and --save."
            ) from None
    return RunStore.create(path, new_run_name(), prepared.spec)


def complete(prepared: Prepared, progress: Progress | None = None, *, keep: bool = False) -> tuple[QuantileResult, ...]:
    """Ask until the run is over, or go on with an unfinished one; one result a level.

    Without a place to save it, the run's file only serves to resume and is then removed; `keep` leaves that to the
    caller (`discard`), once the results are safe.
    """
    store = open_store(prepared)
    coordinator = Coordinator(store, prepared.spec)
    if store.finished is None:
        claim(store)
        responders = prepared.responders(store.run)
        with prepared.ledger.transaction():  # all clients or none
            for responder, client in zip(responders, prepared.spec.clients, strict=True):
                responder.reserve(client.records)
        run(coordinator, responders, progress)
        for responder in responders:
            responder.release()
    results = coordinator.results()
    reporter = RunReporter(RunRecord(store), results)
    store.close()
    prepared.ledger.close()
    if not keep:
        discard(prepared)
    return tuple(replace(result, reporter=reporter) for result in results)


def discard(prepared: Prepared) -> None:
    """Without --save nothing of a finished run is kept but the ledger's account."""
    if prepared.options.save is None and not prepared.spec.simulated:
        forget(_store_path(prepared))


@overload
def estimate(
    data: object,
    *,
    q: float | Mapping[str, float] = ...,
    epsilon: float | Mapping[str, float] | None = ...,
    range: tuple[float, float],
    simulate: bool = ...,
    rng: np.random.Generator | int | None = ...,
    progress: Progress | None = ...,
    **options: Any,
) -> QuantileResult: ...


@overload
def estimate(
    data: object,
    *,
    q: Sequence[float] | Literal["curve"],
    epsilon: float | Mapping[str, float] | None = ...,
    range: tuple[float, float],
    simulate: bool = ...,
    rng: np.random.Generator | int | None = ...,
    progress: Progress | None = ...,
    **options: Any,
) -> tuple[QuantileResult, ...]: ...


def estimate(
    data: object,
    *,
    q: float | Sequence[float] | Mapping[str, float] | Literal["curve"] = 0.5,
    epsilon: float | Mapping[str, float] | None = None,
    range: tuple[float, float],
    simulate: bool = False,
    rng: np.random.Generator | int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> QuantileResult | tuple[QuantileResult, ...]:
    """A quantile with its confidence interval under ε-local differential privacy; one result for each level in `q`.

    `data` is a mapping of client name to column, a table with a client column (`client=`), one column, a path, or a
    DB-API connection with `query=`. `range` is where the quantile can lie, in units; `scale` is linear, log, logit
    or identity. Every further keyword is a field of `privatile.planning.options.Options`.

    Real data takes randomness from the operating system only, and a ledger remembers who has answered. For made-up
    data `simulate=True, rng=…` seeds everything, and the result says so.

    >>> made_up = {"north": np.random.default_rng(1).normal(50, 10, 20_000),
    ...            "south": np.random.default_rng(2).normal(60, 10, 20_000)}
    >>> result = estimate(made_up, q=0.5, epsilon=1, range=(0, 100), simulate=True, rng=3)
    >>> bool(result.confidence_interval.low < 55 < result.confidence_interval.high)
    True
    """
    if rng is not None and not simulate:
        raise InputError(
            "a seed is for simulation: with a known seed every randomized answer could be undone. Leave it out for "
            "real data, or say simulate=True for made-up data."
        )
    if simulate and rng is None:
        raise InputError("a simulation needs its randomness: give rng, a numpy Generator or a seed.")
    if simulate and (isinstance(data, str | os.PathLike) or options.get("query") is not None):
        raise InputError(
            "a simulation is for made-up data in memory; this is a file or a database, so its records are taken for "
            "real. Leave out simulate and rng."
        )
    levels = tuple(q) if isinstance(q, Sequence) and not isinstance(q, str) else q
    chosen = Options(q=levels, epsilon=epsilon, range=range, **options)
    prepared = prepare(data, chosen, np.random.default_rng(rng) if simulate else None)
    results = complete(prepared, progress)
    return results if isinstance(q, Sequence) else results[0]
