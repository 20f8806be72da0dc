"""What must hold so that a record answers once, privately: coins, mechanism, responder, order, ledger."""

from collections.abc import Callable
from typing import Any

from tests.named_faults import Seams, fault

ACCOUNT = "privatile.client.ledger.accounts:Account"


@fault("tests/client/test_accounts.py::test_the_same_question_gets_the_stored_count")
def a_question_that_is_repeated_gets_another_count(seams: Seams) -> None:
    """As if coins were drawn again."""

    def make(original: Callable[..., Any], hit: Callable[[], None]) -> Callable[..., Any]:
        def replay(self: Any, question: Any) -> Any:
            found = original(self, question)
            if not hasattr(found, "ones"):
                return found
            hit()
            return found._replace(ones=found.ones ^ 1)

        return replay

    seams.replace(f"{ACCOUNT}.replay", make)
