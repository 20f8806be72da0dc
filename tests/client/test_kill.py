"""kill -9 at random moments: no record answers twice, no acknowledged answer is lost."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from privatile.client.ledger.datasets import statement
from privatile.client.ledger.ledger import Ledger

KILLS = 20 if os.environ.get("PRIVATILE_LONG") else 5
ROUNDS = 4_000
RECORDS = {"north": 9_000, "south": 14_000}

SCRIPT = r"""
import sys
from pathlib import Path
import numpy as np
from privatile.client.randomizer import OperatingSystemCoins
from privatile.client.ledger.ledger import Ledger
from privatile.client.responder import Responder, answer_all
from privatile.client.order.shuffle import shuffle
from privatile.client.sources.databases import open_source
from privatile.core.mechanism import RandomizedResponse
from privatile.core.messages import Question
folder, rounds, by_person = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "people"
ledger = Ledger.open(folder + "/ledger.db")
key = ledger.person_key(Path(folder, "person.key")) if by_person else None
source = open_source(folder + "/data.csv", value="x", client="c", person="who" if by_person else None)
columns = shuffle(source, ledger, person_key=key, memory_rows=5_000)
sites = [Responder("run", column, RandomizedResponse.from_epsilon(1.0), ledger, OperatingSystemCoins())
         for column in columns.values()]
done = ledger.execute("SELECT coalesce(max(round), 0) FROM answers").fetchone()[0]
print("ready", flush=True)
for number in range(max(1, done), rounds + 1):  # the last round is asked again: its acknowledgement may be lost
    questions = [Question(run="run", round=number, level=0.5, query=number % 7, length=1 + (number + k) % 3)
                 for k in range(len(sites))]
    for answer in answer_all(zip(sites, questions)):
        print(number, answer.client, answer.ones, flush=True)
print("end", flush=True)
"""


def start(folder: Path, rounds: int, kind: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", SCRIPT, str(folder), str(rounds), kind]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def acknowledged(text: str) -> list[tuple[int, str, int]]:
    """Complete lines only: what is cut off was not acknowledged."""
    lines = [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [(int(words[0]), words[1], int(words[2])) for words in lines if len(words) == 3]


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["records", "people"])
def test_kill_nine(tmp_path: Path, kind: str) -> None:
    rng = random.Random(5)
    rows = [(client, k) for client, count in RECORDS.items() for k in range(count)]
    rng.shuffle(rows)
    (tmp_path / "data.csv").write_text("x,c,who\n" + "".join(f"{k % 11},{c},{c}{k}\n" for c, k in rows))
    heard: dict[tuple[int, str], int] = {}
    killed = 0
    # On a busy machine some are killed before their first answer: then there are more kills.
    while killed < KILLS or (killed < 8 * KILLS and len({number for number, _ in heard}) <= KILLS):
        with start(tmp_path, ROUNDS, kind) as process:
            assert process.stdout is not None
            # Some die before they are ready, most in the middle of a commit.
            if killed % 4:
                assert process.stdout.readline() == "ready\n"
            time.sleep(rng.uniform(0.0, 0.08))
            process.send_signal(signal.SIGKILL)
            text = process.stdout.read()
        assert "end" not in text
        killed += 1
        for number, client, ones in acknowledged(text):
            assert heard.setdefault((number, client), ones) == ones  # asked again, the same count
        if (tmp_path / "ledger.db").exists():
            check(tmp_path, heard, kind)
    assert len({number for number, _ in heard}) > KILLS
    last = max(number for number, _ in heard) + 10
    process = start(tmp_path, last, kind)
    text, _ = process.communicate()
    assert text.endswith("end\n")
    for number, client, ones in acknowledged(text):
        assert heard.setdefault((number, client), ones) == ones
    check(tmp_path, heard, kind)
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        rounds = ledger.execute("SELECT count(*), max(round) FROM answers WHERE client = 'north'").fetchone()
        assert rounds == (last, last)  # every round once, none left out


def check(folder: Path, heard: dict[tuple[int, str], int], kind: str) -> None:
    with Ledger.open(folder / "ledger.db") as ledger:
        ledger.verify()
        stored = {
            (number, client): ones for number, client, ones in ledger.execute("SELECT round, client, ones FROM answers")
        }
        assert heard.items() <= stored.items()
        for client, records in RECORDS.items():
            times = np.zeros(records, dtype=int)
            for begin, end in ledger.execute("SELECT start, stop FROM answers WHERE client = ?", (client,)):
                times[begin:end] += 1
            assert times.max() <= 1
        told = statement(ledger)
        assert max((line.epsilon for line in told.datasets), default=0.0) <= 1.0
        if kind == "people":
            assert told.people == sum(line.reports for line in told.datasets)
            assert told.person_epsilon <= 1.0


@pytest.mark.process
def test_the_check_notices_a_record_that_answers_twice(tmp_path: Path) -> None:
    """Negative control: somebody who has the key sets the cursor back, as a fresh shuffle after a crash would."""
    (tmp_path / "data.csv").write_text("x,c,who\n" + "".join(f"{k},{c},{c}{k}\n" for c in RECORDS for k in range(500)))
    start(tmp_path, 20, "records").communicate()
    with Ledger.open(tmp_path / "ledger.db") as ledger, ledger.transaction():
        ledger.update("datasets", "cursor = 0", (), "1", ())
    start(tmp_path, 25, "records").communicate()
    with pytest.raises(AssertionError):
        check(tmp_path, {}, "records")
