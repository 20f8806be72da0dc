"""Random lives of a site in an open study: files that are edited, restarts, lost answers, questions asked again.

One in the suite, 300 with PRIVATILE_LONG=1. After every step the ledger is held against a plain model: everybody
who has answered has spent ε once, and as many have answered as the signed answers say.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import numpy as np
import pytest

from privatile.client.ledger.account import Account
from privatile.client.ledger.integrity import PersonKey
from privatile.core.private_files import default_person_key
from privatile.federation.wire import RoundAnswers, RoundQuestions, read_message
from tests.federation.open_kit import OpenFederation, make_open_study

pytestmark = pytest.mark.network  # a free port of the loopback is looked for; nothing is sent

LIVES = 300 if os.environ.get("PRIVATILE_LONG") else 1
STEPS = 14


class Life:
    """One site and a coordinator that loses answers, asks again and asks otherwise."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.federation = OpenFederation(folder, make_open_study({"north": 1.0}, records=120))
        self.rng = np.random.default_rng(seed)
        self.epsilon = self.federation.study.clients["north"].mechanism.epsilon
        self.lengths: dict[int, int] = {}
        """By round, how many took part, as the site has signed it."""
        self.asked: list[bytes] = []
        self.seen: set[str] = set()
        """Everybody who was in the file while a question was answered."""
        self.federation.start("north")

    def edit(self) -> None:
        """Something happens to the file."""
        rows, rng = self.federation.rows["north"], self.rng
        known = [f"p{k}" for k in range(150)]
        what = rng.integers(6)
        if what < 2:
            rows += [(str(person), float(rng.normal(50, 10))) for person in rng.choice(known, rng.integers(1, 30))]
        elif what == 2:
            del rows[:: int(rng.integers(1, 4))]
        elif what == 3:
            rng.shuffle(rows)
        elif what == 4:
            rows[:] = [(person, float(rng.normal(50, 10))) for person, _ in rows]
        else:
            rows += rows[: int(rng.integers(1, 10))]

    def step(self) -> None:
        """The file changes, perhaps the site is started again, a round is asked and answered, or not."""
        federation, rng = self.federation, self.rng
        for _ in range(int(rng.integers(1, 4))):
            self.edit()
        if rng.random() < 0.25:
            federation.start("north")
        asked = federation.open_round()
        if not asked:
            return
        self.answer(asked)
        federation.now += federation.study.deadline
        if rng.random() < 0.3:
            federation.start("north")  # killed after the commit: it has sent nothing
            federation.now += federation.study.deadline
        payload = self.answer(asked)
        self.ask_again(asked)
        self.asked.append(asked)
        if payload is None or rng.random() < 0.2:  # nobody came, or the answer is lost: the same is asked again
            assert payload == self.answer(asked)
            return
        assert federation.core.take("north", payload).outcome == "counted"
        federation.close_round()

    def answer(self, asked: bytes) -> bytes | None:
        payload = self.federation.answer("north", asked)
        if payload is not None:
            message = read_message(payload, self.federation.sites["north"].key().public.signer, 4096)
            assert isinstance(message, RoundAnswers)
            (count,) = message.counts
            assert isinstance(count.length, int)
            assert self.lengths.setdefault(message.round, count.length) == count.length
            self.seen |= {person for person, _ in self.federation.rows["north"]}
        return payload

    def ask_again(self, asked: bytes) -> None:
        """Questions that a coordinator must not ask get the stored answer or none."""
        key = self.federation.directory.key()
        message = read_message(asked, key.public.signer, 1 << 20)
        assert isinstance(message, RoundQuestions)
        (ask,) = message.asks
        moved = msgspec.structs.replace(ask, query=ask.query / 2.0 + 1.0)
        other = RoundQuestions(message.study, message.run, message.round, (moved,))
        if message.round in self.lengths:
            assert self.federation.answer("north", other.pack(key)) is None
        if self.asked:
            self.answer(self.asked[int(self.rng.integers(len(self.asked)))])

    def check(self) -> None:
        """The ledger beside the model."""
        ledger = self.federation.services["north"].core.responder.ledger
        everybody = [f"p{k}" for k in range(150)]
        hashes = PersonKey.open(default_person_key()).hash([person.encode() for person in everybody])
        spent = dict(zip(everybody, ledger.lifetime_budgets.spent(hashes), strict=True))
        assert set(spent.values()) <= {0.0, self.epsilon}, "somebody has answered twice"
        answered = {person for person, epsilon in spent.items() if epsilon}
        assert answered <= self.seen
        assert len(answered) == sum(self.lengths.values()) <= 120


def live(folder: Path, seed: int) -> int:
    life = Life(folder, seed)
    for _ in range(STEPS):
        life.step()
        life.check()
    life.federation.run_.store.close()
    return sum(life.lengths.values())


def test_no_life_of_a_site_lets_anybody_answer_twice(tmp_path: Path) -> None:
    answered = [live(tmp_path / str(seed), seed) for seed in range(LIVES)]
    print(f"{LIVES} lives, {sum(answered):,} answers")
    assert sum(answered) > 50 * LIVES  # otherwise little was tried


def test_the_model_finds_a_site_that_forgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Account, "may_answer", lambda self, people: np.ones(len(people), dtype=bool))
    with pytest.raises(AssertionError, match="twice"):
        live(tmp_path, 0)
