"""Checking a release record: signatures, and with the run's file everything that follows from the counts.

What records of federations and of surveys share. `StudyRules` is all that is known here of a study; who may sign an
answer, and its text, are passed in. A body may hold anything, since somebody else has written it: only the form that
`read_record` checks is relied on.

A coordinator goes on without a silent client for at most `patience` rounds in a row; then it has to wait. Otherwise it
could call a client silent whenever it dislikes the count, for the whole run. A round closes at the quorum or, with
fewer answers, at its deadline. The counts cannot show the deadline, so they only show how often there were fewer. A
round of an open study closes by number and time, and waits for no client.
"""

import contextlib
import itertools
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from privatile.core.text import counted, moment, printable
from privatile.errors import InputError, PrivatileError, StoreError
from privatile.estimator.spec import RunSpec
from privatile.records.comparison import OTHER_BUILD, SAME, differences
from privatile.records.keys import PublicKeys
from privatile.records.record import Evidence, Exchange, Exchanges, recorded_facts, transcript_digest
from privatile.records.signing import canonical, is_signed
from privatile.result.result import QuantileResult
from privatile.run.coordinator import Coordinator
from privatile.run.run_file import RunStore
from privatile.run.tables import program

MAX_NAMED = 10
"""Rounds or clients named in one line; the others are counted."""

CLOCKS_DIFFER = 3600.0
"""Seconds by which the clocks of whoever made a record and of whoever verifies it may differ."""


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


class StudyRules(NamedTuple):
    """A study, as far as a record is checked against it."""

    digest: str
    run: str
    """The name of its one run."""
    spec: RunSpec
    signer: str
    """Who signs its records: the coordinator, or a survey's organiser."""
    clients: tuple[str, ...] = ()
    patience: int | None = None
    """Silent rounds in a row; none in an open study, where a client is silent while no record arrives."""
    quorum: int | None = None
    """Answers that close a round; none where another rule closes it."""


def named(items: Iterable[object], separator: str = ", ") -> str:
    """The first `MAX_NAMED` of some things, and how many more there are.

    >>> named([3]), named(range(12))
    ('3', '0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more')
    """
    found = list(map(str, items))
    more = f" and {len(found) - MAX_NAMED:,} more" if len(found) > MAX_NAMED else ""
    return separator.join(found[:MAX_NAMED]) + more


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
    rows = [len(list(group)) for here, group in itertools.groupby(answered) if not here]
    return Silence(client, sum(rows), max(rows, default=0))


def check_silence(
    checks: Checks,
    rules: StudyRules,
    exchanged: Exchanges,
    countersigned: Container[str],
    *,
    closed_by: str = "the coordinator's word alone",
) -> None:
    """Check the counts against the study's rules, and flag the silence of clients that have not countersigned.

    A client that has countersigned tells itself which answers it gave. A count that is missing at one level is silence.
    """
    numbers = sorted({number for number, _ in exchanged})
    answered = {client: [None not in exchanged[number, client].ones for number in numbers] for client in rules.clients}
    answers = [sum(here) for here in zip(*answered.values(), strict=True)]
    silent = [one for one in (silence_of(*each) for each in answered.items()) if one.rounds]
    if rules.patience is not None:
        beyond = [f"{one.client} for {one.longest:,}" for one in silent if one.longest > rules.patience]
        checks.add(
            f"no client was silent for more than {counted(rules.patience, 'round')} in a row, the study's patience",
            not beyond,
            named(beyond),
        )
    empty = answers.count(0)
    checks.add("every round has an answer", not empty, f"without one: {empty:,}")
    untold = sorted((one for one in silent if one.client not in countersigned), key=lambda one: -one.rounds)
    if not untold:
        return
    told = named(
        (
            f"{one.client} in {one.rounds:,} of {len(numbers):,} rounds, at most {one.longest:,} in a row"
            for one in untold
        ),
        separator="; ",
    )
    why = ""
    if rules.patience is None:
        why = " In an open study a client is silent while no record arrives."
    elif rules.quorum is not None:
        few = sum(count < rules.quorum for count in answers)
        why = f" Rounds closed with fewer answers than the quorum of {rules.quorum:,}: {few:,}."
    checks.flagged.append(
        f"silent clients, by {closed_by}: {told}.{why} Answers that were left out by somebody "
        "who had seen them would bias the result; a countersignature of the client shows whether it had answered"
    )


def check_evidence(
    checks: Checks,
    exchanged: Exchanges,
    found: Mapping[tuple[int, str], Evidence],
    signers: Mapping[str, Container[str]],
    text_of: Callable[[str, Exchange, Evidence], bytes],
) -> None:
    """Check every count against its client's signature.

    Parameters
    ----------
    exchanged, found
        What was asked and answered, and the signatures, by round and client.
    signers
        The keys that may have signed a client's counts.
    text_of
        What a client has signed in a round.
    """
    counts = {key: exchange for key, exchange in exchanged.items() if not exchange.is_silent}
    unsigned = counts.keys() - found.keys()
    checks.add("every count has its client's signature", not unsigned, f"without one: {len(unsigned):,}")
    checks.add("no signature is left over", found.keys() <= counts.keys())
    bad = 0
    for key in counts.keys() & found.keys():
        one = found[key]
        signed = is_signed(text_of(key[1], counts[key], one), one.signer, one.signature)
        bad += not (signed and one.signer in signers[key[1]])
    text = f"all {len(counts):,} signatures of clients hold, each for its question and its counts"
    checks.add(text, not bad, f"broken: {bad:,}")


def check_links(
    checks: Checks, exchanged: Exchanges, sequences: Mapping[tuple[int, str], int], restored: Collection[str]
) -> None:
    """Check what the signed links show of the clients' ledgers; `sequences` are entries by round and client.

    Records of missed rounds are asked later only where the ledger wrote nothing in between: no coin was drawn. A ledger
    goes back only where its restore was declared. Entries between two counted answers for which no count stands are
    flagged: whoever leaves an answer out cannot leave out its entry. An answer that came too late shows the same way,
    and so does a restored ledger.
    """
    before: dict[str, int] = {}
    extra: Counter[str] = Counter()
    wrong: list[str] = []
    back: dict[str, None] = {}
    for number, client in sorted(exchanged):
        exchange, own, last = exchanged[number, client], sequences.get((number, client)), before.get(client)
        entries = len(exchange.questions)
        if exchange.unspent and (own is None or last is None or own != last + entries):
            wrong.append(f"{client} in round {number:,}")
        if own is None:
            continue
        if last is not None:
            extra[client] += max(0, own - last - entries)
            if own <= last and client not in restored:
                back[client] = None
        before[client] = own
    checks.add(
        "records of missed rounds were asked later only where the client's ledger shows that no coin was drawn",
        not wrong,
        named(wrong),
    )
    gaps = ", ".join(f"{client} ({count:,})" for client, count in sorted(extra.items()) if count)
    if gaps:
        checks.flagged.append(
            f"answers that were given and not counted, by entries of the clients' own ledgers: {gaps}. They came too "
            "late, were lost on the way or with a restored ledger, or were left out by somebody who had seen them, "
            "which would bias the result: ask these clients"
        )
    checks.add("every client's ledger only went forward", not back, ", ".join(sorted(back)))
    if restored:
        checks.not_checked.append(f"the ledgers of {', '.join(sorted(restored))} across their declared restore")


def part(body: dict[str, Any], key: str) -> dict[str, Any]:
    """A table inside a body; empty where it is none."""
    found = body.get(key)
    return found if isinstance(found, dict) else {}


def check_study(checks: Checks, body: dict[str, Any], rules: StudyRules) -> None:
    """Check that a record names its study."""
    checks.add("the study's hash is that of the study", body.get("study_hash") == rules.digest)
    checks.add("the run is the study's", body.get("run") == rules.run)


def check_signature(checks: Checks, record: dict[str, Any], rules: StudyRules) -> None:
    """Check that a record is signed by the key in it."""
    body, signer = record["body"], rules.signer
    try:
        keys = msgspec.convert(body.get(signer), PublicKeys)
        signed = is_signed(canonical(body), keys.signer, record["signatures"].get("signer"))
        checks.add(f"the {signer} has signed it (key {keys.fingerprint})", signed)
    except (InputError, msgspec.ValidationError) as error:
        checks.add(f"the {signer} has signed it", False, str(error))


def check_end(checks: Checks, body: dict[str, Any], rules: StudyRules) -> None:
    """Check that a record's end has come, and that of an open-ended run also against what the study had fixed."""
    until = part(body, "transcript").get("until")
    at = until if isinstance(until, int | float) else math.inf
    checks.add(
        "its end is not in the future",
        at <= time.time() + CLOCKS_DIFFER,
        "it names no time, or one that this computer's clock has not reached",
    )
    if rules.spec.design == "open":
        _check_open_end(checks, body, rules.spec, at)
        checks.not_checked.append(
            f"when rounds closed: their times rest on the word of the {rules.signer} alone, and with them the weeks of "
            "the series and the date of a change alarm"
        )


def _check_open_end(checks: Checks, body: dict[str, Any], spec: RunSpec, at: float) -> None:
    """An end that was fixed must stand in the study, and be reached; at any other the intervals are anytime ones.

    The rule of `at_fixed_end` in `run.coordinator`, by what the record says of itself.
    """
    told = body.get("results")
    results = [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []
    date, number = (None, None) if spec.end is None else (spec.end.seconds, spec.end.answers)
    records = [one.get("records") for one in results]
    on_date = date is not None and at >= date
    enough = number is not None and bool(records) and all(type(one) is int and one >= number for one in records)
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
    methods = [one.get("method") for result in results for one in (result, part(result, "other_interval"))]
    checks.add(
        "its intervals hold at an end that somebody chose",
        "smooth" not in methods,
        "an interval for a fixed end is among them, and no end of the study was reached",
    )


@contextlib.contextmanager
def run_of_record(
    checks: Checks, body: dict[str, Any], rules: StudyRules, path: Path | None
) -> Iterator[RunStore | None]:
    """The run's file that a record is checked against; none where none is given, or it is not that of this study."""
    with contextlib.ExitStack() as opened:
        store = None
        if path is None:
            checks.not_checked.append("the estimate against the counts: give the run's file with --transcript")
            if rules.clients:
                checks.not_checked.append("the clients' signatures of questions and counts: they are in the run's file")
        else:
            try:
                store = opened.enter_context(RunStore.frozen(path))
            except StoreError as error:
                checks.add("the run's file can be read", False, str(error))
        if store is not None:
            same = store.run == rules.run and store.spec.digest == rules.spec.digest
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
    told = body.get("results")
    if not isinstance(told, list) or len(told) != len(results) or not all(isinstance(one, dict) for one in told):
        checks.add("the record has one result per level", False)
        return Recomputed(coordinator, results)
    software = body.get("software")
    maker = software if isinstance(software, str) and software.isprintable() and len(software) <= 80 else "unnamed"
    for one, result in zip(told, results, strict=True):
        where = f" at level {result.level:g}" if len(results) > 1 else ""
        shown = result if dated else replace(result, date=None)
        _check_result(checks, one, shown, where, "" if body.get("program") == program() else maker)
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
                what = "the round before it" if at >= store.created else "the run was begun"
                why = why or f"round {number:,} closed before {what}"
            before = at
    checks.add("its rounds closed one after the other, since the run began and not in the future", not why, why)


NAMED = {
    "estimate": "estimate",
    "confidence_interval": "interval",
    "other_interval": "other interval",
    "grid_values": "list of values that the declared grid leaves",
}
"""Figures that have a check of their own."""


def _check_result(checks: Checks, told: dict[str, Any], result: QuantileResult, where: str, maker: str) -> None:
    """`maker` names the other program that made the record; empty where it was this one."""
    mine = json.loads(canonical(recorded_facts(result)))
    # Another machine rounds otherwise; where nothing is known about the error, the range is the measure.
    inference, scale = result.inference, result.scale
    error = min(inference.error_scale * scale.slope(inference.center), scale.high - scale.low)
    share = OTHER_BUILD if maker else SAME
    found = differences(told, mine, error, share)
    why = f"this program's differs; check it with the one that made it, {maker}" if maker else ""
    for key, name in NAMED.items():
        if key in found.figures or mine[key] is not None or key == "estimate":
            holds = key not in found.figures
            checks.add(f"the {name}{where} is the one the counts give, within {share:g} standard errors", holds, why)
    others = [key for key in found.figures if key not in NAMED]
    for text, names in (
        (f"the anytime interval and all other figures{where} are those the counts give", others),
        (
            f"budgets, weights, levels, numbers of records, method and caveats{where} are those of the run",
            found.settings,
        ),
    ):
        checks.add(text, not names, ", ".join(names) + (f"; {why}" if why else ""))
