"""Where files live when no path is given."""

from pathlib import Path

from privatile.client.ledger.key_files import default_person_key, user_folder


def state_folder() -> Path:
    """The folder of ledgers and unfinished runs: $XDG_STATE_HOME/privatile, or its usual place."""
    return user_folder("XDG_STATE_HOME", ".local/state")


def ledger_path() -> Path:
    """The ledger of this user."""
    return state_folder() / "ledger.db"


def person_key_path() -> Path:
    """The key that hashes people, apart from the ledger: in $XDG_CONFIG_HOME/privatile."""
    return default_person_key()
