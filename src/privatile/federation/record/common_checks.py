"""Checks that the records of federations and of web surveys share: study, signature, the run's file, the results.

A body may hold anything: it was written by somebody else. Only the form that `read_record` checks is relied on.
"""

import contextlib
import json
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from privatile.core.words import moment
from privatile.errors import InputError, PrivatileError, StoreError
from privatile.estimator.spec import RunSpec
from privatile.federation.record.checks import Checks
from privatile.federation.record.comparison import OTHER, OTHER_BUILD, SAME, differences, recorded_facts
from privatile.federation.record.document import SOFTWARE, ClientKeys, canonical, is_signed, transcript_digest
from privatile.federation.wire.keys import PublicKeys
from privatile.result.result import QuantileResult
from privatile.server.coordinator import Coordinator
from privatile.server.program import program
from privatile.server.run_file import RunStore

CLOCKS_DIFFER = 3600.0
"""Seconds by which the clocks of whoever made a record and of whoever verifies it may differ."""


class Named(Protocol):
    """A study, as far as a record names it."""

    @property
    def digest(self) -> str:
        """The hash of the study."""

    @property
    def run(self) -> str:
        """The name of its one run."""


def part(body: dict[str, Any], key: str) -> dict[str, Any]:
    """A table inside a body; empty where it is none."""
    found = body.get(key)
    return found if isinstance(found, dict) else {}


def named_keys(body: dict[str, Any], client: str) -> ClientKeys:
    """The keys that a record names for a client; none where it names them in another form."""
    try:
        return msgspec.convert(part(body, "clients").get(client), ClientKeys)
    except (InputError, msgspec.ValidationError):
        return ClientKeys(None, [])


def check_study(checks: Checks, body: dict[str, Any], study: Named) -> None:
    """Check that a record names its study."""
    checks.add("the study's hash is that of the study", body.get("study_hash") == study.digest)
    checks.add("the run is the study's", body.get("run") == study.run)


def check_study_and_signature(checks: Checks, record: dict[str, Any], study: Named, signer: str) -> None:
    """Check that a record names its study and is signed by the key in it; `signer` says whose that is."""
    body = record["body"]
    check_study(checks, body, study)
    try:
        keys = msgspec.convert(body.get(signer), PublicKeys)
        signed = is_signed(canonical(body), keys.signer, record["signatures"].get("coordinator"))
        checks.add(f"the {signer} has signed it (key {keys.fingerprint})", signed)
    except (InputError, msgspec.ValidationError) as error:
        checks.add(f"the {signer} has signed it", False, str(error))


def check_end(checks: Checks, body: dict[str, Any], spec: RunSpec, signer: str) -> None:
    """Check that a record's end has come, and that of an open-ended run also against what the study had fixed.

    `signer` says whose clock the run's file has its times from.
    """
    until = part(body, "transcript").get("until")
    at = until if isinstance(until, int | float) else math.inf
    checks.add(
        "its end is not in the future",
        at <= time.time() + CLOCKS_DIFFER,
        "it names no time, or one that this computer's clock has not reached",
    )
    if spec.design == "open":
        _check_open_end(checks, body, spec, at)
        checks.not_checked.append(
            f"when rounds closed: their times rest on the word of the {signer} alone, and with them the weeks of the "
            "series and the date of a change alarm"
        )


def _check_open_end(checks: Checks, body: dict[str, Any], spec: RunSpec, at: float) -> None:
    """An end that was fixed must stand in the study, and be reached; at any other the intervals are anytime ones.

    The rule of `Track.at_fixed_end` in `server.coordinator`, by what the record says of itself.
    """
    told = body.get("results")
    results = [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []
    date, number = (None, None) if spec.end is None else (spec.end.seconds, spec.end.answers)
    came = [one.get("records") for one in results]
    on_date = date is not None and at >= date
    enough = number is not None and bool(came) and all(type(one) is int and one >= number for one in came)
    by, finished = body.get("ended_by"), body.get("finished") is True
    allowed = {"command": True, "width": spec.until_width is not None, "date": on_date, "answers": enough}
    checks.add(
        "it ended as its study says, or by command",
        allowed.get(by, False) if finished and isinstance(by, str) else not finished and by is None,
        f"it says {by!r:.40}; the study has no such end, or it was not reached",
    )
    if finished and (enough or (on_date and by == "date")):
        checks.not_checked.append(
            "that the study, and with it the end, was public before the first answer: compare its hash with the one "
            "that people were shown"
        )
        return
    shown = [one.get("method") for result in results for one in (result, part(result, "other_interval"))]
    checks.add(
        "its intervals hold at an end that somebody chose",
        "smooth" not in shown,
        "an interval for a fixed end is among them, and no end of the study was reached",
    )


@contextlib.contextmanager
def run_of_record(
    checks: Checks, body: dict[str, Any], study: Named, spec_digest: str, path: Path
) -> Iterator[RunStore | None]:
    """The run's file that a record is checked against; none where it cannot be read or is of another study."""
    with contextlib.ExitStack() as opened:
        store = None
        try:
            store = opened.enter_context(RunStore.frozen(path))
        except StoreError as error:
            checks.add("the run's file can be read", False, str(error))
        if store is not None:
            same = store.run == study.run and store.spec.digest == spec_digest
            if not checks.add("the run's file is of this study", same) or _lacks_rounds(checks, body, store):
                store = None
            else:
                digest = part(body, "transcript").get("digest")
                checks.add("the run's file is the one the record names", transcript_digest(store) == digest)
        yield store


def rounds_held(body: dict[str, Any], store: RunStore) -> tuple[int, int]:
    """How many rounds a run's file has, and how many a record says (0 where that is no number)."""
    told = part(body, "transcript").get("rounds")
    ((held,),) = store.query("SELECT count(DISTINCT round) FROM rounds")
    return held, told if isinstance(told, int) else 0


def _lacks_rounds(checks: Checks, body: dict[str, Any], store: RunStore) -> bool:
    """Whether a run's file ends before its record does: then nothing else of it can be the record's."""
    held, told = rounds_held(body, store)
    if held >= told:
        return False
    why = (
        f"it has {held:,} of {told:,}: an older copy, or one of the file alone that was made while a program had it "
        "open. `privatile federation backup DIR NEW` makes complete copies"
    )
    return not checks.add("the run's file has all rounds of the record", False, why)


class Recomputed(NamedTuple):
    """A run as its counts replay it."""

    coordinator: Coordinator
    results: tuple[QuantileResult, ...]


def check_recomputed(checks: Checks, body: dict[str, Any], store: RunStore, *, dated: bool = True) -> Recomputed | None:
    """Compare a record's results with those that the counts give; none where the counts do not replay.

    A record that is not `dated` has no date: every signer's clock says another.
    """
    try:
        coordinator = Coordinator(store)
        results = coordinator.results()
    except PrivatileError as error:
        checks.add("the counts replay", False, str(error))
        return None
    if dated and store.spec.design == "open":
        _check_times(checks, store, coordinator)
    _check_results(checks, body, results if dated else tuple(replace(result, date=None) for result in results))
    return Recomputed(coordinator, results)


def _check_times(checks: Checks, store: RunStore, coordinator: Coordinator) -> None:
    """Check that the rounds closed one after the other, between the beginning of the run and now.

    Series and date of an alarm are made of these times. A run writes no time before the last one (`RunStore.append`).
    """
    why, latest = "", time.time() + CLOCKS_DIFFER
    for track in coordinator.tracks:
        before = store.created
        for number, at in enumerate(track.times, 1):
            if moment(at) is None:
                why = why or f"round {number:,} has no time of our calendar"
            elif at > latest:
                why = why or f"round {number:,} closed at a time that this computer's clock has not reached"
            elif at < before:
                what = "the round before it" if number > 1 else "the run was begun"
                what = "the run was begun" if at < store.created else what
                why = why or f"round {number:,} closed before {what}"
            before = at
    checks.add("its rounds closed one after the other, since the run began and not in the future", not why, why)


def _check_results(checks: Checks, body: dict[str, Any], results: tuple[QuantileResult, ...]) -> None:
    """Compare the results in a record with those that its counts give."""
    maker = "" if body.get("program") == program() else _named(body.get("software"))
    # Before a study could have several levels, a record held the one result by itself.
    told = [body["result"]] if "result" in body and "results" not in body else body.get("results")
    if not isinstance(told, list) or len(told) != len(results) or not all(isinstance(one, dict) for one in told):
        checks.add("the record has one result per level", False)
        return
    for one, result in zip(told, results, strict=True):
        _check_result(checks, one, result, f" at level {result.level:g}" if len(results) > 1 else "", maker)


def _named(software: object) -> str:
    if not isinstance(software, str) or not software.isprintable() or len(software) > 80:
        return "an unnamed program"
    return f"another build of {software}" if software == SOFTWARE else software


def _check_result(checks: Checks, told: dict[str, Any], result: QuantileResult, where: str, maker: str) -> None:
    """`maker` names the other program that made the record; empty where it was this one."""
    mine = json.loads(canonical(recorded_facts(result)))
    # Another machine rounds otherwise; where nothing is known about the error, the range is the measure.
    inference, scale = result.inference, result.scale
    error = min(inference.error_scale * scale.slope(inference.center), scale.high - scale.low)
    share = OTHER_BUILD if maker else SAME
    settings, figures, words, one_sided = differences(told, mine, error, share)
    why = f"this program's differs; check it with the one that made it, {maker}" if maker else ""
    given = f"the one the counts give, within {share:g} standard errors"
    for name, key in (("estimate", "estimate"), ("interval", "confidence_interval"), ("other interval", OTHER)):
        # A result without a second interval has none in its record either.
        if key != OTHER or mine[OTHER] is not None or told.get(OTHER) is not None:
            checks.add(f"the {name}{where} is {given}", key in told and key not in figures, why)
    if mine["grid_values"] is not None or told.get("grid_values") is not None:
        left = f"the values that the declared grid leaves{where} are those the counts give"
        checks.add(left, "grid_values" in told and "grid_values" not in figures, why)
    named = ("estimate", "confidence_interval", OTHER, "grid_values")
    others = [key for key in figures if key not in named]
    numbers = f"the anytime interval and all other figures{where} are those the counts give"
    checks.add(numbers, not others, ", ".join(others) + (f"; {why}" if why else ""))
    fixed = f"budgets, weights, levels and numbers of records{where} are those of the run"
    checks.add(fixed, not settings, ", ".join(settings))
    said = f"estimand, method, caveats and all else it says{where}"
    words = words + one_sided
    if not words or not maker:
        checks.add(f"{said} are those of the run", not words, ", ".join(words))
        return
    checks.not_checked.append(
        f"{said}: {maker} made the record, and this program says it differently: {', '.join(words)}"
    )
    if "estimand" in words:
        checks.not_checked.append(f"the estimand{where}; this program calls it: {mine['estimand']}")
    caveats = told["caveats"] if isinstance(told.get("caveats"), list) else []
    known = [caveat.get("code") for caveat in caveats if isinstance(caveat, dict)]
    checks.not_checked += [
        f"a caveat{where} that the record lacks and this program adds: {caveat['text']}"
        for caveat in mine["caveats"]
        if caveat["code"] not in known
    ]
