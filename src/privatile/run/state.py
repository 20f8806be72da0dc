"""What state a run is in and what is wrong with it now, read from its file.

One rule for `/health`, `status`, `check`, metrics and dashboard. `STATES` says what there is, `EVENTS` what happens.
"""

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from privatile.core.decoding import json_value
from privatile.core.extensions import Extension, of_file
from privatile.core.text import duration
from privatile.errors import StoreError
from privatile.estimator.plan import Plan, RoundState
from privatile.run.locks import run_lives
from privatile.run.run_file import RunStore, Statement

Tone = Literal["good", "note", "worry", "plain"]
"""How something is shown: as good news, as something to know or to act on, or as a matter of course."""


class StateKind(NamedTuple):
    """A state of a run, an alarm of one that goes on, or a state of one client."""

    tone: Tone
    about: str
    is_alarm: bool = False
    of_client: bool = False
    ends: str = ""
    """Of an alarm that begins with an event of its name: the event that ends it."""


STATES = {
    "unreadable": StateKind("worry", "the run's file cannot be read"),
    "quarantined": StateKind("worry", "its answers do not count until the organizer decides", True, True),
    "two holders": StateKind("worry", "two processes used its key at the same time; both have stopped", True, True),
    "paused": StateKind("worry", "the run waits for people or for missing answers", True, ends="resumed"),
    "no broker": StateKind("worry", "the run's process has no connection with the broker", True, ends="broker back"),
    "stopped": StateKind("note", "no process continues the run", True, ends="started"),
    # Missed the last round, or no answer for as long as the study's deadline; in an open study, where perhaps nobody
    # came: no sign of life for a minute.
    "silent": StateKind("worry", "it has missed the last round, or gives no sign of life", True, True),
    "aborted": StateKind("worry", "the run was ended for good; what was answered stays spent"),
    "no news": StateKind("note", "no round for a while; it cannot be known here whether a process continues the run"),
    "waiting": StateKind("note", "it was never heard of, and a round waits for it", True, True),
    "running": StateKind("plain", "the run goes on"),
    "finished": StateKind("good", "the run is over: this is its result"),
    "alive": StateKind("good", "it answers", of_client=True),
}
"""The worst first. A run that is over has no alarm. An extension may add some (`all_kinds`)."""

KINDS = tuple(name for name, kind in STATES.items() if kind.is_alarm)
CLIENT_KINDS = tuple(name for name, kind in STATES.items() if kind.of_client)

EVENTS: dict[str, Tone] = {
    **dict.fromkeys(("started", "resumed", "broker back", "finished", "readmitted"), "good"),
    **dict.fromkeys(("stopped",), "plain"),
    **dict.fromkeys(("rejected", "ahead", "question", "restored", "version", "rotated"), "note"),
    **dict.fromkeys(("paused", "no broker", "broker", "quarantined", "two holders", "revoked", "aborted"), "worry"),
}
"""What happens in a federation with a coordinator. An extension adds its own (`event_tone`)."""

OVER = ("finished", "aborted")
"""States in which nobody is asked any more."""

QUIET = 30.0
"""Seconds without a round after which a run whose process cannot be known has no news."""

GONE = 60.0
"""Seconds without a sign of life after which a client of an open study is missed: it gives one in 15, people or not."""

NO_PROCESS = "no process continues this run; the same command continues it"
"""What is known of a process that was killed: it has not said that it stops."""

SETTLING = 2.0
"""Seconds: what a client sent before both holders of its key have stopped may arrive so much later."""

SIGN_OF_LIFE = ("heard", "last heard")
"""What the time in `heard` is, in a word and in two."""


class Alarm(NamedTuple):
    """Something that people should look at now."""

    kind: str
    client: str | None
    since: float
    """Seconds since 1970."""
    text: str
    was_asked_for: bool = False
    """Of `stopped`: whether somebody has stopped the run on purpose, since its process has said so."""

    @property
    def title(self) -> str:
        """A few words.

        >>> Alarm("silent", "north", 0.0, "").title, Alarm("paused", None, 0.0, "").title
        ('silent: north', 'paused')
        """
        return f"waiting for {self.client}" if self.kind == "waiting" else ": ".join(filter(None, self[:2]))


class Event(NamedTuple):
    """Something that happened."""

    at: float
    kind: str
    client: str | None
    round: int | None
    text: str


class Badge(NamedTuple):
    """A run's state in a word and in a few, and how it is shown."""

    kind: str
    text: str

    def facts(self) -> dict[str, str]:
        """As the dashboard has it."""
        return {**self._asdict(), "tone": state_tone(self.kind)}


class RunState(NamedTuple):
    """A run's state, as of one moment of its file."""

    word: str
    alarms: tuple[Alarm, ...]
    """What is wrong now, the worst first."""
    alive: bool | None
    """Whether a process continues the run; none where it cannot be known."""
    silent: dict[str, int]
    """Rounds in a row without an answer, by client."""
    quarantined: dict[str, str]
    """Why, by client."""
    heard: dict[str, float]
    """When each client was heard last, in seconds since 1970; those that never were are left out."""

    @property
    def badge(self) -> Badge:
        """The worst alarm, else the state itself; how many more clients have the same is added."""
        return badge(self.word, self.alarms)


class LevelState(Protocol):
    """One level of a run: whoever follows it."""

    @property
    def plan(self) -> Plan:
        """What is asked."""

    @property
    def state(self) -> RoundState:
        """Where the rounds led."""


def read_state(store: RunStore, levels: Sequence[LevelState], *, now: float | None = None) -> RunState:
    """What state a run is in, by its file, and by its folder where that is a federation's."""
    with store.snapshot():
        silent, alive = silent_rounds(levels), run_lives(store)
        alarms = tuple(read_alarms(store, silent, alive=alive, now=now))
        word = run_state(store, alarms, alive=alive, now=now)
        quarantined = dict(store.query("SELECT client, reason FROM quarantined"))
        return RunState(word, alarms, alive, silent, quarantined, dict(store.query("SELECT client, at FROM heard")))


def last_events(store: RunStore, most: int = 1_000_000) -> tuple[Event, ...]:
    """The last events of a run, oldest first."""
    rows = store.query("SELECT at, kind, client, round, text FROM events ORDER BY rowid DESC LIMIT ?", (most,))
    return tuple(Event(*row) for row in reversed(rows))


def silent_rounds(levels: Sequence[LevelState]) -> dict[str, int]:
    """Rounds in a row that a client has missed, where there are any.

    A client answers about all levels or none; a level that is over no longer counts silence. In an open-ended run no
    round is missed: perhaps nobody came.
    """
    longest = max(levels, key=lambda level: level.state.round)
    if longest.plan.open_ended:
        return {}
    missed = zip(longest.plan.clients, longest.state.used, strict=True)
    return {client.name: used - 1 for client, used in missed if used > 1}


def is_aborted(store: RunStore) -> bool:
    """Whether the run was ended for good."""
    return bool(store.query("SELECT 1 FROM events WHERE kind = 'aborted' LIMIT 1"))


def is_lasting(store: RunStore, kind: str) -> bool:
    """Whether a condition that begins and ends by events, such as `no broker`, has begun and not ended."""
    return _condition(store, kind, _endings(of_file(store.query))[kind]) is not None


def all_kinds(extension: Extension | None) -> tuple[str, ...]:
    """The kinds of alarms of a run, the worst first."""
    place = KINDS.index("no broker")
    return (*KINDS[:place], *(extension.lasting if extension else ()), *KINDS[place:])


def state_tone(kind: str) -> Tone:
    """How a state or an alarm is shown; an extension's alarms are worries.

    >>> state_tone("finished"), state_tone("log lost")
    ('good', 'worry')
    """
    return STATES[kind].tone if kind in STATES else "worry"


def event_tone(kind: str, extension: Extension | None = None) -> Tone:
    """How an event is shown."""
    found: Tone = EVENTS.get(kind) or (extension.events if extension else {}).get(kind, "note")
    return found


def log_level(tone: Tone) -> int:
    """The level of an event in a log: nobody has to act on good news."""
    return logging.INFO if tone in ("good", "plain") else logging.WARNING


def sign_of_life(store: RunStore) -> tuple[str, str]:
    """What the time in `heard` is, in words and in two."""
    extension = of_file(store.query)
    return SIGN_OF_LIFE if extension is None else extension.sign_of_life


def run_state(store: RunStore, alarms: Sequence[Alarm], *, alive: bool | None = True, now: float | None = None) -> str:
    """A run's state in a word; `alarms` and `alive` as in `read_alarms`."""
    if store.finished is not None:
        return "finished"
    if is_aborted(store):
        return "aborted"
    for kind in ("stopped", "paused"):
        if any(alarm.kind == kind for alarm in alarms):
            return kind
    if alive is None:
        last = store.created
        for level_index in range(len(store.spec.levels)):
            last_of = "SELECT at FROM rounds WHERE level = ? ORDER BY round DESC LIMIT 1"
            last = max([last, *(at for (at,) in store.query(last_of, (level_index,)))])
        if (time.time() if now is None else now) - last > QUIET:
            return "no news"
    return "running"


def awaiting(number: int, since: float, clients: Sequence[str]) -> list[Statement]:
    """What writes whose answers the open round lacks, and since when it is asked."""
    row = (number, since, json.dumps(list(clients)))
    return [("DELETE FROM awaited", ()), ("INSERT INTO awaited VALUES (?, ?, ?)", row)]


def badge(status: str, alarms: Sequence[Alarm]) -> Badge:
    """The worst alarm, else the state itself; how many more clients have the same is added.

    >>> badge("running", []), badge("running", [Alarm("silent", name, 0.0, "") for name in ("north", "south")])
    (Badge(kind='running', text='running'), Badge(kind='silent', text='silent: north and 1 more'))
    """
    if not alarms:
        return Badge(status, status)
    worst = alarms[0]
    more = sum(alarm.kind == worst.kind for alarm in alarms) - 1
    return Badge(worst.kind, worst.title + (f" and {more:,} more" if more else ""))


def read_alarms(
    store: RunStore, silent: Mapping[str, int], *, alive: bool | None = True, now: float | None = None
) -> list[Alarm]:
    """Everything that is wrong now, the worst first.

    `silent` has the rounds in a row that a client has missed, where there are any; `alive` says whether a process
    continues the run (None: not known).
    """
    now = time.time() if now is None else now
    if store.finished is not None or is_aborted(store):
        return []
    extension, heard = of_file(store.query), dict(store.query("SELECT client, at FROM heard"))
    found = [
        Alarm("quarantined", client, _last(store, "quarantined", client, now), reason)
        for client, reason in store.query("SELECT client, reason FROM quarantined")
    ]
    for client, at, text in store.query(
        "SELECT client, max(at), text FROM events WHERE kind = 'two holders' GROUP BY client"
    ):
        if heard.get(client, 0.0) <= at + SETTLING:
            found.append(Alarm("two holders", client, at, text))
    noted = _from_events(store, extension)
    stopped = [alarm for alarm in noted if alarm.kind == "stopped"]
    if alive is False and not stopped:
        since = max([store.created, *heard.values()])
        stopped = [Alarm("stopped", None, since, NO_PROCESS)]
    found += stopped or [*noted, *_missing(store, extension, silent, heard, now)]
    kinds = all_kinds(extension)
    return sorted(found, key=lambda alarm: (kinds.index(alarm.kind), alarm.client or ""))


def _last(store: RunStore, kind: str, client: str, now: float) -> float:
    rows = store.query("SELECT max(at) FROM events WHERE kind = ? AND client = ?", (kind, client))
    return float(rows[0][0]) if rows and rows[0][0] is not None else now


def _from_events(store: RunStore, extension: Extension | None) -> list[Alarm]:
    """What lasts by its events. A round that was closed since ends it too: who has noted it may have been killed."""
    found = []
    rows = store.query(
        "SELECT max(r.at) FROM open_round o JOIN rounds r ON r.level = o.level AND r.round = o.round - 1"
    )
    last_round = rows[0][0] or 0.0
    for begin, end in _endings(extension).items():
        alarm = _condition(store, begin, end)
        if alarm is not None and alarm.since >= last_round:
            found.append(alarm)
    return found


def _endings(extension: Extension | None) -> dict[str, str]:
    own = {name: kind.ends for name, kind in STATES.items() if kind.ends}
    return own if extension is None else {**own, **extension.lasting}


def _condition(store: RunStore, begin: str, end: str) -> Alarm | None:
    """A condition whose begin and end are events: it lasts while the begin is the later of the two."""
    rows = store.query(
        "SELECT kind, at, text FROM events WHERE kind IN (?, ?) ORDER BY rowid DESC LIMIT 1", (begin, end)
    )
    if not rows or rows[0][0] != begin:
        return None
    return Alarm(begin, None, rows[0][1], rows[0][2], was_asked_for=begin == "stopped")


def _missing(
    store: RunStore, extension: Extension | None, silent: Mapping[str, int], heard: Mapping[str, float], now: float
) -> list[Alarm]:
    found: dict[str, Alarm] = {}
    word, starts = (
        (SIGN_OF_LIFE[0], "privatile join") if extension is None else (extension.sign_of_life[0], extension.joins)
    )
    for client, rounds in silent.items():
        times = "the last round" if rounds == 1 else f"the last {rounds:,} rounds"
        since = heard.get(client, store.created)
        # A client of a run in one process is not heard by itself: only its answers are.
        last = f"; {word} {duration(now - heard[client])} ago" if client in heard else ""
        found[client] = Alarm("silent", client, since, f"{client} has missed {times}{last}")
    open_ended = store.spec.design == "open"
    for number, since, deadline, clients in _awaited(store):
        for client in clients:
            late = now - heard.get(client, since) >= GONE if open_ended else now - since >= deadline
            if client not in heard:
                text = f"{client} has not been heard yet: start `{starts}` there, or ask the site why it is not up"
                found[client] = Alarm("waiting", client, since, text)
            elif late and client not in found:
                waited = f"{client} has not answered round {number:,} for {duration(now - since)}"
                if open_ended:
                    waited = f"{client} is not there: start `privatile join` there again"
                ago = f"{duration(now - heard[client])} ago"
                found[client] = Alarm("silent", client, since, f"{waited}; {word} {ago}")
    return list(found.values())


def _awaited(store: RunStore) -> Iterator[tuple[int, float, float, list[str]]]:
    """The open round, since when it is asked, the study's deadline, and who has not answered."""
    rows = store.query(
        "SELECT round, since, study, clients FROM awaited, federation WHERE round = (SELECT max(round) FROM open_round)"
        # The file of an extension may hold closed rounds alone.
        " OR NOT EXISTS (SELECT 1 FROM open_round) AND round > (SELECT coalesce(max(round), 0) FROM rounds)"
    )
    for number, since, study, clients in rows:
        try:
            plain, names = json_value(study), [str(client) for client in json.loads(clients)]
            yield number, since, float(plain["deadline"]), names
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise StoreError(f"{store.path} is damaged and cannot be read. Restore it from a backup.") from None
