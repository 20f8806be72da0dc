"""A survey while it runs: who may ask, whose answer counts, when a round closes, what its pages show.

It knows nothing of HTTP. What pages show are plain values, computed from closed rounds, never from the open one.

Everything happens in one event loop. The run, which computes, has a thread of its own; the disk has another (`intake`).
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from privatile.core.kinds import declaration
from privatile.core.text import moment
from privatile.errors import PrivatileError, StoreError
from privatile.result.result import QuantileResult
from privatile.result.shown import CONDITIONS, Shown, ShownInterval
from privatile.run.coordinator import Coordinator
from privatile.run.rounds import OpenRound, Phase, Present, RoundRule, advance, wakes_at
from privatile.run.state import Alarm
from privatile.survey.folder import SurveyFolder, code_hash
from privatile.survey.intake import HandedQuestion, Intake, Outcome, Refusal
from privatile.survey.run import SurveyRun, two_moments
from privatile.survey.store import Superseded, SurveyMark, SurveyStore
from privatile.survey.study import CODE, SurveyStudy

SHOWN_TO_DEVICES = (
    "survey", "title", "value", "unit", "range", "scale", "level", "epsilon", "asked_by", "languages", "page_sha256",
)  # fmt: skip
"""Settings of the study that a device is told."""


def public_state(state: OpenRound) -> str:
    """`open`, `draining` or `closed`, as visitors are told: between two rounds they wait."""
    return "draining" if state.phase is Phase.CLOSING else state.phase.value


def survey_facts(study: SurveyStudy, state: OpenRound) -> dict[str, Any]:
    """What a device needs before it asks for the question."""
    plain = study.to_dict()
    return {name: plain[name] for name in SHOWN_TO_DEVICES} | {
        "study_sha256": study.digest,
        "step": declaration(study.value_kind).step,
        "threshold": str(study.mechanism.threshold),
        "lies_per_100": study.lies_per_100,
        "state": public_state(state),
    }


def live_facts(
    study: SurveyStudy, state: OpenRound, run: Coordinator | None, late: list[int], opened: float
) -> dict[str, Any]:
    """What the public page shows; of a survey whose run has no file yet `run` is none."""
    return {
        **survey_facts(study, state),
        **_result_facts(run.results()[0] if run is not None and run.has_interval else None),
        "answers": state.counted_before,
        "late": sum(late),
        "codes": study.codes,
        "rounds": 0 if run is None else run.done,
        "first_interval_after": study.first_interval_after,
        "most_answers": study.most_answers,
        "confidence": study.confidence_level,
        "opened": moment(opened),
        "ends": study.end_date or None,
        "ended": None if run is None else run.store.why_ended,
        "strata": [
            {"name": name, "weight": one.weight, "codes": one.codes, "late": here}
            for (name, one), here in zip(study.strata.items(), late, strict=True)
        ],
    }


def _as_shown(shown: Shown, interval: ShownInterval | None, final: ShownInterval | None) -> dict[str, Any]:
    """The result in the numbers that people read: those of `privatile report`, by the declared reading."""
    declared = interval is not None and interval.condition_code == "grid"
    return {
        "headline": shown.kind,
        "number": shown.number,
        "interval": None if interval is None else list(interval.ends),
        "condition": None if interval is None else interval.condition_code,
        "declared": interval.condition if interval and declared else None,
        "undeclared": list(interval.rounded) if interval and declared else None,
        "final": None if final is None else list(final.rounded),
    }


def _result_facts(result: QuantileResult | None) -> dict[str, Any]:
    """The result in the few facts that fit on a page; the record and the run's file have all of it."""
    if result is None:
        nothing = ("estimate", "interval", "condition", "final", "shown", "sentence", "drift", "change")
        return {**dict.fromkeys(nothing), "caveats": [], "liars": [], "series": []}
    # Of values declared continuous the interval for a fixed end stands first once that end is reached.
    shown = result.shown
    always = result.valid_at_every_look
    anytime, condition = (shown.own, result.condition) if always else (shown.anytime, result.anytime_condition)
    final = shown.other if always else shown.own
    facts = result.facts()
    moved = [caveat.text for caveat in result.caveats if caveat.code == "moved"]
    return {
        "estimate": result.estimate if result.located else None,
        "interval": None if anytime is None else [anytime.low, anytime.high],
        "condition": None if anytime is None or condition is None else CONDITIONS[condition],
        "final": None if final is None else [final.low, final.high],
        "shown": _as_shown(shown, anytime, final),
        "sentence": result.sentence,
        "drift": moved[0] if moved else None,
        "caveats": [one.text for one in result.caveats if one.severity != "standing" and one.code != "moved"],
        "liars": list(facts.get("liars") or ()),
        "series": list(facts.get("series") or ()),
        "change": facts.get("change"),
    }


def organiser_facts(
    study: SurveyStudy,
    live: dict[str, Any],
    state: OpenRound,
    store: SurveyStore,
    alarms: list[Alarm],
) -> dict[str, Any]:
    """What the organiser's page shows besides: how many codes are spent, never by whom and never an answer."""
    return {
        **live,
        "restored": store.about().restored,
        "strata": [
            {
                "name": name,
                "weight": one.weight,
                "codes": one.codes,
                "spent": counted + late,
                "counted": counted,
                "late": late,
                "handed": handed,
            }
            for (name, one), (_, handed, counted, late) in zip(study.strata.items(), store.totals(), strict=True)
        ],
        "open_round": {
            "number": state.number,
            "state": state.phase.value,
            "since": moment(state.since),
            "answers": state.came,
            "planned": round_rule(study).planned(state),
        },
        "alarms": [f"{alarm.title}: {alarm.text}" for alarm in alarms] + ([live["drift"]] if live["drift"] else []),
    }


T = TypeVar("T")

LONGEST_SLEEP = 0.5
"""Seconds between two looks at the clock and at requests of other commands."""

LOG_KEPT = "log kept"
"""The alarm about a log that cannot be emptied."""

NO_MARK = "no mark"
"""The alarm about a mark that cannot be written: an older copy would not be found."""

HARMLESS = (LOG_KEPT, NO_MARK)
"""Alarms with which visitors are served all the same."""

FRESH = 1.0
"""Seconds between two computations of the result, at least."""


def _mark_restored(store: SurveyStore, mark: SurveyMark) -> None:
    """Declare that a file comes from a backup: every free code counts as handed out, and this copy as the newest."""
    with store.transaction():
        store.mark_restored()
    with suppress(OSError):  # told of at the next look
        mark.put(store.codes().changes)


def round_rule(study: SurveyStudy) -> RoundRule:
    """What the study says about its rounds and its end."""
    return RoundRule(study.round_answers, study.round_seconds, study.grace, study.ends_at, study.end_answers)


class SurveyService:
    """One survey, open for answers between `start` and `stop`."""

    def __init__(self, folder: SurveyFolder, clock: Callable[[], float] = time.time) -> None:
        """Nothing but the study is read before `start`."""
        self.folder = folder
        self.study = study = folder.study()
        self._rule = round_rule(study)
        self.facts: dict[str, Any] = {}
        """What the public page shows, as of the last closed round."""
        self.superseded: Superseded | None = None
        """Why this process must stop: another has become the writer."""
        self.on_superseded: Callable[[], None] = lambda: None
        """Called when that is known, once."""
        self._troubles: dict[str, Alarm] = {}
        """What cannot be done at the moment, and is tried again: go on with the round, compute the result."""
        self._clock = clock
        self._mark = SurveyMark.of(study)
        self._run_thread = ThreadPoolExecutor(1, thread_name_prefix="survey-run")
        self._news = asyncio.Event()
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._stale = asyncio.Event()

    async def start(self, *, follow: bool = True, restored: bool = False) -> None:
        """Open the files, finish what a killed process has begun, and begin to look at the clock (`follow`).

        An older copy of the files is refused, unless it is declared to be `restored`.
        """
        store = SurveyStore.open(self.folder.store_file, self.study.digest, len(self.study.strata))
        store.claim()
        self._opened = store.about().created
        self._run = await self._computed(lambda: SurveyRun(self.folder.run_file, self.study))
        now, rounds = store.round(), self._run.coordinator.done
        # Of a round that is closing the run may have the counts already.
        ahead = (0, 1) if now.phase is Phase.CLOSING else (0,)
        if now.phase is not Phase.CLOSED and rounds - (now.number - 1) not in ahead:
            raise two_moments(self.folder.run_file, rounds, now.number)
        if restored:
            _mark_restored(store, self._mark)
        self.intake = Intake(store, keep=follow)
        self.intake.arrived = self._look_if_due
        self.intake.on_superseded = self._give_way
        self._require_newest()
        async with self.intake.alone:
            await self._recover()
        await self._refresh()
        if follow:
            self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._keep_fresh())]

    def _require_newest(self) -> None:
        """Refuse an older copy of both files."""
        known, here = self._mark.read(), self.intake.table.changes
        if here < known and self.state.phase is not Phase.CLOSED:
            raise StoreError(
                f"{self.folder.store_file} is an older copy: its codes have seen {here:,} changes, and had seen "
                f"{known:,} before (by {self._mark.path}). Codes that were used since would answer again. Restore the "
                "newest files; where those are lost, `privatile survey serve --restored` goes on with these, and warns "
                "everybody before they answer."
            )

    def _set_mark(self) -> None:
        try:
            self._mark.advance(self.intake.table.changes)
        except OSError as error:
            text = f"{self._mark.path} cannot be written ({os.strerror(error.errno or 0)}): an older copy is not found"
            self._troubles.setdefault("mark", Alarm(NO_MARK, None, self._clock(), text))
        else:
            self._troubles.pop("mark", None)

    @property
    def state(self) -> OpenRound:
        """The open round."""
        return self.intake.state

    async def _computed(self, compute: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._run_thread, compute)

    # Requests with a code.

    def _find(self, code: str) -> tuple[bytes, int]:
        hashed = code_hash(code)
        place = self.intake.table.find(hashed) if CODE.fullmatch(code) else None
        if place is None:
            raise Refusal("unknown")
        return hashed, place

    async def question(self, code: str, visit: str) -> HandedQuestion:
        """The open question for a code, marked as handed out; not "before" if it was to the same `visit`."""
        return await self.intake.hand_out(*self._find(code), visit)

    async def answer(self, code: str, number: int, answer: bool) -> Outcome:
        """Take an answer. To another round than the open one it is late: spent, and not counted."""
        return await self.intake.written(*self._find(code), number, answer)

    # From round to round.

    async def _follow(self) -> None:
        """Look at the round whenever answers came, and now and then."""
        while not self._stopping:
            wait = min(max(wakes_at(self._rule, self.state) - self._clock(), 0.0), LONGEST_SLEEP)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), wait or 0.01)
            self._news.clear()
            if self._mark.is_due:
                self._set_mark()
            if not await self._tried("round", self.look):
                # A full disk, most often: answers are refused meanwhile.
                await asyncio.sleep(LONGEST_SLEEP)

    def _look_if_due(self) -> None:
        """Look at once where the answers that came let the round go on; a request to close it can wait."""
        if advance(self._rule, self.state, self._clock(), self._present) != self.state:
            self._news.set()

    def _give_way(self, error: Superseded) -> None:
        if self.superseded is None:
            self.superseded = error
            self.on_superseded()

    async def _tried(self, what: str, action: Callable[[], Awaitable[None]]) -> bool:
        """Whether something could be done; where not, people are told, and it is tried again later."""
        try:
            await action()
        except Exception as error:
            if isinstance(error, Superseded):
                self._give_way(error)
            text = str(error) if isinstance(error, PrivatileError) else f"{type(error).__name__}; it is tried again"
            self._troubles.setdefault(what, Alarm("paused", None, self._clock(), f"the {what}: {text}"))
            return False
        self._troubles.pop(what, None)
        return True

    async def look(self) -> None:
        """Let the round go on as far as clock, arrivals and requests say."""
        await self.intake.on_disk(self.intake.store.require_writer)
        if self.state.phase is Phase.CLOSED:
            return
        if self.state.phase is Phase.CLOSING:
            async with self.intake.alone:
                await self._recover()
            return
        if self._next() == self.state:
            return
        async with self.intake.alone:
            # Looked at again: while the lock was waited for answers may have come, and questions been handed out.
            after = self._next()
            if after != self.state:
                await self.intake.set_round(after)
            if after.phase is Phase.CLOSING:
                await self._recover()

    def _next(self) -> OpenRound:
        """The round as clock, arrivals and a request to close it say."""
        state = self.state
        if not state.ending and self.folder.close_request.exists():
            state = replace(state, ending="command")
        return advance(self._rule, state, self._clock(), self._present)

    @property
    def _present(self) -> Present:
        return Present(None if self.intake.awaited is None else len(self.intake.awaited))

    async def _recover(self) -> None:
        """Carry a round that is closing to its end, whatever part of that is done; the caller holds the lock.

        The counts are fixed. The run takes them once, and its own file says whether it has. Then the next round begins
        here, with its counts at zero.
        """
        state = self.state
        if state.phase is Phase.CLOSING:
            counts = await self.intake.on_disk(self.intake.store.counts)
            if state.came:
                await self._computed(lambda: self._run.close_round(state.number, counts))
            query = None if state.ending else await self._computed(self._run.question)
            number = state.number + bool(state.came)
            counted = state.counted_before + state.came
            if query is None:
                await self._computed(lambda: self._run.finish(by_date=state.ending == "date"))
            phase = Phase.CLOSED if query is None else Phase.OPEN
            following = OpenRound(number, phase, self._clock(), 0, counted, state.ending)
            await self.intake.set_round(following, clear=True)
            self.intake.awaited = set()
            await self.intake.on_disk(self._empty_log)
            self.folder.close_request.unlink(missing_ok=True)
            self._stale.set()
        if self.state.phase is not Phase.CLOSED:
            rounds, query = await self._computed(lambda: (self._run.coordinator.done, self._run.question()))
            if rounds != self.state.number - 1 or query is None:
                raise two_moments(self.folder.run_file, rounds, self.state.number)
            self.intake.ask(self.state.number, query)

    def _empty_log(self) -> None:
        if self.intake.store.empty_log():
            self._troubles.pop("log", None)
            return
        text = (
            f"another program reads {self.folder.store_file} and keeps its log from being emptied; the log joins codes "
            "to answers. End that program: the log is emptied after the next round"
        )
        self._troubles.setdefault("log", Alarm(LOG_KEPT, None, self._clock(), text))

    # What pages show.

    async def _keep_fresh(self) -> None:
        while not self._stopping:
            await self._stale.wait()
            self._stale.clear()
            if not self._stopping:
                await self._tried("result", self._refresh)
                await asyncio.sleep(FRESH)

    async def _refresh(self) -> None:
        facts = (self.study, self.state, self._run.coordinator, self.intake.late, self._opened)
        self.facts = await self._computed(lambda: live_facts(*facts))

    def live(self) -> dict[str, Any]:
        """What the public page shows: closed rounds, with the present state."""
        late = self.intake.late
        strata = [{**one, "late": here} for one, here in zip(self.facts["strata"], late, strict=True)]
        return {**self.facts, "state": public_state(self.state), "late": sum(late), "strata": strata}

    def alarms(self) -> list[Alarm]:
        """What is wrong now."""
        return list(self._troubles.values())

    async def organiser(self) -> dict[str, Any]:
        """What the organiser's page shows."""
        live, state, alarms = self.live(), self.state, self.alarms()

        def found() -> dict[str, Any]:
            digest, count = self.study.digest, len(self.study.strata)
            with SurveyStore.open(self.folder.store_file, digest, count, read_only=True) as store:
                return organiser_facts(self.study, live, state, store, alarms)

        # A million codes take a moment to count: not in the thread that answers visitors.
        return await self._computed(found)

    async def stop(self) -> None:
        """Write what waits and close the files."""
        # No task is cancelled between two steps of a round: the next start would have to repeat them.
        self._stopping = True
        self._news.set()
        self._stale.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.intake.stop()
        self._set_mark()
        with suppress(Exception):
            self.intake.store.empty_log()
        self.intake.store.close()
        await self._computed(self._run.close)
        self._run_thread.shutdown()
