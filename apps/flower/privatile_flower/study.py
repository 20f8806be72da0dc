"""What both sides read from Flower's configuration, and the record that their messages carry.

    run config (coordinator)   study, store
    node config (site)         client, study, source, value, ledger, max-epsilon

Each side has its own copy of the study file. A run's name contains the study's hash, so a coordinator with a different
study asks about a different run, and is refused. Only the site writes its node config, which says where the data is.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from privatile.errors import InputError
from privatile.federation.study import FederationStudy, load_study

RECORD = "privatile"
"""The name of a message's only record. To a client it has three lists of equal length: `clients`, `questions` (JSON)
and `given` (how many of that client's records the coordinator has counts of). Back: `client`, and `answers` (JSON), or
`refused` or `failed` with the kind of error."""

Settings = Mapping[str, Any]
"""A configuration as Flower gives it: names and plain values."""


def read_study(settings: Settings) -> FederationStudy:
    """The study whose file the configuration names; an open one is refused, since its sites read their files anew."""
    study = load_study(Path(read_text(settings, "study")))
    if study.is_open:
        raise InputError("an open study, whose records arrive over weeks, does not run over Flower: use `serve`.")
    return study


def read_text(settings: Settings, key: str) -> str:
    """A text that the configuration must have."""
    value = settings.get(key)
    if not isinstance(value, str) or not value:
        raise InputError(f"{key} must be given in Flower's configuration, as a text; got {value!r:.60}.")
    return value
