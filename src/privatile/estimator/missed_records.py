"""What becomes of the records of a round that a client missed.

The coordinator knows only that no answer came. Where the client has drawn no coin, its records have not answered and
may be asked later. Where it has, and the answer was lost on the way or came late, they are spent. So records of missed
rounds count as spent, until the client's own ledger shows, with its next answer, that no coin was drawn for them.
"""

from typing import NamedTuple


class Records(NamedTuple):
    """One client's records, as the coordinator counts them."""

    left: int
    """Those that may still be asked."""
    missed: int = 0
    """Those asked in the rounds that the client has missed since its last answer."""

    def after(self, length: int, *, answered: bool, unspent: bool = False) -> "Records":
        """After a round that asked `length` of them.

        `unspent`: the client's ledger shows that no coin was drawn in the rounds that it has missed before this answer.

        >>> records = Records(100).after(10, answered=True).after(10, answered=False).after(10, answered=False)
        >>> records
        Records(left=70, missed=20)
        >>> records.after(10, answered=True), records.after(10, answered=True, unspent=True)
        (Records(left=60, missed=0), Records(left=80, missed=0))
        """
        if not answered:
            return Records(self.left - length, self.missed + length)
        return Records(self.left - length + (self.missed if unspent else 0))
