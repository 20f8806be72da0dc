"""What shows an older copy of a ledger lies beside its key (`client.ledger.integrity`); backups may hold it."""

from __future__ import annotations

from privatile.core.private_files import key_folder


def forget_marks() -> None:
    """As if keys and ledger had come from the same backup: what else finds an older copy must find it alone."""
    for mark in key_folder().glob("*.mark"):
        mark.unlink()
