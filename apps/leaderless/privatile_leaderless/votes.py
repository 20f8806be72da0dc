"""Decisions of this organization's people, on their way to the log: one file each, until its vote is read there."""

import contextlib
import logging
from collections.abc import Mapping
from pathlib import Path

from privatile.errors import InputError
from privatile.federation.monitoring import facts
from privatile.records.keys import PublicKeys
from privatile.run.files import read_json, write_json
from privatile_leaderless.entries import Decision
from privatile_leaderless.history import Quarantine

log = logging.getLogger("privatile.leaderless")


class VoteBox:
    """The folder of votes that were not yet seen in the log. A file survives a crash of either side."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, decision: Decision) -> None:
        """Have the running peer vote, or the next one that runs."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json(self._file(decision), decision)

    def pending(self) -> list[Decision]:
        """Votes that are still to be cast."""
        found = []
        for path in sorted(self._folder.glob("*.json")):
            try:
                found.append(read_json(path, Decision, "a vote"))
            except InputError as error:
                # One that is damaged must not keep the others back: it is moved out of the way, and people are told.
                log.warning("a vote cannot be read; vote again", extra=facts(reason=str(error)))
                with contextlib.suppress(OSError):
                    path.replace(path.with_suffix(".damaged"))
        return found

    def done(self, decision: Decision) -> None:
        """The vote is in the log, or there is nothing to decide any more."""
        self._file(decision).unlink(missing_ok=True)

    def _file(self, decision: Decision) -> Path:
        return self._folder / f"{decision.digest[:16]}.json"


def completed(
    decision: Decision, quarantined: Mapping[str, Quarantine], keys: Mapping[str, PublicKeys]
) -> Decision | None:
    """The decision with what only the log knows: the round of an offence, the key to be replaced.

    None where there is nothing to decide: the peer is not in quarantine, or has that key.
    """
    client = decision.client or ""
    if decision.action == "readmit":
        return Decision("readmit", client, quarantined[client].round) if client in quarantined else None
    if decision.action == "key":
        if client not in keys or keys[client] == decision.keys:
            return None
        return Decision("key", client, None, keys[client].signer, decision.keys)
    return decision
