"""The client side, which is the privacy boundary: records go in, counts of randomized answers come out.

`sources` reads records, `order` puts them into a secret random order, `ledger` remembers who has answered, and the
responder answers questions with coins of the operating system. Nothing here knows what the counts are used for.
"""

from privatile.client.ledger.account import SpendingRules
from privatile.client.ledger.integrity import PersonKey
from privatile.client.ledger.ledger import Ledger
from privatile.client.order.shuffle import shuffle
from privatile.client.randomizer import Coins, OperatingSystemCoins, SeededCoins
from privatile.client.responder import Responder, answer_all
from privatile.client.sources.databases import open_source
from privatile.client.sources.source import Source

__all__ = [
    "Coins",
    "Ledger",
    "OperatingSystemCoins",
    "PersonKey",
    "Responder",
    "SeededCoins",
    "Source",
    "SpendingRules",
    "answer_all",
    "open_source",
    "shuffle",
]
