"""The same study with the same draws in one process, with a coordinator's intake and without a coordinator."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from privatile.core.messages import Answer, Position
from privatile.federation.coordinator.intake import AnswerIntake
from privatile.federation.study import ClientAgreement, FederationStudy
from privatile.federation.wire import RoundAnswers
from privatile.run.coordinator import Coordinator
from privatile.run.run_file import RunStore
from replica.kit import StoredPeer, drawn, key_of, make, make_study, run

SILENT = {("peer2", 5), ("peer2", 6), ("peer0", 9)}
"""Who does not answer which round."""


def study_of(tolerate: int | None) -> FederationStudy:
    sizes = {"peer0": 300, "peer1": 260, "peer2": 500, "peer3": 400}
    total = sum(sizes.values())
    clients = {name: ClientAgreement(2.0, size / total, size) for name, size in sizes.items()}
    return make_study(4, 20, tolerate, design="auto", levels=(0.25, 0.5), agreements=clients)


def transcript(store: RunStore) -> list[tuple[Any, ...]]:
    return [(one.level_index, one.round, one.ask, one.ones, one.unspent) for one in store.all_rounds()]


def results(store: RunStore) -> list[Any]:
    return [replace(one, run="", date=None) for one in Coordinator(store).results()]


def in_process() -> RunStore:
    study = study_of(None)
    store = RunStore.create(":memory:", study.run, study.spec)
    coordinator = Coordinator(store)
    while questions := coordinator.questions():
        number = coordinator.done + 1
        here = [name for name in study.clients if (name, number) not in SILENT]
        counts = [
            [drawn(name, questions[name][level]) if name in here else None for name in study.clients]
            for level in range(len(study.levels))
        ]
        coordinator.accept(counts, (), set(here))  # no ledger has drawn a coin in a round that it missed
    coordinator.finish()
    return store


def with_intake() -> RunStore:
    study = study_of(None)
    store = RunStore.create(":memory:", study.run, study.spec)
    coordinator = Coordinator(store)
    intake = AnswerIntake(study.digest, {name: key_of(name).public.signer for name in study.clients}, {}, {})
    links = dict.fromkeys(study.clients, 0)
    while questions := coordinator.questions():
        intake.open(questions)
        for name, asked in questions.items():
            if (name, asked[0].round) not in SILENT:
                links[name] += len(asked)
                answers = [Answer(one, name, drawn(name, one), Position(links[name])) for one in asked]
                message = RoundAnswers.of(study.digest, answers)
                assert intake.offer(name, message.pack(key_of(name))).outcome == "counted"
        coordinator.accept(intake.counts(), (), intake.unspent)
        intake.close(coordinator.asked)
    coordinator.finish()
    return store


class Tired(StoredPeer):
    """Is silent in some rounds, and waits for nobody in others."""

    def wants(self, *, proposes: bool = True) -> list[bytes]:
        number = self.replica.round
        self.is_late = any(missed == number for _, missed in SILENT)
        silent = (self.name, number) in SILENT and self.replica.asked is not None
        return [] if silent else super().wants(proposes=proposes)


@cache
def leaderless() -> tuple[RunStore, list[Tired]]:
    study = study_of(1)
    peers = [Tired(study, name) for name in study.clients]
    run(peers, [])
    for peer in peers:
        peer.save()
    assert all(peer.replica.finished for peer in peers)
    return peers[0].store, peers


def test_the_same_draws_give_the_same_transcript_and_results_in_all_three() -> None:
    alone, asked, (common, peers) = in_process(), with_intake(), leaderless()
    assert len(transcript(alone)) == 40
    assert any(None in ones for _, _, _, ones, _ in transcript(common))
    assert transcript(alone) == transcript(asked) == transcript(common)
    assert results(alone) == results(asked) == results(common)
    assert all(one.finished is not None for one in (alone, asked, common))
    for peer in peers:
        assert transcript(peer.store) == transcript(common)
        assert peer.store.query("SELECT * FROM peer_chain") == peers[0].store.query("SELECT * FROM peer_chain")


def test_other_draws_give_another_transcript(monkeypatch: pytest.MonkeyPatch) -> None:
    common, _ = leaderless()
    monkeypatch.setattr("replica.test_same_run.drawn", lambda name, one: one.length // 2)
    assert transcript(in_process()) != transcript(common)


def test_no_chain_value_depends_on_a_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    values = []
    for start, step in ((0.0, 0.0), (1e9, 12.5)):
        clock = itertools.count()
        monkeypatch.setattr(time, "time", lambda start=start, step=step, clock=clock: start + step * next(clock))
        peers = make(4, 3)
        run(peers, [])
        assert next(clock) > 0  # it was asked
        values.append([peer.replica.head for peer in peers])
    assert values[0] == values[1]
