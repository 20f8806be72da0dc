"""Everything that is read from outside, damaged in many ways: a clear error or a valid reading, and nothing else.

120 damaged inputs of each kind in the suite, 10,000 with PRIVATILE_LONG=1. Every input must be accepted, or refused
with one of privatile's own errors, whose text can be printed and holds no record; within a second, and in memory that
does not grow with what the input asks for. A failure names the number of its input; `made` makes it again.
"""

from __future__ import annotations

import base64
import json
import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from privatile.client.ledger.datasets import statement
from privatile.client.ledger.integrity import PersonKey
from privatile.client.ledger.ledger import Ledger
from privatile.client.order.shuffle import shuffle
from privatile.client.randomizer import OperatingSystemCoins
from privatile.client.responder import Responder
from privatile.client.sources import files
from privatile.client.sources.databases import open_source
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Answer, Position, Question
from privatile.errors import PrivatileError
from privatile.federation.coordinator.journal import Journal
from privatile.federation.operations.record import release, verify_record
from privatile.federation.setup.invitation import read_enrolment, read_invitation
from privatile.federation.site.limits import read_limits
from privatile.federation.study import load_study, study_toml
from privatile.federation.wire import (
    MAX_ASK,
    Hello,
    Notice,
    RoundAnswers,
    RoundQuestions,
    Signed,
    Welcome,
    read_message,
)
from privatile.planning.options import Options, read_options
from privatile.records import body_digest, read_record, sign, write_record
from privatile.records.keys import KeyPair
from privatile.run.coordinator import Coordinator
from privatile.run.run_file import RunStore
from privatile.simulation.experiment import read_experiment
from tests.federation.kit import Federation, make_study
from tests.fuzz.mutate import damage_sqlite, damaged_bytes, damaged_csv, damaged_json, damaged_toml

LONG = bool(os.environ.get("PRIVATILE_LONG"))
INPUTS = 10_000 if LONG else 120
IN_MEMORY = next((folder for folder in ("/dev/shm",) if os.access(folder, os.W_OK)), None)
"""A file system in memory, where there is one: thousands of files are written."""

pytestmark = pytest.mark.timeout(7200 if LONG else 600)

SECONDS = 1.0
MEGABYTES = 400
"""How much the peak may grow over all inputs of one kind; the largest that is allowed takes 120 MB."""

SECRETS = ("4711081", "ovelac", "OVELAC")
"""Parts of every record of the CSV file: no message may hold one."""

Kind = tuple[Callable[[Random], Any], Callable[[Any], object]]
"""How an input is damaged, and how it is read."""


class Samples:
    """One valid input of each kind, and where damaged ones are put."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        study = make_study(2, rounds=20, length=4)
        federation = Federation(folder / "federation", study, port=4222)
        self.federation, self.study = federation, study
        self.key = KeyPair.generate()
        self.invitation = federation.directory.invitation_file("site0").read_text()
        self.enrolment = federation.sites["site0"].enrolment_file.read_text()
        self.limits = federation.sites["site0"].limits_file.read_text()
        self._finish_run()
        write_record(self._countersigned(release(federation.directory)), folder / "record.json")
        self.record = (folder / "record.json").read_text()
        self.run_file = federation.directory.store_file.read_bytes()
        self._answer()
        self.text = folder / "input"
        self.kinds: dict[str, Kind] = {
            "invitation": (lambda rng: damaged_json(rng, self.invitation), self._read(read_invitation, ".json")),
            "enrolment": (lambda rng: damaged_json(rng, self.enrolment), self._read(read_enrolment, ".json")),
            "study": (lambda rng: damaged_toml(rng, study_toml(study)), self._read(load_study, ".toml")),
            "study in JSON": (lambda rng: damaged_json(rng, json.dumps(study.to_dict())), self._read_study_json),
            "limits": (lambda rng: damaged_toml(rng, self.limits), self._read(read_limits, ".toml")),
            "release record": (lambda rng: damaged_json(rng, self.record), self._read(self._verify, ".json")),
            "run file": (lambda rng: self._damaged_file(rng, self.run_file, "run.db"), self._read_run),
            "ledger": (lambda rng: self._damaged_file(rng, self.ledger_file, "ledger.db"), self._read_ledger),
            "CSV": (lambda rng: damaged_csv(rng, CSV), self._read_csv),
            "options": (lambda rng: damaged_toml(rng, OPTIONS), self._read(self._options, ".toml")),
            "experiment": (lambda rng: damaged_toml(rng, EXPERIMENT), self._read(read_experiment, ".toml")),
            **{f"wire, {name}": self._wire(message) for name, message in self._messages().items()},
        }

    # -- valid inputs --------------------------------------------------------------------------------------------

    def _finish_run(self) -> None:
        study, names = self.study, list(self.study.clients)
        run = self.federation.open_run()
        keys = {name: site.key() for name, site in self.federation.sites.items()}
        while (rounds := run.coordinator.rounds()) is not None:
            number = rounds[0].questions[0].round
            answers = {}
            for place, name in enumerate(names):
                asked = [one.questions[place] for one in rounds]
                ones = tuple(one.length // 2 for one in asked)
                message = RoundAnswers.of(
                    study.digest, [Answer(q, name, n, Position(number)) for q, n in zip(asked, ones, strict=True)]
                )
                signature = message.pack(keys[name]).rpartition(b"\n")[2].decode()
                answers[name] = Signed(message, keys[name].public.signer, signature)
            counts = [[answers[name].body.ones[place] for name in names] for place in range(len(rounds))]
            run.coordinator.accept(counts, run.journal.evidence_rows(number, answers))
        run.coordinator.finish()
        run.journal.note("finished", "all rounds are done")
        run.store.close()

    def _countersigned(self, record: dict[str, Any]) -> dict[str, Any]:
        """A record with a site's statement, as `countersign` makes it from a ledger."""
        key = self.federation.sites["site0"].key()
        rounds = {"not_counted": [3], "not_in_transcript": [], "lost": [5, 6]}
        facts = {"client": "site0", "record": body_digest(record["body"]), "compared": 17, **rounds}
        statement = {"privatile_countersignature": 1, **facts}
        entry = {"signer": key.public.signer, "statement": statement, "signature": sign(statement, key)}
        return record | {"signatures": record["signatures"] | {"clients": {"site0": entry}}}

    def _answer(self) -> None:
        """A ledger with two runs, one of them with people."""
        path = self.folder / "ledgers" / "ledger.db"
        with Ledger.open(path) as ledger:
            for name, person in (("first", "who"), ("second", None)):
                column = self._column(ledger, person)
                site = Responder(name, column, RandomizedResponse.from_epsilon(1.0), ledger, OperatingSystemCoins())
                site.reserve(12)
                for number in (1, 2):
                    site.answer(Question(name, number, 0.5, 5.0, 3))
        self.ledger_file = path.read_bytes()

    def _column(self, ledger: Ledger, person: str | None) -> Any:
        rows = [(float(k) + (0.0 if person else 0.5), f"p{k}") for k in range(20)]
        table = np.array(rows, dtype=[("x" if person else "y", float), ("who", "U9")])
        source = open_source(table, value="x" if person else "y", person=person)
        return shuffle(source, ledger, person_key=PersonKey(b"p" * 32) if person else None)["all"]

    def _messages(self) -> dict[str, Any]:
        digest, run, link = "0" * 64, "a run", Position(3, b"0" * 16)
        asked = {"north": (Question(run, 3, 0.5, 10.0, 5),), "south": (Question(run, 3, 0.5, 10.0, 7),)}
        answer = Answer(asked["north"][0], "north", 2, Position(3))
        hello = Hello(digest, "north", "1" * 32, link, None, "2" * 32, None)
        return {
            "ask": RoundQuestions.of(digest, asked),
            "answer": RoundAnswers.of(digest, [answer]),
            "hello": hello,
            "welcome": Welcome(digest, "north", "1" * 32, link, 3, 15, "", "2" * 32, "3" * 32),
            "notice": Notice(digest, run, "paused", "too many are silent"),
        }

    # -- damage --------------------------------------------------------------------------------------------------

    def _wire(self, message: Any) -> Kind:
        def damaged(rng: Random) -> bytes:
            if rng.random() < 0.2:
                return damaged_bytes(rng, message.pack(self.key))
            body = damaged_json(rng, message.text().decode())
            return body + b"\n" + base64.b64encode(self.key.sign(body))

        def read(payload: bytes) -> object:
            found = read_message(payload, self.key.public.signer, MAX_ASK)
            if isinstance(found, RoundQuestions):
                return found.questions("north")
            return found.counts if isinstance(found, RoundAnswers) else found

        return damaged, read

    def _damaged_file(self, rng: Random, content: bytes, name: str) -> Path:
        path = self.folder / name
        for suffix in ("", "-wal", "-shm", "-journal"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        path.write_bytes(content)
        damage_sqlite(rng, path)
        return path

    # -- reading -------------------------------------------------------------------------------------------------

    def _read(self, read: Callable[[Path], object], suffix: str) -> Callable[[bytes], object]:
        def from_file(content: bytes) -> object:
            path = self.text.with_suffix(suffix)
            path.write_bytes(content)
            return read(path)

        return from_file

    def _read_study_json(self, content: bytes) -> object:
        """As an invitation carries it, with a hash that fits: the study itself must be refused."""
        path = self.text.with_suffix(".json")
        head, _, tail = json.dumps(json.loads(self.invitation) | {"study": "HERE"}).partition('"HERE"')
        path.write_bytes(head.encode() + content + tail.encode())
        return read_invitation(path).rows()

    def _verify(self, path: Path) -> str:
        return verify_record(read_record(path), self.federation.directory.store_file).to_text()

    def _read_run(self, path: Path) -> object:
        with RunStore.open(path, read_only=True) as store:
            journal = Journal(store)
            list(journal.events())
            journal.links(), journal.heard()
            Coordinator(store).results()
        return verify_record(json.loads(self.record), path).to_text()

    def _read_ledger(self, path: Path) -> object:
        with Ledger.open(path, read_only=True) as ledger:
            statement(ledger)
        with Ledger.open(path) as ledger:
            column = self._column(ledger, "who")
            site = Responder("first", column, RandomizedResponse.from_epsilon(1.0), ledger, OperatingSystemCoins())
            site.answer(Question("first", 3, 0.5, 5.0, 3))
            return ledger.verify()

    def _read_csv(self, content: bytes) -> object:
        path = self.text.with_suffix(".csv")
        path.write_bytes(content)
        source = open_source(path, value="wage", client="region", person="who")
        return shuffle(source, Ledger.in_memory(), person_key=PersonKey(b"p" * 32), minimum_records=0)

    def _options(self, path: Path) -> object:
        _, content = read_options(path)
        options = Options(**content)
        return replace(options, save=None).levels


CSV = "wage,region,who\n" + "".join(f"{47110810 + k}.5,{'ab'[k % 2]},Lovelace {k % 8}\n" for k in range(10))
OPTIONS = """data = "salaries.csv"
q = [0.25, 0.5]
epsilon = 1.0
range = [0, 100000]
scale = "linear"
value = "wage"
client = "region"
client_weights = "equal"
rounds = 100
confidence_level = 0.9
max_epsilon = 2.0
spend_again = false
ledger = "ledger.db"
"""
EXPERIMENT = """title = "An experiment"
clients = 3
replications = 10
seed = 1
weights = [0.5, 0.25, 0.25]
[populations]
same = "normal"
moved = {family = "normal", location = [0, 1, 2]}
[truth_rates]
mixed = {from = 0.25, to = 0.9}
[methods]
C1 = {lengths = 1, mode = "local", warm_up = 0.05}
P = {lengths = {power = 0.5}}
[[grid]]
population = ["same", "moved"]
level = [0.5]
truth_rate = [0.25, "mixed"]
method = ["C1", "P"]
records = [100]
"""

KINDS = (
    *("invitation", "enrolment", "study", "study in JSON", "limits", "release record", "run file", "ledger", "CSV"),
    *("options", "experiment"),
    *(f"wire, {kind}" for kind in ("ask", "answer", "hello", "welcome", "notice")),
)


@pytest.fixture(scope="module")
def samples() -> Iterator[Samples]:
    """duckdb is opened once, and a result is computed once for the same counts: both take most of the time."""
    connect, results = lru_cache(files.connect), Coordinator.results
    known: dict[str, Any] = {}

    def remembered(coordinator: Coordinator) -> Any:
        counts = str((coordinator.spec, list(coordinator.store.all_rounds())))
        if counts not in known:
            known[counts] = results(coordinator)
        return known[counts]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "connect", connect)
        patch.setattr(Coordinator, "results", remembered)
        with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
            yield Samples(Path(folder))


def made(samples: Samples, kind: str, number: int) -> Any:
    """The damaged input with this number."""
    damage, _ = samples.kinds[kind]
    return damage(Random(f"{kind} {number}"))


def problem_of(read: Callable[[Any], object], damaged: Any, limit: float = SECONDS) -> tuple[bool, str]:
    """Whether the input was accepted, and what is wrong with how it was read; empty where nothing is."""
    begun = time.process_time()
    accepted, problem = False, ""
    try:
        read(damaged)
        accepted = True
    except PrivatileError as error:
        text = str(error)
        if not text or not all(letter.isprintable() or letter == "\n" for letter in text):
            problem = f"an error that cannot be printed: {text[:300]!r}"
        elif any(secret in text for secret in SECRETS):
            problem = "an error that shows a record"
        elif len(text) > 30_000:
            problem = f"an error of {len(text)} characters"
    except Exception as error:
        problem = f"{type(error).__name__}: {str(error)[:300]}"
    seconds = time.process_time() - begun
    if not problem and seconds > limit:
        problem = f"it took {seconds:.1f} s"
    return accepted, problem


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_input_is_refused_with_a_clear_error(kind: str, samples: Samples) -> None:
    _, read = samples.kinds[kind]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    problems, valid = [], 0
    for number in range(INPUTS):
        accepted, problem = problem_of(read, made(samples, kind, number))
        valid += accepted
        if problem:
            problems.append(f"input {number}: {problem}")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) // 1024
    print(f"{kind}: {INPUTS} damaged inputs, {valid} still valid, {len(problems)} problems, peak grew by {grown} MB")
    assert problems == [], "\n".join(problems[:20])
    assert grown < MEGABYTES
    assert valid < INPUTS  # the damage is damage


def test_the_undamaged_samples_are_accepted(samples: Samples) -> None:
    """The control: what the test above refuses is refused because it is damaged."""
    for kind in ("invitation", "enrolment", "limits"):
        samples.kinds[kind][1](getattr(samples, kind).encode())
    samples.kinds["study"][1](study_toml(samples.study).encode())
    samples.kinds["CSV"][1](CSV.encode())
    samples.kinds["options"][1](OPTIONS.encode())
    samples.kinds["experiment"][1](EXPERIMENT.encode())
    for kind, content in (("run file", samples.run_file), ("ledger", samples.ledger_file)):
        path = samples.folder / "undamaged.db"
        path.write_bytes(content)
        samples.kinds[kind][1](path)
        path.unlink()
    for message in samples._messages().values():
        assert read_message(message.pack(samples.key), samples.key.public.signer, MAX_ASK) == message
    checked = verify_record(json.loads(samples.record), samples.federation.directory.store_file)
    assert checked.failed == []
    assert len(checked.flagged) == 3  # what the countersignature says is looked at, and compared with the file


def test_the_check_notices_a_traceback_a_slow_reading_and_a_record_in_a_message() -> None:
    def slow(damaged: bytes) -> None:
        begun = time.process_time()
        while time.process_time() - begun < 0.1:
            pass

    def refusing(text: str) -> Callable[[bytes], object]:
        def read(damaged: bytes) -> None:
            raise PrivatileError(text)

        return read

    assert "KeyError" in problem_of(lambda damaged: json.loads("{}")["missing"], b"")[1]
    assert "it took 0.1 s" in problem_of(slow, b"", 0.05)[1]
    assert "shows a record" in problem_of(refusing(f"the file holds {SECRETS[0]}"), b"")[1]
    assert "cannot be printed" in problem_of(refusing("it is damaged\x1b[2J"), b"")[1]
    assert problem_of(refusing("it is damaged."), b"") == (False, "")
