"""What must hold so that a record answers once, privately: coins, mechanism, responder, order, ledger."""

from dataclasses import replace
from typing import Any

from tests.named_faults import Seams, fault

RESPONDER = "privatile.client.responder:Responder"


@fault("tests/client/test_accounts.py::test_the_same_question_gets_the_stored_count")
def a_question_that_is_repeated_gets_another_count(seams: Seams) -> None:
    """As if coins were drawn again."""
    answered = set()

    def again(found: Any, responder: Any, question: Any) -> Any:
        asked = (id(responder.ledger), question)
        if asked in answered:
            return replace(found, ones=found.ones ^ 1)
        answered.add(asked)
        return found

    seams.change(f"{RESPONDER}._respond", again)
