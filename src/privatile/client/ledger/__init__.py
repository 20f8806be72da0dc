"""What has been spent: one SQLite file per site, durable before any answer leaves, and the rules for new answers."""

from privatile.client.ledger.accounts import Account
from privatile.client.ledger.datasets import Content
from privatile.client.ledger.keys import PersonKey
from privatile.client.ledger.ledger import Ledger, Position
from privatile.client.ledger.reservations import release_run
from privatile.client.ledger.restores import mark_restored
from privatile.client.ledger.spending_rules import SpendingRules

# `statement` is not exported: the function would hide the module of the same name.
from privatile.client.ledger.stored_answers import Stored

__all__ = [
    "Account",
    "Content",
    "Ledger",
    "PersonKey",
    "Position",
    "SpendingRules",
    "Stored",
    "mark_restored",
    "release_run",
]
