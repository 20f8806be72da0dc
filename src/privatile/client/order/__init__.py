"""The random order in which records are asked: derived from the ledger's key, the same after every restart."""

from privatile.client.order.shuffle import Block, ShuffledColumn

# `shuffle` is not exported: the function would hide the module of the same name.
__all__ = ["Block", "ShuffledColumn"]
