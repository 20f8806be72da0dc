"""The same people with and without a person column: what they spend for life is added up over both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privatile.client.ledger.account import SpendingRules
from privatile.client.ledger.datasets import statement
from privatile.client.ledger.integrity import PersonKey
from privatile.client.ledger.ledger import Ledger
from privatile.client.ledger.restore import mark_restored
from privatile.client.order.shuffle import shuffle
from privatile.client.randomizer import OperatingSystemCoins
from privatile.client.responder import Responder
from privatile.client.sources.databases import open_source
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Question
from privatile.errors import AlreadyAnswered, PrivatileError

KINDS: Any = [("salary", float), ("bonus", float), ("third", float), ("fourth", float), ("who", "U9")]
DATA = np.array([(float(k), 100.0 + k, 200.0 + k, 300.0 + k, f"p{k}") for k in range(20)], dtype=KINDS)
TWO = SpendingRules(spend_again=True, max_epsilon=2)


def run(ledger: Ledger, column: str, by_name: bool, rules: SpendingRules = TWO) -> None:
    """Everybody answers once with epsilon 1, or the run is refused."""
    name = f"run {ledger.position.sequence}"
    source = open_source(DATA, value=column, person="who" if by_name else None)
    own = shuffle(source, ledger, person_key=PersonKey(b"p" * 32) if by_name else None)["all"]
    site = Responder(name, own, RandomizedResponse.from_epsilon(1.0), ledger, OperatingSystemCoins(), rules=rules)
    site.answer(Question(run=name, round=1, level=0.5, query=10.0, length=20))


ORDERS = {
    "salary and bonus by name, then salary nameless": [("salary", True), ("bonus", True), ("salary", False)],
    "salary nameless, then salary and bonus by name": [("salary", False), ("salary", True), ("bonus", True)],
    "bonus both ways, then salary by name": [("bonus", True), ("bonus", False), ("salary", True)],
    "both nameless, then salary by name": [("salary", False), ("bonus", False), ("salary", True)],
    "both nameless, then a third by name": [("salary", False), ("bonus", False), ("third", True)],
    "two by name, then a third nameless": [("salary", True), ("bonus", True), ("third", False)],
    "all nameless": [("salary", False), ("bonus", False), ("third", False)],
}


@pytest.mark.parametrize("order", ORDERS)
def test_no_order_of_named_and_nameless_runs_exceeds_the_limit(order: str) -> None:
    """Before, the last run of each was answered, and the ledger's own statement said 3 of 2."""
    ledger = Ledger.in_memory()
    *first, last = ORDERS[order]
    for column, by_name in first:
        run(ledger, column, by_name)
    with pytest.raises(AlreadyAnswered):
        run(ledger, *last)
    run(ledger, *last, rules=SpendingRules(spend_again=True, max_epsilon=len(ORDERS[order])))  # the control
    told = statement(ledger)
    assert told.person_epsilon + told.nameless_epsilon == pytest.approx(len(ORDERS[order]))


def test_the_price_of_a_nameless_run_names_all_that_its_people_have_spent() -> None:
    ledger = Ledger.in_memory()
    run(ledger, "salary", True, SpendingRules())
    run(ledger, "bonus", True, SpendingRules(spend_again=True))
    with pytest.raises(AlreadyAnswered, match="Up to epsilon 2 each is spent; another run over them would make it 3"):
        run(ledger, "salary", False, SpendingRules())
    run(ledger, "salary", False, SpendingRules(spend_again=True))
    with pytest.raises(AlreadyAnswered, match="would spend 1 on top of 3 already spent or reserved"):
        run(ledger, "bonus", True, SpendingRules(spend_again=True, max_epsilon=3))


def test_without_a_limit_nameless_columns_stay_apart() -> None:
    """The control: nothing shows that they hold the same people, and nothing more is refused than before."""
    ledger = Ledger.in_memory()
    run(ledger, "salary", False, SpendingRules())
    run(ledger, "bonus", False, SpendingRules())
    run(ledger, "third", True, SpendingRules())
    assert [line.epsilon for line in statement(ledger).datasets] == pytest.approx([1, 1, 1])


def test_people_of_a_ledger_that_was_restored_have_spent_nobody_knows_what() -> None:
    ledger = Ledger.in_memory()
    run(ledger, "salary", True, SpendingRules())
    mark_restored(ledger)
    for by_name in (True, False):
        with pytest.raises(PrivatileError):
            run(ledger, "salary", by_name)
    run(ledger, "salary", True, SpendingRules(spend_again=True))  # the control: accepted whatever they have spent
