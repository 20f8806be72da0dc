"""The release record of a run: its transcript, how it is made, its bytes, its signatures.

What a run's file says was asked of every client, and answered: the transcript.

Compares the result in a record with the result that its counts give.

    settings   what study and counts fix: rounds, records, budgets, levels, weights, what is declared about the values
    figures    every other number: estimate, both intervals, the values of a declared grid that are left, the anytime
               interval, density, diagnostics, ranks of the clients
    words      estimand, method, conditions of the intervals, what is contradicted, caveats and what
               follows from them, date, explanation

Settings and figures must agree whichever version of privatile made the record, figures of another version within
`OTHER_BUILD`. Words must agree only if this program
made it: another version may use other words, and only that version can tell its own words from altered ones, so their
difference is shown and not judged. So is a figure that only one of the two programs knows.

The release record of a run: how it is made, its bytes, its signatures.
"""

import base64
import binascii
import contextlib
import hashlib
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from privatile import __version__
from privatile.core.messages import LARGEST_REAL, Question
from privatile.core.scale import LAST_BITS
from privatile.core.text import short
from privatile.errors import InputError, StoreError
from privatile.federation.coordinator.journal import Journal
from privatile.federation.setup.folder import Directory
from privatile.federation.study import FederationStudy
from privatile.records.keys import KeyPair, PublicKeys, verify
from privatile.result.result import QuantileResult
from privatile.run.coordinator import Coordinator, has_interval, stored_questions
from privatile.run.files import read_json, replace_file
from privatile.run.run_file import RunStore
from privatile.run.state import is_aborted
from privatile.run.tables import program


class Exchange(NamedTuple):
    """What one client was asked in one round, per level as it was sent, and its counts."""

    questions: tuple[Question, ...]
    ones: tuple[int | None, ...]
    unspent: bool = False
    """Whether records of rounds that the client had missed before were counted as not asked."""

    @property
    def is_silent(self) -> bool:
        """Whether no count of this client entered the round."""
        return all(count is None for count in self.ones)


Exchanges = dict[tuple[int, str], Exchange]
"""Exchanges by round and client."""


def exchanges(store: RunStore) -> Exchanges:
    """All exchanges, by round and client."""
    names = [client.name for client in store.spec.clients]
    found: Exchanges = {}
    for stored, questions in stored_questions(store):
        for k, (name, question, ones) in enumerate(zip(names, questions, stored.ones, strict=True)):
            before = found.get((stored.round, name), Exchange((), ()))
            unspent = before.unspent or k in stored.unspent
            found[stored.round, name] = Exchange((*before.questions, question), (*before.ones, ones), unspent)
    return found


SAME = 1e-9
"""Share of its size that a number recomputed on another machine, whose functions round otherwise, may differ by."""

OTHER_BUILD = 1e-3
"""The same where another build made the record: it may have fitted otherwise. A forger gains nothing from so little."""

WORDS = (
    "caveats", "condition", "contradiction", "date", "estimand", "explanation", "method", "reliable",
)  # fmt: skip
SETTINGS = (
    "rounds", "records", "level", "confidence_level", "epsilon", "run", "target", "design", "mode", "simulated",
    "value_kind", "column", "range", "scale", "simultaneous",
)  # fmt: skip
CLIENT_SETTINGS = ("name", "records", "asked", "epsilon", "truth_rate", "weight", "level")
IN_UNITS = ("estimate", "confidence_interval", "anytime_interval")
"""Figures in units of the data: their size is the standard error. A median of 1e-12 may be as wrong as one of 1e12."""


OTHER, ENDS = "other_interval", ("low", "high")


def recorded_facts(result: QuantileResult) -> dict[str, Any]:
    """The facts of a result that a record holds: all but its sentence, which rounds numbers that are there.

    Rounded outward, a number that differs in its last bit on another machine may be another text.
    """
    return {key: value for key, value in result.facts().items() if key != "sentence"}


def same(recorded: object, recomputed: object, size: float | None = None, share: float = SAME) -> bool:
    """Whether two JSON values are the same, their real numbers within `share` of `size` and `LAST_BITS` roundings.

    Without a size it is the number itself, and at least 1.

    >>> same({"a": [1, 0.1 + 0.2]}, {"a": [1, 0.3]}), same({"a": 1}, {"a": 2}), same([1], [1, 1]), same("1", 1)
    (True, False, False, False)
    >>> same(5.0 + 1e-12, 5.0, 0.1), same(5.0 + 1e-9, 5.0, 0.1), same(2e-12, 1e-12, 1e-12), same(10**400, 0.5)
    (True, False, False, False)
    """
    one, two = recorded, recomputed
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key], size, share) for key in two)
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(same(*pair, size, share) for pair in zip(one, two, strict=True))
    real = {type(one), type(two)} in ({float}, {float, int})
    if real and isinstance(one, int | float) and isinstance(two, int | float):
        # A whole number beyond the largest double is written by nobody but a forger, and has no double to compare.
        if max(abs(one), abs(two)) > LARGEST_REAL:
            return False
        # Written so that NaN is not the same as anything.
        return abs(one - two) <= share * (max(1.0, abs(two)) if size is None else size) + LAST_BITS * math.ulp(two)
    return type(one) is type(two) and one == two


class Differences(NamedTuple):
    """What differs between the result in a record and the one from here, by name."""

    settings: list[str]
    figures: list[str]
    words: list[str]
    one_sided: list[str]
    """Known to one of the two programs only."""


def differences(recorded: dict[str, Any], recomputed: dict[str, Any], error: float, share: float = SAME) -> Differences:
    """Compare two results as plain JSON: the record's, and the one from here with its standard error.

    `share` is how far figures may differ; settings must be the same.
    """
    fixed = {*SETTINGS, *WORDS, "clients"}
    found = Differences(
        [key for key in SETTINGS if not same(recorded.get(key), recomputed[key])],
        [],
        [key for key in WORDS if not same(recorded.get(key), recomputed[key])],
        sorted((recorded.keys() ^ recomputed.keys()) - fixed),
    )
    if not same(_words_of(recorded.get(OTHER)), _words_of(recomputed[OTHER])):
        found.words.append("words of the other interval")
    for key in sorted((recorded.keys() & recomputed.keys()) - fixed):
        if not _same_figure(key, recorded[key], recomputed[key], error, share):
            found.figures.append(key)
    _compare_clients(found, recorded.get("clients"), recomputed["clients"], share)
    return found


def _words_of(other: object) -> dict[str, Any] | None:
    """What a record says about its other interval, beside its ends."""
    return {key: value for key, value in other.items() if key not in ENDS} if isinstance(other, dict) else None


def _same_figure(key: str, recorded: object, recomputed: object, error: float, share: float) -> bool:
    if key == "grid_values":
        # Multiples of the declared step: no machine computes them otherwise, and the next one is another value.
        return same(recorded, recomputed, 0.0)
    if key == OTHER and isinstance(recorded, dict) and isinstance(recomputed, dict):
        return all(end in recorded and same(recorded[end], recomputed[end], error, share) for end in ENDS)
    if key == "series" and isinstance(recorded, list) and isinstance(recomputed, list):
        pairs = zip(recorded, recomputed, strict=False)
        return len(recorded) == len(recomputed) and all(_same_week(*pair, share) for pair in pairs)
    if key == "density" and isinstance(recorded, dict) and isinstance(recomputed, dict):
        # Per unit of the data: it may be of any size.
        density = recomputed["estimate"]
        return same(recorded, recomputed, share=share) and same(recorded["estimate"], density, abs(density), share)
    return same(recorded, recomputed, error if key in IN_UNITS else None, share)


def _same_week(recorded: object, recomputed: dict[str, Any], share: float) -> bool:
    """Whether two weeks of a series are the same: what is in units of the data within a share of the week's width.

    Numbers of answers are counts: no machine computes them otherwise.

    >>> week = {"week": "2025-W01", "answers": 90, "estimate": 1e-4, "interval": [5e-5, 2e-4]}
    >>> [_same_week({**week, **told}, week, 1e-3) for told in ({}, {"estimate": 1.001e-4}, {"estimate": 2e-4})]
    [True, True, False]
    >>> _same_week({**week, "answers": 90.5}, week, 1e-3), _same_week({"week": "2025-W01"}, week, 1e-3)
    (False, False)
    """
    if not isinstance(recorded, dict) or recorded.keys() != recomputed.keys():
        return False
    low, high = recomputed["interval"] or (0.0, 0.0)
    in_units = ("estimate", "interval")
    return all(
        same(recorded[key], mine, high - low if key in in_units else 0.0, share) for key, mine in recomputed.items()
    )


def _compare_clients(found: Differences, recorded: object, recomputed: list[dict[str, Any]], share: float) -> None:
    """Add what differs in the entries of the clients."""
    entries = recorded if isinstance(recorded, list) and all(isinstance(one, dict) for one in recorded) else []
    if len(entries) != len(recomputed):
        found.settings.append("clients")
        return
    pairs = list(zip(entries, recomputed, strict=True))
    if not all(same(one.get(key), two[key]) for one, two in pairs for key in CLIENT_SETTINGS):
        found.settings.append("clients")
    if not all(
        same(one[key], two[key], share=share)
        for one, two in pairs
        for key in (one.keys() & two.keys()) - {*CLIENT_SETTINGS}
    ):
        found.figures.append("ranks of the clients")
    found.one_sided.extend(sorted({f"{key} of the clients" for one, two in pairs for key in one.keys() ^ two.keys()}))


FORMAT = 3
"""3: two intervals, and what is declared about the values."""

SOFTWARE = f"privatile {__version__}"


def canonical(body: object) -> bytes:
    """The bytes that are signed: JSON, keys sorted, no blanks."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode()


def sign(body: object, key: KeyPair) -> str:
    """A signature of a body, in base64."""
    return base64.b64encode(key.sign(canonical(body))).decode()


def is_signed(content: bytes, signer: object, signature: object) -> bool:
    """Whether a base64 signature, which may be anything, is the signer's over these bytes."""
    try:
        return verify(str(signer), content, base64.b64decode(str(signature), validate=True))
    except (binascii.Error, ValueError):
        return False


def write_record(record: dict[str, Any], path: Path) -> None:
    """Write a record, all or nothing."""
    replace_file(path, json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_record(path: Path) -> dict[str, Any]:
    """Read a record; only its form is checked here."""
    what = "a release record of this version of privatile"
    record = read_json(path, dict[str, dict[str, Any]], what)
    form = set(record) == {"body", "signatures"} and isinstance(record["signatures"].get("clients"), dict)
    found = record["body"].get("privatile_release") if form else None
    if type(found) is int and found != FORMAT:
        raise InputError(
            f"{path}: is a release record of format {short(found)}; this privatile reads format {FORMAT}. Read it with "
            "the one that made it."
        )
    if found != FORMAT:
        raise InputError(f"{path}: is not {what}.")
    return record


def release(directory: Directory, *, unfinished: bool = False) -> dict[str, Any]:
    """The signed record of a folder's run."""
    with released_file(directory) as store:
        journal, coordinator = Journal(store), Coordinator(store)
        study = directory.study()
        if store.finished is None and not unfinished:
            rounds = f"{coordinator.done} of {coordinator.planned} rounds" if coordinator.planned else "it is open"
            state = "was aborted" if is_aborted(store) else "is not finished"
            raise InputError(
                f"the run {state}: {rounds}. To release it as it is, with that said in the record, use --unfinished."
            )
        if study.is_open and not has_interval(coordinator.tracks):
            raise InputError("the run has no interval yet, and so nothing to release: too few have answered.")
        key = directory.key()
        body = {
            **run_facts(study, store, coordinator.results()),
            "transcript": {
                "rounds": coordinator.done,
                "digest": transcript_digest(store),
                "until": max([ended(store), *(event.at for event in journal.events())]),
            },
            "coordinator": msgspec.to_builtins(key.public),
            "clients": _client_keys(study, store, directory),
            "events": events(journal),
        }
        if study.is_open:
            body["ended_by"] = store.why_ended
    return {"body": body, "signatures": {"coordinator": sign(body, key), "clients": {}}}


@contextlib.contextmanager
def released_file(directory: Directory) -> Iterator[RunStore]:
    """The run's file of a folder, as it stands; refused where it is not a run of the folder's study."""
    if not directory.store_file.exists():
        raise StoreError(f"{directory.store_file}: the run has not begun; there is nothing to release.")
    with RunStore.frozen(directory.store_file) as store:
        if Journal(store).study_digest != directory.study().digest:
            raise StoreError(f"{directory.store_file} holds a run of another version of the study.")
        yield store


def run_facts(study: FederationStudy, store: RunStore, results: Iterable[QuantileResult]) -> dict[str, Any]:
    """What every record of a federation says of its run."""
    return {
        "privatile_release": FORMAT,
        "software": SOFTWARE,
        "program": program(),
        "study": study.to_dict(),
        "study_hash": study.digest,
        "run": store.run,
        "finished": store.finished is not None,
        "results": [recorded_facts(result) for result in results],
        "spent": spent(study, store),
    }


def transcript_digest(store: RunStore) -> str:
    """SHA-256 over every round: what was asked, every count, every signature."""
    digest = hashlib.sha256()
    for stored in store.all_rounds():
        digest.update(canonical([stored.level_index, stored.round, stored.ask, stored.ones, stored.unspent]) + b"\n")
    for row in store.query(
        "SELECT round, client, sequence, hash, signer, signature FROM evidence ORDER BY round, client"
    ):
        digest.update(canonical(row) + b"\n")
    return digest.hexdigest()


def spent(study: FederationStudy, store: RunStore) -> dict[str, Any]:
    """What every client has spent, by the counts."""
    totals = store.client_totals()
    return {
        name: {
            "epsilon": agreement.mechanism.epsilon,
            "records": totals[name].answered,
            "silent_rounds": totals[name].silent,
        }
        for name, agreement in study.clients.items()
    }


def ended(store: RunStore) -> float:
    """When the last round was written, or the run was finished: no record of all its rounds is from before."""
    ((last,),) = store.query("SELECT max(at) FROM rounds")
    return max(store.created, store.finished or 0.0, last or 0.0)


def events(journal: Journal) -> list[list[Any]]:
    """What happened in the run, without times and texts."""
    return [[event.kind, event.client, event.round] for event in journal.events()]


class ClientKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of one client: the one it has now, and those before it."""

    current: PublicKeys | None
    """May countersign; None where it was revoked and no other admitted."""
    replaced: list[PublicKeys]
    """Keys that signed counts while they were current. They may have been stolen: they countersign nothing."""


def _client_keys(study: FederationStudy, store: RunStore, directory: Directory) -> dict[str, Any]:
    """The key that every client has now, and the older ones that signed its counts."""
    roster = directory.roster()
    used = set(store.query("SELECT DISTINCT client, signer FROM evidence"))
    found = {
        client: ClientKeys(
            roster.clients.get(client),
            [old.keys for old in roster.revoked if old.client == client and (client, old.keys.signer) in used],
        )
        for client in sorted(study.clients)
    }
    plain: dict[str, Any] = msgspec.to_builtins(found)
    return plain
