"""A study carried by Flower instead of the broker: what apps/flower puts into a ServerApp and a ClientApp.

Both sides have their own copy of the study file. A run's name holds the study's hash, so a coordinator whose study
differs asks about another run, and is refused. What concerns the data stands in the node's configuration, which the
site alone writes.

    run config (coordinator)   study, store
    node config (site)         client, study, source, value, ledger, max-epsilon
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from privatile.client.coins import Coins, OperatingSystemCoins
from privatile.client.ledger.ledger import Ledger
from privatile.client.ledger.spending_rules import SpendingRules
from privatile.client.order.shuffle import shuffle
from privatile.client.responder import Responder
from privatile.client.sources.source import open_source
from privatile.core.messages import Question
from privatile.core.scale import make_scale
from privatile.errors import InputError, SiteRefusal, StoreError
from privatile.federation.study.study import FederationStudy, load_study
from privatile.server.coordinator import Coordinator
from privatile.server.store import RunStore
from privatile.server.writer import claim
from privatile_flower.engine import Pace, client_app, server_app

MakeCoins = Callable[[str, Ledger], Coins]
"""A client's coins, given its name and its ledger."""

Settings = Mapping[str, Any]
"""A configuration as Flower gives it: names and plain values."""


def study_server_app(settings: Callable[[Any], Settings] = lambda context: context.run_config) -> Any:
    """The ServerApp of a study: `settings(context)`, by default the run config, names study file and run's file."""

    def done(coordinator: Coordinator) -> None:
        print("\n\n".join(result.to_text() for result in coordinator.results()))
        coordinator.store.close()

    return server_app(
        lambda context: open_study_run(settings(context)),
        pace=lambda context: _pace(_study(settings(context))),
        done=done,
    )


def study_client_app(
    make_coins: MakeCoins = lambda client, ledger: OperatingSystemCoins(),
    *,
    settings: Callable[[Any], Settings] = lambda context: context.node_config,
) -> Any:
    """The ClientApp of a site: `settings(context)` is what the site says about itself, by default its node config."""
    return client_app(
        lambda context: open_study_responder(settings(context), make_coins),
        name=lambda context: _text(settings(context), "client"),
        agree=lambda context, question: check_question(_study(settings(context)), question),
    )


def open_study_run(settings: Settings) -> Coordinator:
    """Begin the study's run, or go on with it; a file of another study is refused."""
    study, path = _study(settings), Path(_text(settings, "store"))
    if path.exists():
        store = RunStore.open(path, durable=True)
    else:
        store = RunStore.create(path, study.run, study.spec, durable=True)
    if store.run != study.run or store.spec.digest != study.spec.digest:
        store.close()
        raise StoreError(f"{path} holds another run than the study's. Name another file, or move it away.")
    if store.finished is None:
        claim(store)
    return Coordinator(store)


@contextmanager
def open_study_responder(settings: Settings, make_coins: MakeCoins) -> Iterator[Responder]:
    """The site's responder: its own study file, data, ledger and limit."""
    study, name = _study(settings), _text(settings, "client")
    if name not in study.clients:
        raise InputError(f"the study has no client {name!r:.60}; it has {', '.join(study.clients)}.")
    terms, limit = study.clients[name], settings.get("max-epsilon")
    if isinstance(limit, bool) or not isinstance(limit, int | float):
        raise InputError(
            "max-epsilon must be given in the node config, as a number: the most one record may pay for life."
        )
    with Ledger.open(_text(settings, "ledger")) as ledger:
        source = open_source(_text(settings, "source"), value=_text(settings, "value"))
        # In the ledger a site has one name for itself, whatever a study calls it.
        (column,) = shuffle(source, ledger, missing=study.missing).values()
        responder = Responder(
            study.run,
            column,
            terms.mechanism,
            ledger,
            make_coins(name, ledger),
            scale=make_scale(study.scale, *study.range),
            missing=study.missing,
            rules=SpendingRules(max_epsilon=float(limit)),
        )
        responder.require(max(0, terms.records - responder.asked()))
        yield responder


def check_question(study: FederationStudy, question: Question) -> None:
    """Refuse what the site's own study does not cover."""
    low, high = study.range
    if question.run != study.run:
        raise SiteRefusal("the question is of another run, or of another version of the study than this site's.")
    if question.level not in study.asked_levels:
        raise SiteRefusal(f"the question is about level {question.level:g}, which is not the study's.")
    if question.round > study.rounds:
        raise SiteRefusal(f"round {question.round} is beyond the study's {study.rounds} rounds.")
    if not low <= question.query <= high:
        raise SiteRefusal("the question lies outside the study's range.")


def _pace(study: FederationStudy) -> Pace:
    return Pace(study.deadline, study.patience)


def _study(settings: Settings) -> FederationStudy:
    return load_study(Path(_text(settings, "study")))


def _text(settings: Settings, key: str) -> str:
    value = settings.get(key)
    if not isinstance(value, str) or not value:
        raise InputError(f"{key} must be given in Flower's configuration, as a text; got {value!r:.60}.")
    return value
