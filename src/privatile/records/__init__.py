"""Signed records of runs: keys, signatures, what a record of a federation or a survey holds and is checked for."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privatile.records.keys import KeyPair, PublicKeys, read_key, same_fingerprint, verify

_HOMES = {
    "KeyPair": "keys",
    "PublicKeys": "keys",
    "read_key": "keys",
    "same_fingerprint": "keys",
    "verify": "keys",
}

__all__ = ["KeyPair", "PublicKeys", "read_key", "same_fingerprint", "verify"]


def __getattr__(name: str) -> Any:
    # Imported when first used: keys need the extra `federation`.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
