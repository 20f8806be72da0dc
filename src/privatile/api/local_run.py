"""A run over data of this machine: read, planned, asked in this process, continued after a crash.

The command line and `estimate` use the same two steps: `prepare`, which asks no one, and `LocalRun.complete`.
"""

import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from privatile.api.division import Division
from privatile.client.ledger.account import SpendingRules, release_run
from privatile.client.ledger.integrity import KEY_BYTES, PersonKey
from privatile.client.ledger.ledger import Ledger
from privatile.client.ledger.restore import check_begun, check_link, check_past
from privatile.client.order.shuffle import HEAPS, ShuffledColumn, check_column, has_heaps
from privatile.client.order.weights import MOST_ROUNDS, WIDEST
from privatile.client.randomizer import Coins, OperatingSystemCoins, SeededCoins
from privatile.client.responder import Responder, answer_all
from privatile.core.messages import Position
from privatile.core.private_files import default_person_key, ledger_path, state_folder
from privatile.errors import ClientTooSmall, InputError, StoreError
from privatile.estimator.clients import UNKNOWN_SIZE, Survey, pooled_noise
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.planning.options import Options
from privatile.report.run_page import RunReporter
from privatile.result.result import Results
from privatile.run.coordinator import Coordinator, new_run_name, stored_questions
from privatile.run.locks import claim
from privatile.run.run_file import RunStore, Statement
from privatile.run.tables import LEDGER


class RunClient(NamedTuple):
    """A client, or one of its weight classes: its name, whose records it has, its column, how many may be asked."""

    name: str
    holder: str
    column: ShuffledColumn
    records: int

    @property
    def size(self) -> float:
        """What it counts with inside its client, and between clients where their sizes count.

        The records that may be asked: the file's size beside them would tell how many had answered elsewhere. Of a
        weight class the sum of its weights.
        """
        return float(self.records) if self.column.weights is None else self.column.weights.total


def parts_of(columns: Mapping[str, ShuffledColumn], holders: Mapping[str, str] | None = None) -> list[RunClient]:
    """The columns that a run asks, by client, the classes of a client from the lightest on.

    `holders` gives the clients of cells (`client.sources.cells`), by the cells' names; otherwise they are the clients.
    """
    parts = [
        RunClient(name, (holders or {}).get(column.content.holder, column.content.holder), column, column.records)
        for name, column in columns.items()
    ]
    parts.sort(key=lambda part: (part.holder, 0.0 if part.column.weights is None else part.column.weights.low))
    return parts


def specification(options: Options, parts: list[RunClient], *, simulated: bool) -> RunSpec:
    """The run's specification."""
    sizes: dict[str, float] = {}
    for part in parts:
        sizes[part.holder] = sizes.get(part.holder, 0.0) + part.size
    options.check_clients(list(sizes))
    weights = options.weights_of(sizes)
    shares = [weights[part.holder] * (part.size / sizes[part.holder]) for part in parts]
    total = math.fsum(shares)
    own = options.q if isinstance(options.q, Mapping) else None
    scale, levels = options.working_scale, options.levels
    survey = _survey(options, parts, weights)
    return RunSpec(
        value=options.value_in_words,
        levels=levels if own is None else (sum(weight * own[name] for name, weight in weights.items()),),
        clients=tuple(
            ClientSpec(
                name=part.name,
                threshold=options.mechanism(part.holder).threshold,
                weight=share / total if survey is not None else share,
                records=part.records,
                level=None if own is None else own[part.holder],
                file_records=part.records,
                holder="" if survey is None else part.holder,
                weights=None if part.column.weights is None else part.column.weights[:2],
            )
            for part, share in zip(parts, shares, strict=True)
        ),
        scale=scale.name,
        low=scale.low,
        high=scale.high,
        rounds=options.rounds if survey is None else _rounds(options, parts),
        mode=options.mode,
        local_level=options.local_level,
        weighting=options.weighting,
        person=options.person is not None,
        simulated=simulated,
        survey=survey,
        **options.report_options,
    )


def _rounds(options: Options, parts: list[RunClient]) -> int | None:
    """Of weighted records: as many rounds as the smallest class has records for, unless stated.

    A class may have one record per round: the smallest ones weigh little. Only the file decides, so that a resumed run
    has the same number.
    """
    if options.rounds is not None or options.design not in ("auto", "straddle", "tuned"):
        return options.rounds
    return min(MOST_ROUNDS, min(part.column.records for part in parts) // max(1, len(options.levels)))


def _survey(options: Options, parts: list[RunClient], weights: Mapping[str, float]) -> Survey | None:
    """What was done about the weights; None without any."""
    classes = [(part.holder, part.column.weights, part.column.records) for part in parts]
    totals = dict.fromkeys(weights, 0.0)
    for holder, own, _ in classes:
        totals[holder] += 0.0 if own is None else own.total
    found = [(weights[holder] / totals[holder], own, kept) for holder, own, kept in classes if own is not None]
    if options.weight is None:
        return None
    kish = math.fsum(scale**2 * own.squares for scale, own, _ in found)
    reached = math.fsum((scale * own.total) ** 2 / kept for scale, own, kept in found)
    widest = max(own.high / own.low for _, own, _ in found)
    return Survey(
        column=options.weight,
        records=sum(own.records for _, own, _ in found),
        effective=1.0 / kish,
        variance=reached / kish,
        widest=widest,
        joined=widest > WIDEST * (1.0 + 1e-9),
    )


log = logging.getLogger("privatile.client")

UNDECLARED = (
    "Leave out --value-kind continuous (value_kind=), or declare --value-kind whole or step=NUMBER if all are "
    "multiples."
)

Progress = Callable[[int, int], None]
"""Called after every round with rounds done and rounds planned."""


def prepare(data: object, options: Options, rng: np.random.Generator | None = None) -> "LocalRun":
    """Read the data and work out the run. With `rng` everything is a simulation: seeded coins, no ledger file."""
    ledger, coins, division = opened(data, options, rng)
    columns = division.only(options)
    if options.groups or options.leave_out:
        for column in columns.values():
            check_column(column, options.missing)
    run = LocalRun(options, columns, division, ledger, coins)
    if run.is_heaped:
        log.warning(HEAPS, "this data", UNDECLARED)
    return run


def opened(data: object, options: Options, rng: np.random.Generator | None) -> tuple[Ledger, Coins, Division]:
    """The ledger, the coins and the records, each read once for all runs over them."""
    coins: Coins
    if rng is None:
        opens = Ledger.open if options.person is None else Ledger.open_or_make
        ledger = opens(options.ledger or ledger_path())
        coins = OperatingSystemCoins()
    else:
        ledger = Ledger.in_memory(master=rng.bytes(32))
        coins = SeededCoins(rng)
    key = None
    if options.person is not None:
        # Before the file is read: runs that begin together share the ledger and the person key that one of them made.
        path = Path(options.person_key or default_person_key())
        key = ledger.person_key(path) if rng is None else PersonKey(rng.bytes(KEY_BYTES))
    return ledger, coins, Division.read(data, options, ledger, key)


@dataclass(eq=False, repr=False)
class LocalRun:
    """Data read, budgets known, nothing asked yet.

    `store` is the file of a run of the same specification, to be continued or shown again; None for a new run.
    """

    options: Options
    columns: Mapping[str, ShuffledColumn]
    division: Division
    """The file that the columns are from."""
    ledger: Ledger
    coins: Coins
    shared: bool = False
    """Whether further runs use the ledger: whoever opened it closes it."""

    def __post_init__(self) -> None:
        self.holders = self.division.holders()
        """Of cells, whose records they are (`Division`)."""
        parts = parts_of(self.columns, self.holders)
        # Of the whole file: by it a run is found again. What it could not fill is refused before the ledger is asked.
        self.spec = self._specified(parts)
        self.store = self._find_store()
        self._name = new_run_name() if self.store is None else self.store.run
        if self.store is not None:
            self.spec = self.store.spec.reported_as(self.spec)
            return
        self._check_plans()
        # What is left to answer may be less than the file holds: earlier runs have asked the rest.
        counts = [responder.available() for responder in self._responders]
        left = [part._replace(records=count) for part, count in zip(parts, counts, strict=True)]
        spec = self.spec if left == parts else self._specified(left)
        self.spec = replace(spec, clients=tuple(self._asked(client) for client in spec.clients))
        if left != parts:
            self._check_plans()

    def _specified(self, parts: list[RunClient]) -> RunSpec:
        return specification(self.options, parts, simulated=isinstance(self.coins, SeededCoins))

    def _check_plans(self) -> None:
        """Refuse a schedule that does not fit the data, before anyone is asked."""
        try:
            for level_index in range(len(self.spec.levels)):
                self.spec.plan(level_index)
        except ClientTooSmall as error:
            client, options = self.holders.get(error.client, error.client), self.options
            cures = (
                f"leave it out with leave_out={client!r}, or merge it with another: both change whose quantile it is."
            )
            one_rule = not any(isinstance(given, Mapping) for given in (options.epsilon, options.q))
            if options.client is not None and options.client_weights == "size" and one_rule:
                same = f"without client={options.client!r} all records are one client's, and the quantile is the same."
                cures = f"{same} Or {cures}"
            raise ClientTooSmall(error.fact, client, cures[0].upper() + cures[1:]) from None

    def _asked(self, client: ClientSpec) -> ClientSpec:
        """A client whose file's size is told only where all of it is asked."""
        column = self.columns[client.name]
        usable = column.records - (column.missing if self.spec.missing == "drop" else 0)
        is_whole = client.records == usable and (column.weights is None or column.weights.records == usable)
        return replace(client, file_records=client.records if is_whole else UNKNOWN_SIZE)

    @property
    def is_heaped(self) -> bool:
        """Whether values that are declared continuous lie on heaps; for the holder alone (`has_heaps`)."""
        clients = self.spec.at_level(0)
        parts = [(self.columns[client.name], client.weight) for client in clients]
        return self.spec.declared.continuous and has_heaps(parts, math.sqrt(pooled_noise(clients)))

    # -- who answers ---------------------------------------------------------------------------------------------

    @cached_property
    def _responders(self) -> list[Responder]:
        """One per client, in the specification's order."""
        options, spec = self.options, self.spec
        rules = SpendingRules(options.spend_again, options.new_people, options.max_epsilon)
        return [
            Responder(
                self._name,
                self.columns[client.name],
                client.mechanism,
                self.ledger,
                self.coins,
                scale=spec.working_scale,
                missing=spec.missing,
                dither=spec.dither,
                rules=rules,
            )
            for client in spec.clients
        ]

    # -- the run's file ------------------------------------------------------------------------------------------

    @cached_property
    def _path(self) -> Path | None:
        """Where the run is stored; None for a simulation that is not saved, which stays in memory."""
        if self.options.save is not None:
            return Path(self.options.save)
        if self.spec.simulated:
            return None
        folder = self.ledger.path.parent if self.ledger.path else state_folder()
        return folder / "runs" / f"{self.spec.questions.digest[:24]}.db"

    def _find_store(self) -> RunStore | None:
        """The file of this run, finished or not; files that are in the way of a new run are removed or refused."""
        path, options = self._path, self.options
        if path is None or not path.exists():
            return None
        if RunStore.is_blank(path):
            _forget(path)
            return None
        if options.new_run:
            if options.save is not None:
                raise StoreError(f"{path} holds a run. Name another file for the new one with save=PATH.")
            self._give_up(path)
            return None
        store = RunStore.open(path)
        if store.spec.questions.digest != self.spec.questions.digest:
            raise StoreError(
                f"{path} holds another run (other options or clients). Name another file with save=PATH. Only to "
                "see its run with other declared values: privatile report FILE --value-kind KIND, which asks no one."
            )
        if store.finished is None:
            self._check_past(store)
        elif options.spend_again and not self.shared:  # of several runs the others may not be over
            if options.save is not None:
                raise StoreError(f"{path} holds a finished run. Name another file for the second one with save=PATH.")
            store.close()
            _forget(path)
            return None
        return store

    def _check_past(self, store: RunStore) -> None:
        """Refuse a ledger that holds less than the run's file says was asked."""
        if self.spec.simulated:
            return  # nobody was asked
        names = [client.name for client in store.spec.clients]
        asked = (pair for _, questions in stored_questions(store) for pair in zip(names, questions, strict=True))
        check_past(self.ledger, asked, store.path)
        if store.open_round():
            check_begun(self.ledger, store.run, names, store.path)
        for key, *seen in store.query("SELECT key, sequence, head FROM ledger"):
            check_link(self.ledger, key, Position(*seen), store.path)

    def _give_up(self, path: Path) -> None:
        """Leave an unfinished run: what it had reserved and not asked may be asked by others."""
        with RunStore.open(path) as old:
            if self.ledger.meta("restored") is None:  # otherwise everything counts as spent already
                self._check_past(old)
            with suppress(InputError):  # the ledger knows nothing of a run that never asked
                release_run(self.ledger, old.run)
        _forget(path)

    def open_store(self) -> RunStore:
        """The run's file: the one that was found, or a new one."""
        if self.store is None:
            path = self._path
            if path is not None and self.options.save is None:
                if path.exists():
                    raise StoreError(
                        "the same estimate is running in another process. Wait for it; it will give the result."
                    )
                make_private(path.parent)
            self.store = RunStore.create(path or ":memory:", self._name, self.spec)
        return self.store

    # -- the run itself ------------------------------------------------------------------------------------------

    def complete(self, progress: Progress | None = None, *, keep: bool = False) -> Results:
        """Ask until the run is over, or continue an unfinished one; one result per level.

        Without a place to save it, the run's file only serves to resume and is then removed; `keep` leaves that to
        the caller (`discard`), once the results are safe.
        """
        store = self.open_store()
        coordinator = Coordinator(store, self.spec, keep=True)
        if store.finished is None:
            claim(store)
            with self.ledger.transaction():  # all clients or none
                for responder, client in zip(self._responders, self.spec.clients, strict=True):
                    if (
                        not responder.account.state().unproven
                    ):  # then it repeats what was asked, and refuses what is new
                        responder.reserve(client.records)
            # A run belongs to the ledger it began with: written before anybody is asked.
            store.execute(_link_statements(self.ledger))
            ask_rounds(coordinator, self._responders, progress, self.ledger)
            release_run(self.ledger, self._name)
        results = coordinator.results()
        reporter = RunReporter(coordinator.stored_run(), self.spec)
        store.close()
        if not self.shared:
            self.ledger.close()
        if not keep:
            self.discard()
        return Results(replace(result, reporter=reporter) for result in results)

    def discard(self) -> None:
        """Remove the run's file unless it is to be saved: what remains of the run is the ledger's account."""
        if self.options.save is None and self._path is not None:
            _forget(self._path)


def ask_rounds(
    coordinator: Coordinator,
    responders: Sequence[Responder],
    progress: Progress | None = None,
    ledger: Ledger | None = None,
) -> None:
    """Ask until the plan is over. Killed at any moment, the same call continues where it stopped.

    The ledger is on the disk before a count reaches the coordinator; a round that was counted but not yet stored is
    asked again and gets the stored count. Where all answer from one `ledger`, the run's file keeps the last link of
    its chain until the run is over: by it a resumed run tells this ledger from all others.
    """
    while (rounds := coordinator.rounds()) is not None:
        pairs = [pair for each in rounds for pair in zip(responders, each.questions, strict=True)]
        ones = iter([answer.check(asked).ones for answer, (_, asked) in zip(answer_all(pairs), pairs, strict=True)])
        counts = [[next(ones) for _ in each.questions] for each in rounds]
        coordinator.accept(counts, [] if ledger is None else _link_statements(ledger))
        if progress is not None:
            progress(coordinator.done, coordinator.planned)
    coordinator.finish()


def _link_statements(ledger: Ledger) -> list[Statement]:
    return [
        (LEDGER, ()),
        ("DELETE FROM ledger", ()),
        ("INSERT INTO ledger VALUES (?, ?, ?)", (ledger.secret.fingerprint, *ledger.position)),
    ]


def make_private(folder: Path) -> None:
    """Make a folder of unfinished runs, for its owner alone."""
    try:
        for each in (folder.parent, folder):  # the mode is the last folder's only
            each.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreError(
            f"{folder} cannot be made ({os.strerror(error.errno or 0)}). Set XDG_STATE_HOME to a folder you may "
            "write to, or name the files with ledger=PATH and save=PATH."
        ) from None


def _forget(path: Path) -> None:
    """Remove a run's file and the files that SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
