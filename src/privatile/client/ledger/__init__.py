"""What has been spent: one SQLite file per site, durable before any answer leaves, and the rules for new answers."""

from privatile.client.ledger.account import Account, SpendingRules, release_run
from privatile.client.ledger.datasets import Content
from privatile.client.ledger.integrity import PersonKey

# `statement` is not exported: the function would hide the module of the same name.
from privatile.client.ledger.ledger import Ledger
from privatile.client.ledger.restore import mark_restored

__all__ = [
    "Account",
    "Content",
    "Ledger",
    "PersonKey",
    "SpendingRules",
    "mark_restored",
    "release_run",
]
