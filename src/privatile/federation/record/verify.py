"""Checking a release record: signatures, and with the run's file everything that follows from the counts.

The list of checks of a record: what holds, what fails, what a reader should know, what could not be checked.

Who was silent in a run, by its counts, and whether its coordinator kept the study's rules about that.

Records of missed rounds are asked later only where the links that the client has signed before and after them show that
its ledger wrote nothing in between.

A coordinator goes on without a silent client for at most `patience` rounds in a row; then it has to wait
(`coordinator.round_rules`). Otherwise it could call a client silent whenever it dislikes the count, for the whole run.
A round is closed at the quorum or, with fewer answers, at its deadline: the counts cannot show the deadline, so they
only show how often there were fewer. A round of an open study closes by number and time, and waits for nobody.

Checks that the records of federations and of web surveys share: study, signature, the run's file, the results.

A body may hold anything: it was written by somebody else. Only the form that `read_record` checks is relied on.

Checking a release record: its signatures and, with the run's file, everything that follows from the counts.

A body may hold anything: it was written by somebody else. Only the form that `read_record` checks is relied on.
"""

import contextlib
import itertools
import json
import math
import time
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from privatile.core.extensions import of_study
from privatile.core.messages import Answer
from privatile.core.text import counted, moment, printable
from privatile.errors import InputError, PrivatileError, StoreError
from privatile.estimator.spec import RunSpec
from privatile.federation.coordinator.journal import Journal
from privatile.federation.record.countersignature import (
    MOST_NAMED,
    Statement,
    body_digest,
    named_rounds,
    read_statement,
    statement_lines,
)
from privatile.federation.record.record import (
    OTHER,
    OTHER_BUILD,
    SAME,
    SOFTWARE,
    ClientKeys,
    Exchanges,
    canonical,
    differences,
    ended,
    events,
    exchanges,
    is_signed,
    recorded_facts,
    spent,
    transcript_digest,
)
from privatile.federation.study import FederationStudy
from privatile.federation.wire import AnswerMessage, Link, question_digest
from privatile.records.keys import PublicKeys
from privatile.result.result import QuantileResult
from privatile.run.coordinator import Coordinator
from privatile.run.run_file import RunStore
from privatile.run.tables import program


class VerificationFailed(PrivatileError):
    """A check of a record failed."""


@dataclass
class Checks:
    """What was checked and holds, what fails, what a site wants readers to know, and what could not be checked."""

    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    flagged: list[str] = field(default_factory=list)
    """Holds, and yet says something that may have changed the result."""
    not_checked: list[str] = field(default_factory=list)

    def add(self, text: str, holds: bool, why: str = "") -> bool:
        """Note a check; `why` is added where it fails."""
        (self.passed if holds else self.failed).append(text if holds or not why else f"{text}: {why}")
        return holds

    def verdict(self, *, recomputed: bool) -> str:
        """What was verified where nothing fails, in one line; `recomputed`: the run's file was given.

        >>> Checks(passed=["one", "two"], not_checked=["three"]).verdict(recomputed=True)
        "Verified: the result is what the run's counts give; 2 checks hold. Not checked: 1, see above."
        """
        what = "the result is what the run's counts give" if recomputed else "the signatures and the record's own facts"
        told = [f"Verified: {what}; {counted(len(self.passed), 'check')} hold."]
        if not recomputed:
            told.append("The result was not recomputed: give the run's file (--transcript run.db).")
        if self.flagged:
            told.append(f"Read what is flagged above ({len(self.flagged)}).")
        if self.not_checked and recomputed:
            told.append(f"Not checked: {len(self.not_checked)}, see above.")
        return " ".join(told)

    def _by_state(self) -> dict[str, list[str]]:
        """Texts by what became of them. A hostile record may be quoted in one: only what can be printed is shown."""
        kinds = {"holds": self.passed, "FAILS": self.failed, "FLAGGED": self.flagged, "not checked": self.not_checked}
        return {kind: [printable(text) for text in texts] for kind, texts in kinds.items()}

    def to_dict(self, *, recomputed: bool) -> dict[str, Any]:
        """Plain values: whether it is verified, in a sentence too, and the checks with their state.

        >>> Checks(failed=["one"]).to_dict(recomputed=True)["checks"]
        [{'state': 'fails', 'text': 'one'}]
        """
        failing = f"cannot be trusted: {len(self.failed)} of the checks fail"
        return {
            "verified": not self.failed,
            "recomputed": recomputed,
            "verdict": failing if self.failed else self.verdict(recomputed=recomputed),
            "checks": [
                {"state": state.lower(), "text": text} for state, texts in self._by_state().items() for text in texts
            ],
        }

    def to_text(self) -> str:
        """One line per check."""
        return "\n".join(f"{kind:<11}  {text}" for kind, texts in self._by_state().items() for text in texts)


"""Clients named in one line; the others are counted."""


class Silence(NamedTuple):
    """How often one client was silent."""

    client: str
    rounds: int
    longest: int
    """Rounds in a row."""


def silence_of(client: str, answered: list[bool]) -> Silence:
    """Count the rounds without an answer.

    >>> silence_of("south", [True, False, False, True, False])
    Silence(client='south', rounds=3, longest=2)
    """
    longest = in_a_row = 0
    for here in answered:
        in_a_row = 0 if here else in_a_row + 1
        longest = max(longest, in_a_row)
    return Silence(client, answered.count(False), longest)


def check_unspent(checks: Checks, exchanged: Exchanges, links: Mapping[tuple[int, str], Link]) -> None:
    """Check by the signed links that no coin was drawn for what was asked again. `links` are by round and client."""
    before: dict[str, Link] = {}
    wrong = []
    for number, client in sorted(exchanged):
        exchange, link = exchanged[number, client], links.get((number, client))
        if exchange.unspent:
            last = before.get(client)
            if link is None or last is None or not link.adds_only(len(exchange.questions), last):
                wrong.append(f"{client} in round {number:,}")
        if link is not None:
            before[client] = link
    more = f" and {len(wrong) - MOST_NAMED:,} more" if len(wrong) > MOST_NAMED else ""
    checks.add(
        "records of missed rounds were asked later only where the client's ledger shows that no coin was drawn",
        not wrong,
        ", ".join(wrong[:MOST_NAMED]) + more,
    )


def flag_ledger_gaps(checks: Checks, exchanged: Exchanges, links: Mapping[tuple[int, str], Link]) -> None:
    """Flag clients whose signed links show entries of this run, between two counted answers, that no count stands for.

    A countersignature is not needed for this: whoever leaves an answer out cannot leave out its entry. An answer that
    came too late shows the same way, and so does a restored ledger.
    """
    before: dict[str, Link] = {}
    extra: Counter[str] = Counter()
    for key in sorted(exchanged.keys() & links.keys()):
        link, client = links[key], key[1]
        last, before[client] = before.get(client), link
        if last is not None:
            extra[client] += max(0, link.sequence - last.sequence - len(exchanged[key].questions))
    named = ", ".join(f"{client} ({count:,})" for client, count in sorted(extra.items()) if count)
    if named:
        checks.flagged.append(
            f"answers that were given and not counted, by entries of the clients' own ledgers: {named}. They came too "
            "late, were lost on the way or with a restored ledger, or were left out by somebody who had seen them, "
            "which would bias the result: ask these clients"
        )


def check_ledgers(
    checks: Checks, clients: Iterable[str], links: Mapping[tuple[int, str], Link], restored: Container[str]
) -> None:
    """Check that no client's ledger went back, but where its restore was declared. `links` are by round and client."""
    broken, across = [], []
    for client in clients:
        sequences = [links[key].sequence for key in sorted(links) if key[1] == client]
        if client in restored:
            across.append(client)
        elif any(later <= earlier for earlier, later in itertools.pairwise(sequences)):
            broken.append(client)
    checks.add("every client's ledger only went forward", not broken, ", ".join(broken))
    if across:
        checks.not_checked.append(f"the ledgers of {', '.join(sorted(across))} across their declared restore")


def check_silence(
    checks: Checks,
    study: FederationStudy,
    exchanged: Exchanges,
    countersigned: Container[str],
    *,
    closed_by: str = "the coordinator's word alone",
) -> None:
    """Check the counts against the study's rules, and flag the silence of clients that have not countersigned.

    A client that has countersigned tells itself which answers it gave. A count that is missing at one level is silence.
    """
    numbers = sorted({number for number, _ in exchanged})
    answered = {client: [None not in exchanged[number, client].ones for number in numbers] for client in study.clients}
    answers = [sum(here) for here in zip(*answered.values(), strict=True)]
    silent = [one for one in (silence_of(*each) for each in answered.items()) if one.rounds]
    if not study.is_open:  # there a client is silent while nobody comes
        beyond = [f"{one.client} for {one.longest:,}" for one in silent if one.longest > study.patience]
        checks.add(
            f"no client was silent for more than {counted(study.patience, 'round')} in a row, the study's patience",
            not beyond,
            ", ".join(beyond[:MOST_NAMED]),
        )
    empty = answers.count(0)
    checks.add("every round has an answer", not empty, f"without one: {empty:,}")
    untold = sorted((one for one in silent if one.client not in countersigned), key=lambda one: -one.rounds)
    if not untold:
        return
    named = "; ".join(
        f"{one.client} in {one.rounds:,} of {len(numbers):,} rounds, at most {one.longest:,} in a row"
        for one in untold[:MOST_NAMED]
    )
    more = f"; and {counted(len(untold) - MOST_NAMED, 'more client')}" if len(untold) > MOST_NAMED else ""
    few = sum(count < study.quorum for count in answers)
    why = ""  # the quorum closes a coordinator's round early
    if study.is_open:
        why = " In an open study a client is silent while nobody comes."
    elif study.extension is None:
        why = f" Rounds closed with fewer answers than the quorum of {study.quorum:,}: {few:,}."
    checks.flagged.append(
        f"silent clients, by {closed_by}: {named}{more}.{why} Answers that were left out by somebody "
        "who had seen them would bias the result; a countersignature of the client shows whether it had answered"
    )


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


Statements = dict[str, Statement]
"""What clients have signed about a record, by client."""


def verify_record(record: dict[str, Any], transcript: Path | None = None) -> Checks:
    """Check a record by itself and, given the run's file, recompute it from the counts alone."""
    checks = Checks()
    body = record["body"]
    extension = of_study(body.get("study"))
    try:
        study = FederationStudy.from_dict(body["study"])
        checks.add("the study is well formed", True)
    except (InputError, KeyError) as error:
        checks.add("the study is well formed", False, str(error))
        return checks
    if extension is not None:
        extension.verify(checks, record, study, transcript)
        return checks
    check_study_and_signature(checks, record, study, "coordinator")
    check_end(checks, body, study.spec, "coordinator")
    statements = check_countersignatures(checks, record, study)
    if transcript is None and body.get("finished") is not True:
        checks.flagged.append(
            "the run is unfinished, and the coordinator chose when to release it. Of its intervals only the anytime "
            "interval is valid at such a time; the others hold at the planned end"
        )
    with file_of_record(checks, body, study, transcript) as store:
        if store is not None:
            _check_run(checks, body, study, store, statements)
    checks.not_checked.append(
        "that the coordinator's key belongs to the people named: compare its fingerprint with them"
    )
    checks.not_checked += left_to_people(body, study)
    return checks


@contextlib.contextmanager
def file_of_record(
    checks: Checks, body: dict[str, Any], study: FederationStudy, transcript: Path | None
) -> Iterator[RunStore | None]:
    """The run's file of a federation's record; without one, or where it is not that, what cannot be checked is said."""
    if transcript is None:
        checks.not_checked += [
            "the estimate against the counts: give the run's file with --transcript",
            "the clients' signatures of questions and counts: they are in the run's file",
        ]
        yield None
        return
    with run_of_record(checks, body, study, study.spec.digest, transcript) as store:
        yield store


def _signers(body: dict[str, Any], client: str) -> set[str]:
    """The keys that may have signed a count."""
    keys = named_keys(body, client)
    return {one.signer for one in (*([keys.current] if keys.current else []), *keys.replaced)}


def left_to_people(body: dict[str, Any], study: FederationStudy) -> list[str]:
    """What no record of a federation shows: whose keys these are, and whether reports are randomized."""
    told = []
    for client in sorted(study.clients):
        keys = named_keys(body, client)
        if keys.current is not None:
            told.append(
                f"that key {keys.current.fingerprint} is that of client {client}: compare the fingerprint with them"
            )
        told += [
            f"that key {old.fingerprint} was that of client {client} before it was replaced: ask them"
            for old in keys.replaced
        ]
    return [*told, "that a client's reports are randomized as agreed: `privatile audit` measures that at the site"]


def check_countersignatures(checks: Checks, record: dict[str, Any], study: FederationStudy) -> Statements:
    """Only a client of the study may countersign, with the key it has now and a complete statement.

    Gives the statements of those that have.
    """
    body, signatures = record["body"], record["signatures"]["clients"]
    statements: Statements = {}
    strangers = sorted(set(part(body, "clients")) - set(study.clients))
    checks.add("it names keys of the study's clients only", not strangers, ", ".join(strangers))
    for client, entry in sorted(signatures.items()):
        why = _why_not_countersigned(body, study, client, entry if isinstance(entry, dict) else {})
        if checks.add(f"client {client} has countersigned it", not why, why):
            statements[client] = msgspec.convert(entry["statement"], Statement)
            checks.flagged += statement_lines(statements[client])
    missing = sorted(set(study.clients) - set(signatures))
    if missing:
        checks.not_checked.append(f"countersignatures of {', '.join(missing)}: they have not given any")
    return statements


def _why_not_countersigned(body: dict[str, Any], study: FederationStudy, client: str, entry: dict[str, Any]) -> str:
    """Why an entry is not a client's countersignature of this record; empty where it is."""
    if client not in study.clients:
        return "it is no client of the study"
    keys, signer, plain = named_keys(body, client), entry.get("signer"), entry.get("statement")
    if keys.current is None or signer != keys.current.signer:
        replaced = signer in [old.signer for old in keys.replaced]
        return "its key was replaced and may not countersign" if replaced else "its key is not the one the record names"
    statement = read_statement(plain)
    if statement is None:
        return "the statement is not complete, or of another format"
    if not is_signed(canonical(plain), signer, entry.get("signature")):
        return "the signature is not that of its key"
    if (statement.client, statement.record) != (client, body_digest(body)):
        return "the statement is about another record"
    return ""


def _check_run(
    checks: Checks, body: dict[str, Any], study: FederationStudy, store: RunStore, statements: Statements
) -> None:
    told = part(body, "transcript")
    exchanged = exchanges(store)
    _check_evidence(checks, body, study, exchanged, store)
    check_silence(checks, study, exchanged, statements)
    found = check_recomputed(checks, body, store)
    if found is None:
        return
    coordinator, results = found
    checks.flagged += [
        f"{caveat.text} The coordinator chose when to release it"
        for result in results
        for caveat in result.caveats
        if caveat.code == "unfinished"
    ]
    checks.add("what was spent is what the counts say", spent(study, store) == body.get("spent"))
    end = (store.finished is not None, coordinator.done, store.why_ended)
    said = (body.get("finished"), told.get("rounds"), body.get("ended_by"))
    checks.add("it ended as the record says, after as many rounds", end == said)
    if study.is_open:
        beyond = [name for name, one in study.clients.items() if coordinator.asked[name] > one.records]
        checks.add("no client was asked for more records than it agreed to", not beyond, ", ".join(beyond))
    why = _events_differ(body.get("events"), told.get("until"), coordinator.done, store)
    checks.add("the events are those of the run's file", not why, why)
    _flag_uncounted(checks, exchanged, statements, store)


def _events_differ(listed: object, until: object, done: int, store: RunStore) -> str:
    """Why these are not the events up to the release; what happened after it is in the file alone."""
    journal = Journal(store)
    if not isinstance(listed, list) or events(journal)[: len(listed)] != listed:
        return "they differ"
    if not isinstance(until, int | float) or not ended(store) <= until:
        return "the record does not say until when, or a time before its last round"
    left_out = [
        event
        for event in itertools.islice(journal.events(), len(listed), None)
        if event.at <= until or (event.round is not None and event.round <= done)
    ]
    return f"left out: {counted(len(left_out), 'event')} from before the release" if left_out else ""


def _flag_uncounted(checks: Checks, exchanged: Exchanges, statements: Statements, store: RunStore) -> None:
    """Say which answers of silent clients the coordinator's own file knows of, and which only their sites."""
    came: dict[str, dict[int, set[str]]] = {}
    for one in Journal(store).uncounted():
        if (one.round, one.client) in exchanged and exchanged[one.round, one.client].is_silent:
            came.setdefault(one.client, {}).setdefault(one.round, set()).add(one.outcome)
    for client, found in sorted(came.items()):
        outcomes = sorted({f"{outcome:.20}" for each in found.values() for outcome in each})
        checks.flagged.append(
            f"the coordinator's file says: not counted: {counted(len(found), 'answer')} of client "
            f"{client} that came ({named_rounds(sorted(found))}): {', '.join(outcomes[:MOST_NAMED])}"
        )
    for client, statement in sorted(statements.items()):
        unknown = [number for number in statement.not_counted if number not in came.get(client, ())]
        if unknown:
            checks.flagged.append(
                f"client {client} says that it answered {named_rounds(unknown)}, and the coordinator's file knows "
                "nothing of it: lost with a crash or on the way, or kept out of the file"
            )


def _check_evidence(
    checks: Checks, body: dict[str, Any], study: FederationStudy, exchanged: Exchanges, store: RunStore
) -> None:
    """Check every count against its client's signature, and every client's ledger against its own past."""
    evidence: dict[tuple[int, str], tuple[int, str, str, str]] = {
        (row[0], row[1]): row[2:]
        for row in store.query("SELECT round, client, sequence, hash, signer, signature FROM evidence")
    }
    counts = {key: exchange for key, exchange in exchanged.items() if not exchange.is_silent}
    unsigned = [key for key in counts if key not in evidence]
    checks.add("every count has its client's signature", not unsigned, f"without one: {len(unsigned):,}")
    checks.add("no signature is left over", set(evidence) <= set(counts))
    bad = 0
    signers = {client: _signers(body, client) for client in study.clients}
    for number, client in counts.keys() & evidence.keys():
        sequence, head, signer, signature = evidence[number, client]
        questions, counted, _ = counts[number, client]
        answers = [
            Answer(study.run, number, client, question.level, ones)
            for question, ones in zip(questions, counted, strict=True)
            if ones is not None
        ]
        asked = question_digest(study.digest, questions)
        lengths = [question.length for question in questions] if study.is_open else None
        signed = AnswerMessage.of(study.digest, asked, answers, Link(sequence, head), lengths).text()
        bad += not (signer in signers[client] and is_signed(signed, signer, signature))
    what = "its question, its counts and how many took part" if study.is_open else "its question and its counts"
    text = f"all {len(counts):,} signatures of clients hold, each for {what}"
    checks.add(text, not bad, f"broken: {bad:,}")
    links = {key: Link(row[0], row[1]) for key, row in evidence.items()}
    check_unspent(checks, exchanged, links)
    flag_ledger_gaps(checks, exchanged, links)
    for client in study.clients:
        used = {row[2] for (_, name), row in evidence.items() if name == client}
        current = named_keys(body, client).current
        if used and current is not None and current.signer not in used:
            checks.flagged.append(
                f"client {client}'s present key {current.fingerprint} has signed none of its counts: by the record it "
                "came after them. Compare the fingerprint with the client before you trust its countersignature"
            )
    listed = body["events"] if isinstance(body.get("events"), list) else []
    declared = [event[1:2] for event in listed if isinstance(event, list) and event[:1] == ["restored"]]
    restored = {client for client in study.clients if [client] in declared}
    check_ledgers(checks, study.clients, links, restored)
