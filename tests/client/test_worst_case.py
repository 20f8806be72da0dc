"""A limit for life bounds a person's worst case: what was spent by name, plus all data sets without a person column."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import privatile
from privatile.cli import main
from privatile.client.ledger.account import RecordLimit, SpendingRules
from privatile.client.ledger.datasets import say_new, statement
from privatile.client.ledger.integrity import PersonKey
from privatile.client.ledger.ledger import Ledger
from privatile.client.ledger.restore import mark_restored
from privatile.client.order.shuffle import shuffle
from privatile.client.randomizer import OperatingSystemCoins, Randomizer
from privatile.client.responder import Responder
from privatile.client.sources.databases import open_source
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Question
from privatile.errors import AlreadyAnswered, InputError, LedgerError, OtherContent, PrivatileError

PEOPLE = 8
COLUMNS = ("wage", "bonus", "rent", "age")
KINDS: Any = [*((name, float) for name in (*COLUMNS, "other")), ("id", "U9"), ("team", "U1")]
DATA = np.array(
    [
        (*(100.0 * place + k for place in range(4)), 900.0 + k, f"p{k}", "ab"[k % 2])  # the last two digits tell whose
        for k in range(PEOPLE)
    ],
    dtype=KINDS,
)


def sites(
    ledger: Ledger,
    column: str,
    name: str,
    *,
    person: bool = False,
    split: bool = False,
    epsilon: float = 1.0,
    **rules: Any,
) -> list[Responder]:
    source = open_source(DATA, value=column, person="id" if person else None, client="team" if split else None)
    own = shuffle(source, ledger, person_key=PersonKey(b"p" * 32) if person else None)
    fair = RandomizedResponse.from_epsilon(epsilon)
    rules.setdefault("spend_again", True)
    return [
        Responder(name, each, fair, ledger, OperatingSystemCoins(), rules=SpendingRules(**rules))
        for each in own.values()
    ]


def ask(site: Responder, number: int = 1, length: int | None = None) -> None:
    run = site.account.run
    site.answer(Question(run=run, round=number, level=0.5, query=10.0, length=length or site.available()))


def run(ledger: Ledger, column: str, **options: Any) -> None:
    """Everybody who may answers, or the run is refused."""
    for site in sites(ledger, column, f"run {ledger.position.sequence}", **options):
        ask(site)


# -- the attack ------------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    for place, name in enumerate(COLUMNS):
        rows = [f"p{k},{100 * place + k % 97}" for k in range(500)]
        (tmp_path / f"{name}.csv").write_text(f"id,{name}\n" + "\n".join(rows) + "\n")
    return tmp_path


def command(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.exit_code, " ".join((done.stdout + done.stderr).split())


ESTIMATE = ("--epsilon", 1, "--range", 0, 1000, "--rounds", 20, "--design", "rounds", "--yes")
NAMED_FIRST = [True, False, False, False]
NAMELESS_FIRST = [False, True, False, True]


@pytest.mark.parametrize("order", [NAMED_FIRST, NAMELESS_FIRST], ids=["named first", "nameless first"])
def test_files_without_a_person_column_do_not_pass_by_the_limit(home: Path, order: list[bool]) -> None:
    """Before, all four were answered, and the ledger told of ε = 1."""
    codes: list[tuple[int, str]] = []
    for column, by_name in zip(COLUMNS, order, strict=True):
        limit = ("--max-epsilon", 1) if not codes else ()
        person = ("--person", "id") if by_name else ()
        codes.append(command("estimate", f"{column}.csv", "--value", column, *ESTIMATE, *person, *limit))
    assert [code for code, _ in codes] == [0, 2, 2, 2]
    for _, said in codes[1:]:
        ways = ["smaller epsilon", "--max-epsilon TOTAL", "--new-people or", "`privatile ledger new-people NUMBER`"]
        places = [said.index(way) for way in (*ways, "--ledger FILE")]
        assert places == sorted(places)
    told = json.loads(command("ledger", "show", "--json")[1])
    assert told["max_epsilon"] == 1.0
    assert told["person_epsilon"] + told["nameless_epsilon"] == pytest.approx(1.0)
    # The controls: a larger limit, and the holder's word.
    assert command("estimate", "bonus.csv", "--value", "bonus", *ESTIMATE, "--max-epsilon", 2)[0] == 0
    assert command("estimate", "rent.csv", "--value", "rent", *ESTIMATE)[0] == 2
    assert command("estimate", "rent.csv", "--value", "rent", *ESTIMATE, "--new-people")[0] == 0


@pytest.mark.parametrize("order", [NAMED_FIRST, NAMELESS_FIRST], ids=["named first", "nameless first"])
def test_the_same_in_python(home: Path, order: list[bool]) -> None:
    accepted = 0
    for column, by_name in zip(COLUMNS, order, strict=True):
        rules: dict[str, Any] = {"max_epsilon": 1} if not accepted else {}
        with suppress(AlreadyAnswered):
            privatile.estimate(
                home / f"{column}.csv", value=column, person="id" if by_name else None, epsilon=1, range=(0, 1000),
                rounds=20, design="rounds", **rules,
            )  # fmt: skip
            accepted += 1
    assert accepted == 1


def test_show_tells_what_is_spent_without_a_name(home: Path) -> None:
    assert command("estimate", "wage.csv", "--value", "wage", *ESTIMATE, "--person", "id")[0] == 0
    assert "plus up to" not in command("ledger", "show")[1]
    for column in ("bonus", "rent"):
        assert command("estimate", f"{column}.csv", "--value", column, *ESTIMATE)[0] == 0  # without a limit, as before
    told = command("ledger", "show")[1]
    assert (
        "the most that one has spent for life: ε = 1, plus up to ε = 2 in data sets without a person column; whose is "
        "not known, and each of their records counts as one person." in told
    )
    assert command("ledger", "new-people", 2)[0] == 0
    told = command("ledger", "show")[1]
    assert "plus up to ε = 1 in data sets" in told
    assert "new people" in told.partition("\n")[0]
    assert command("ledger", "verify")[0] == 0
    code, said = command("ledger", "new-people", 7)
    assert (code, "has no data set 7; `privatile ledger show` numbers them." in said) == (2, True)


# -- random histories ------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    """One run: over which column, of the same people or others, by name or not, divided or not, at ε, under a limit."""

    column: str
    person: bool
    split: bool
    epsilon: float
    limit: float | None


STEPS = st.builds(
    Step,
    st.sampled_from([*COLUMNS[:3], "other"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.5, 1.0]),
    st.sampled_from([None, None, 1.0, 1.5, 2.0, 3.0]),
)


class Model:
    """A list of who has answered what: who may answer is worked out from it alone, without the ledger."""

    def __init__(self) -> None:
        self.ledger = Ledger.in_memory()
        self.limit: float | None = None
        self.by_name = np.zeros(100)
        self.nameless: dict[tuple[str, bool], dict[str, dict[int, float]]] = {}
        """By column and whether it is divided: what the records of each client have spent."""
        self.accepted = self.refused = 0

    def worst(self, but: tuple[str, bool]) -> float:
        """What one person may have spent in the other data sets without a person column."""
        return sum(
            max((max(records.values()) for records in clients.values()), default=0.0)
            for split, clients in self.nameless.items()
            if split != but and split[0] != "other"
        )

    def do(self, step: Step, number: int) -> None:
        new, column, split = step.column == "other", step.column, step.split and step.column != "other"
        by_name = step.person and not new
        for client in ("a", "b") if split else ("all",):
            self._client(step, f"run {number}", column, split, by_name, client, new)

    def _client(self, step: Step, name: str, column: str, split: bool, by_name: bool, client: str, new: bool) -> None:
        people = [k for k in range(PEOPLE) if not split or "ab"[k % 2] == client]
        limit = self.limit if step.limit is None else step.limit
        own = self.nameless.setdefault((column, split), {}).setdefault(client, dict.fromkeys(people, 0.0))
        if by_name:
            spent = {k: self.by_name[k] + self.worst(("", False)) for k in people}
        elif new:
            spent = {k: own[k] for k in people}
        else:
            spent = {k: own[k] + self.by_name.max() + self.worst((column, split)) for k in people}
        may = [k for k in people if limit is None or spent[k] + step.epsilon <= limit + 1e-6]
        if not by_name and len(may) < len(people):
            may = []
        answered = self._asked(step, name, column, split, by_name, client, new)
        if answered != may:
            raise AssertionError(f"{answered} have answered; by the model {may} may")
        if may:
            self.limit = limit
            self.accepted += 1
        else:
            self.refused += 1
        for k in may:
            if by_name:
                self.by_name[k] += step.epsilon
            else:
                own[k] += step.epsilon

    def _asked(
        self, step: Step, name: str, column: str, split: bool, by_name: bool, client: str, new: bool
    ) -> list[int]:
        """Who really answers, as the randomizer sees it."""
        seen: list[float] = []
        counter = Randomizer.counter

        def watched(randomizer: Randomizer, question: Question) -> Any:
            count = counter(randomizer, question)

            def watching(values: Any) -> int:
                seen.extend(values.tolist())
                return count(values)

            return watching

        source = open_source(
            DATA if client == "all" else DATA[DATA["team"] == client] if not split else DATA,
            value=column, person="id" if by_name else None, client="team" if split else None,
        )  # fmt: skip
        own = shuffle(source, self.ledger, person_key=PersonKey(b"p" * 32) if by_name else None)[client]
        rules = SpendingRules(spend_again=True, new_people=new, max_epsilon=step.limit)
        before = list(self.ledger._connection.iterdump())
        try:
            with patch.object(Randomizer, "counter", watched):
                fair = RandomizedResponse.from_epsilon(step.epsilon)
                ask(Responder(name, own, fair, self.ledger, OperatingSystemCoins(), rules=rules))
        except PrivatileError:
            if seen or list(self.ledger._connection.iterdump()) != before:
                raise AssertionError("a run that was refused has left a trace") from None
        return sorted(int(value) % 100 for value in seen)


def histories(examples: int) -> Model:
    """Random histories; the last of them."""
    last = [Model()]
    totals = Model()

    @settings(
        max_examples=examples, deadline=None, derandomize=True, database=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck), report_multiple_bugs=False,
    )  # fmt: skip
    @given(st.lists(STEPS, min_size=2, max_size=6))
    def play(steps: list[Step]) -> None:
        model = last[0] = Model()
        for number, step in enumerate(steps):
            model.do(step, number)
        totals.accepted += model.accepted
        totals.refused += model.refused
        told, most = statement(model.ledger), model.by_name.max()
        assert (told.max_epsilon, told.person_epsilon) == pytest.approx((model.limit, most))
        assert told.nameless_epsilon == pytest.approx(model.worst(("", False)))

    play()
    return totals


def test_who_answers_is_who_may_by_the_worst_case() -> None:
    found = histories(150)
    assert min(found.accepted, found.refused) > 100  # both happen


FAULTS: dict[str, tuple[type, str, Any]] = {
    "other data sets count nothing": (RecordLimit, "spent_elsewhere", lambda limit: 0.0),
    "a run without a limit has none": (Ledger, "max_epsilon", property(lambda ledger: None)),
    "the word is not heard": (RecordLimit, "is_apart", lambda limit: False),
    "the word is always taken": (RecordLimit, "is_apart", lambda limit: True),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_ledger_without_the_rule_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*FAULTS[fault])
    with pytest.raises(AssertionError, match=r"by the model|approx"):
        histories(150)


# -- one by one ------------------------------------------------------------------------------------------------------


def test_parts_of_one_split_count_by_their_maximum() -> None:
    ledger = Ledger.in_memory()
    run(ledger, "wage", split=True, max_epsilon=2.0)
    assert statement(ledger).nameless_epsilon == pytest.approx(1.0)
    run(ledger, "bonus")  # by the sum of both teams it would be 3
    with pytest.raises(AlreadyAnswered, match="on top of 2 already"):
        run(ledger, "rent", epsilon=0.5)


def test_a_run_that_goes_on_takes_the_limit_that_was_given_since() -> None:
    ledger = Ledger.in_memory()
    (one,) = sites(ledger, "wage", "one")
    ask(one, 1, 4)
    run(ledger, "bonus", epsilon=0.5, max_epsilon=2.0)
    ask(one, 2, 1)
    run(ledger, "other", epsilon=0.5, max_epsilon=1.25, new_people=True)
    for site in (one, *sites(ledger, "wage", "one")):  # also where it is resumed
        with pytest.raises(AlreadyAnswered, match=r"max_epsilon=1\.25, the last limit given"):
            ask(site, 3, 1)
    (raised,) = sites(ledger, "wage", "one", max_epsilon=1.5)
    ask(raised, 3, 1)
    ask(one, 4, 1)  # it holds for all


def test_people_are_left_out_by_a_limit_that_was_given_since() -> None:
    ledger = Ledger.in_memory()
    (one,) = sites(ledger, "wage", "one", person=True)
    ask(one, 1, 4)
    run(ledger, "bonus", person=True, max_epsilon=2.0)
    assert one.available() == 4
    run(ledger, "other", epsilon=0.5, max_epsilon=1.5, new_people=True)
    assert one.available() == 0
    with pytest.raises(AlreadyAnswered):
        ask(one, 2, 1)


def test_a_limit_that_was_refused_or_undone_is_not_kept() -> None:
    ledger = Ledger.in_memory()
    run(ledger, "wage", max_epsilon=2.0)
    with pytest.raises(AlreadyAnswered):
        run(ledger, "bonus", max_epsilon=1.0)
    (site,) = sites(ledger, "bonus", "undone", max_epsilon=2.5)
    with suppress(RuntimeError), ledger.transaction():
        ask(site, 1, 4)
        raise RuntimeError
    assert ledger.max_epsilon == 2.0
    ask(site, 1, 4)
    assert ledger.max_epsilon == 2.5


def test_two_connections_look_under_the_lock(tmp_path: Path) -> None:
    """Each run was opened when there was no limit, and room for it; at the answer both are looked up anew."""
    path, keys = tmp_path / "ledger.db", tmp_path / "keys"
    with Ledger.open(path, keys=keys) as made:
        run(made, "age", epsilon=0.25)
    with Ledger.open(path, keys=keys) as here, Ledger.open(path, keys=keys) as there:
        (named,) = sites(here, "wage", "named", person=True)
        (later,) = sites(here, "bonus", "later", person=True)
        (nameless,) = sites(there, "bonus", "nameless")
        assert later.available() == PEOPLE
        run(here, "rent", epsilon=0.25, max_epsilon=2.25)
        ask(named)
        with pytest.raises(AlreadyAnswered, match=r"on top of 1\.5 already"):
            ask(nameless, 1, 4)
        run(there, "bonus", epsilon=0.75)  # the control
        assert later.available() == 0


def test_a_reservation_by_name_counts_for_nameless_runs_and_the_other_way_round(tmp_path: Path) -> None:
    for first, second in ((True, False), (False, True)):
        path = tmp_path / f"{first}.db"
        with Ledger.open(path, keys=tmp_path / "keys") as here:
            (one,) = sites(here, "wage", "one", person=first, max_epsilon=1.0)
            one.reserve(PEOPLE)
            with Ledger.open(path, keys=tmp_path / "keys") as there, pytest.raises(AlreadyAnswered):
                sites(there, "bonus", "two", person=second)[0].reserve(PEOPLE)
            one.account.release()
            with Ledger.open(path, keys=tmp_path / "keys") as there:
                sites(there, "bonus", "two", person=second)[0].reserve(PEOPLE)


def test_data_sets_that_share_a_digest_are_never_taken_out() -> None:
    ledger = Ledger.in_memory()
    run(ledger, "wage", max_epsilon=1.0)
    for column in ("wage", "bonus"):
        with pytest.raises(AlreadyAnswered, match="on top of 1 already") as refused:
            run(ledger, column, split=column == "wage", new_people=column == "wage")
        assert ("new-people" in str(refused.value)) == (column == "bonus")  # where it would not help, it is not said
    run(ledger, "wage", split=True, new_people=True, max_epsilon=2.0)  # the holder's word against the digests
    for number in (1, 2):
        with pytest.raises(InputError, match="its people are no new ones"):
            say_new(ledger, number)
    with pytest.raises(AlreadyAnswered, match="on top of 2 already"):
        run(ledger, "bonus")


@pytest.mark.parametrize("again", [{"split": True}, {"person": True}])
@pytest.mark.parametrize("first", [{}, {"split": True}, {"person": True}])
def test_the_word_does_not_hide_the_same_records_from_the_next_run(first: Any, again: Any) -> None:
    """Before, a data set of new people was left out until the other one was entered: its records spent 2 of 1."""
    ledger = Ledger.in_memory()
    run(ledger, "wage", **first, new_people=True, max_epsilon=1.0)
    with pytest.raises(AlreadyAnswered):
        run(ledger, "wage", **({} if first == again else again))
    run(ledger, "bonus")  # the control: the word still holds for other records


def test_the_word_about_an_earlier_data_set_is_heard() -> None:
    ledger = Ledger.in_memory()
    run(ledger, "wage", max_epsilon=1.0)
    with pytest.raises(AlreadyAnswered):
        run(ledger, "bonus", person=True)
    say_new(ledger, 1)
    run(ledger, "bonus", person=True)
    with pytest.raises(AlreadyAnswered):
        run(ledger, "rent")
    say_new(ledger, 2)  # people known by name, too
    run(ledger, "rent")
    assert [line.new_people for line in statement(ledger).datasets] == [True, False, True]


def test_values_without_a_name_are_named_first() -> None:
    ledger = Ledger.in_memory()

    def unnamed(values: Any, value: str | None = None) -> None:
        own = shuffle(open_source(values, value=value), ledger)["all"]
        fair, rules = RandomizedResponse.from_epsilon(1.0), SpendingRules(max_epsilon=1.0)
        ask(Responder(f"run {ledger.position.sequence}", own, fair, ledger, OperatingSystemCoins(), rules=rules))

    run(ledger, "wage")
    for problem in (AlreadyAnswered, OtherContent):
        with pytest.raises(problem, match=r"First name the column, which had no name: value=NAME\..*new_people=True"):
            unnamed(np.arange(9.0))
        ledger = Ledger.in_memory()
        unnamed(np.arange(5.0))
    with pytest.raises(AlreadyAnswered) as refused:
        unnamed(np.arange(9.0), "bonus")
    assert "First name" not in str(refused.value)


def test_after_a_restore_a_run_keeps_what_it_had_reserved_beside_another_column() -> None:
    ledger = Ledger.in_memory()
    for column in ("wage", "bonus"):
        (site,) = sites(ledger, column, column, spend_again=False, max_epsilon=2.0)
        site.reserve(PEOPLE)
        ask(site, 1, 4)
    mark_restored(ledger)
    (site,) = sites(ledger, "wage", "wage", spend_again=False, max_epsilon=2.0)
    site.account.prove()
    ask(site, 2, 4)
    with pytest.raises(PrivatileError):  # the control
        run(ledger, "rent", max_epsilon=9.0)


# -- the file --------------------------------------------------------------------------------------------------------

EDITS = {
    "the limit is raised": "UPDATE meta SET value = 9.0 WHERE key = 'max_epsilon'",
    "the limit is removed": "DELETE FROM meta WHERE key = 'max_epsilon'",
    "a word is added": "INSERT INTO meta VALUES ('new people 1', x'01')",
    "a word is removed": "DELETE FROM meta WHERE key = 'new people 2'",
    "a word is moved": "UPDATE meta SET key = 'new people 1' WHERE key = 'new people 2'",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("made")
    with Ledger.open(where / "ledger.db", keys=where / "keys") as ledger:
        run(ledger, "wage", max_epsilon=1.0)
        run(ledger, "other", new_people=True)
        ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return where


@pytest.mark.parametrize("what", EDITS)
def test_an_edited_limit_or_word_is_found(made: Path, tmp_path: Path, what: str) -> None:
    path = Path(shutil.copy(made / "ledger.db", tmp_path / "ledger.db"))
    Ledger.open(path, keys=made / "keys").close()
    with sqlite3.connect(path) as direct:
        assert direct.execute(EDITS[what]).rowcount == 1
    direct.close()
    with pytest.raises(LedgerError, match="was altered"):
        Ledger.open(path, keys=made / "keys")


def test_what_was_looked_at_inside_a_transaction_that_was_undone_is_looked_at_again() -> None:
    """Run one asked a single record, which was undone, then all of them: its only answer both times."""
    with Ledger.in_memory() as ledger:
        (one,) = sites(ledger, "wage", "one")
        limit = RecordLimit(ledger, "two", one.account.content, False)
        with suppress(InterruptedError), ledger.transaction():
            one.answer(Question("one", 1, 0.5, 3.0, 1))
            assert limit.spent_within(PEOPLE - 1, PEOPLE) == 0.0
            raise InterruptedError
        one.answer(Question("one", 1, 0.5, 3.0, PEOPLE))
        assert limit.spent_within(PEOPLE - 1, PEOPLE) == pytest.approx(1.0)
