"""The command as its users meet it: real files, real exit codes; a real process where one could make a difference."""

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from privatile.cli import main
from privatile.client.ledger.integrity import PersonKey
from privatile.client.ledger.ledger import Ledger

pytestmark = pytest.mark.process

TIMEOUT = 120


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder of its own for state, config and data."""
    rng = np.random.default_rng(9)
    rows = [
        f"{region},{name}{i},{value:.3f}"
        for region, name, size, center in (("north", "n", 3000, 50.0), ("south", "s", 1500, 60.0))
        for i, value in enumerate(rng.normal(center, 10, size))
    ]
    (tmp_path / "data.csv").write_text("region,who,score\n" + "\n".join(rows) + "\n")
    return tmp_path


def surroundings(home: Path) -> dict[str, str]:
    return {**os.environ, "XDG_STATE_HOME": str(home / "state"), "XDG_CONFIG_HOME": str(home / "config")}


def privatile(home: Path, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**surroundings(home), **environment}
    command = [sys.executable, "-m", "privatile", *map(str, arguments)]
    return subprocess.run(command, cwd=home, env=env, capture_output=True, text=True, timeout=TIMEOUT, check=False)


def here(home: Path, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """The same without a process of its own: what is said and written does not depend on one."""
    words = [str(argument) for argument in arguments]
    with contextlib.chdir(home):
        done = CliRunner(env={**surroundings(home), **environment}).invoke(main, words)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)


def started(home: Path, *arguments: object) -> subprocess.Popen[str]:
    """The same, while it runs."""
    command, pipe = [sys.executable, "-m", "privatile", *map(str, arguments)], subprocess.PIPE
    return subprocess.Popen(command, cwd=home, env=surroundings(home), stdout=pipe, stderr=pipe, text=True)


BASE = ("estimate", "data.csv", "--value", "score", "--client", "region", "--range", 0, 100)


def test_one_command_gives_estimate_interval_and_budget(home: Path) -> None:
    done = privatile(home, *BASE, "--epsilon", 2)
    assert done.returncode == 0, done.stderr
    assert "The 0.5 quantile (the median) of score in all records asked of 2 clients together" in done.stdout
    assert re.search(r"95% interval +\d+\.\d+ … \d+\.\d+", done.stdout)
    # What is true of every run is in the documentation, and in the JSON.
    assert "central" not in done.stdout
    assert "no survey weights were given" not in done.stdout
    assert max(map(len, done.stdout.partition("what  ")[2].partition("Also:")[0].splitlines())) <= 80
    # The people are spent and the result is nowhere: it is said, apart from what may be read by a program.
    assert "--save run.db" in done.stderr
    assert "--save" not in done.stdout


def test_json_and_a_file_of_options_say_the_same(home: Path) -> None:
    (home / "options.toml").write_text(
        'data = "data.csv"\nvalue = "score"\nclient = "region"\nq = 0.5\nrange = [0, 100]\nclient_weights = "size"\n'
        'confidence_level = 0.9\ndesign = "paper-c5"\n[epsilon]\nnorth = 3.0\nsouth = 2.0\n'
    )
    done = here(home, "estimate", "options.toml", "--json")
    assert done.returncode == 0, done.stderr
    (facts,) = json.loads(done.stdout)["results"]
    assert facts["confidence_level"] == 0.9
    assert facts["design"] == "paper-c5"
    assert {client["name"]: round(client["epsilon"], 6) for client in facts["clients"]} == {"north": 3.0, "south": 2.0}
    assert {client["name"]: client["weight"] for client in facts["clients"]} == {"north": 2 / 3, "south": 1 / 3}
    low, high = facts["confidence_interval"]["low"], facts["confidence_interval"]["high"]
    assert low < facts["estimate"] < high


def test_per_client_budgets_and_levels_on_the_command_line(home: Path) -> None:
    options = ("--epsilon", "north=1", "--epsilon", "south=0.5", "--q", "north=0.4", "--q", "south=0.6", "--json")
    (facts,) = json.loads(here(home, *BASE, *options).stdout)["results"]
    assert [round(client["epsilon"], 6) for client in facts["clients"]] == [1.0, 0.5]
    assert [client["level"] for client in facts["clients"]] == [0.4, 0.6]
    # The mean of the clients' levels, weighted like the clients, by their 3,000 and 1,500 records.
    assert facts["level"] == pytest.approx((2 * 0.4 + 0.6) / 3)


def test_a_weights_file_and_several_levels(home: Path) -> None:
    (home / "weights.csv").write_text("client,weight\nnorth,0.25\nsouth,0.75\n")
    options = ("--epsilon", 4, "--client-weights", "weights.csv", "--q", 0.3, "--q", 0.7, "--json")
    low, high = json.loads(here(home, *BASE, *options).stdout)["results"]
    assert low["estimate"] < high["estimate"]
    assert low["records"] + high["records"] == 4500
    assert low["clients"][1]["weight"] == 0.75


def test_a_weights_file_named_in_a_file_of_options_lies_beside_it(home: Path) -> None:
    (home / "studies").mkdir()
    (home / "studies" / "weights.toml").write_text("north = 0.333333\nsouth = 0.666667\n")
    options = home / "studies" / "options.toml"
    options.write_text(
        'data = "../data.csv"\nvalue = "score"\nclient = "region"\nepsilon = 4\nrange = [0, 100]\n'
        'client_weights = "weights.toml"\n'
    )
    (facts,) = json.loads(here(home, "estimate", options, "--json").stdout)["results"]
    assert [client["weight"] for client in facts["clients"]] == pytest.approx([1 / 3, 2 / 3], abs=1e-6)
    options.write_text(options.read_text().replace("weights.toml", "nothing.csv"))
    done = here(home, "estimate", options, "--json")
    assert done.returncode == 2
    assert "'nothing.csv' is none of these" in done.stderr


def test_a_second_run_is_refused_and_can_be_accepted(home: Path) -> None:
    assert here(home, *BASE, "--epsilon", 1).returncode == 0
    again = here(home, *BASE, "--epsilon", 1)
    assert again.returncode == 2
    assert "epsilon 1 each is spent; another run over them would make it 2" in again.stderr
    assert again.stdout == ""
    accepted = here(home, *BASE, "--epsilon", 1, "--spend-again", "--save", "again.db")
    assert accepted.returncode == 0, accepted.stderr
    # They have answered twice by now: text and page speak of this run only.
    assert "4,500, each once in this run" in accepted.stdout
    assert here(home, "report", "again.db", "-o", "page.html").returncode == 0
    page = (home / "page.html").read_text()
    assert "records answered, each once in this run" in page
    assert "the most that any record spent in this run" in page
    shown = json.loads(here(home, "ledger", "show", "--json").stdout)
    assert [round(line["epsilon"], 6) for line in shown["datasets"]] == [2.0, 2.0]
    text = here(home, "ledger", "show").stdout
    assert re.search(r"north +score +3,000 +6,000 +2 +2\n", text)


def test_a_saved_run_is_shown_again_without_asking(home: Path) -> None:
    options = (*BASE, "--epsilon", 1, "--save", "run.db", "--json")
    first, second = here(home, *options), here(home, *options)
    assert first.stdout == second.stdout
    assert "Nothing was saved" not in first.stderr
    assert "no one is asked" in second.stderr
    other = here(home, *BASE, "--epsilon", 1, "--q", 0.3, "--save", "run.db")
    assert other.returncode == 2
    assert "holds another run" in other.stderr


def test_a_result_that_cannot_be_printed_is_not_lost(home: Path) -> None:
    env = surroundings(home)
    command = [sys.executable, "-m", "privatile", *map(str, BASE), "--epsilon", "1", "--json"]
    with Path("/dev/full").open("w") as full:
        lost = subprocess.run(command, cwd=home, env=env, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert lost.returncode == 1
    assert "Traceback" not in lost.stderr
    again = here(home, *BASE, "--epsilon", 1, "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["results"][0]["records"] == 4500
    assert "no one is asked" in again.stderr
    # Shown once, it is gone: what is left is the ledger's account.
    assert here(home, *BASE, "--epsilon", 1).returncode == 2


def test_a_dry_run_spends_nothing(home: Path) -> None:
    done = here(home, *BASE, "--epsilon", 1, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "no one was" in done.stdout
    assert "Nothing was saved" not in done.stderr
    assert not (home / "state").exists()
    reach = json.loads(here(home, *BASE, "--epsilon", 1, "--dry-run", "--json", "--value-kind", "continuous").stdout)
    # 2·z·√(Σ p²/(4 r² n)) with r = tanh(½) is the least; a run this small loses a fifth or so to search and slope.
    least = 2 * 1.96 * np.sqrt(1 / 4500 / 4) / np.tanh(0.5)
    assert 1.0 < reach["expected_width_in_rank"][0] / least < 1.4
    # What holds whatever the distribution is three to four times as wide.
    reach = json.loads(here(home, *BASE, "--epsilon", 1, "--dry-run", "--json").stdout)
    assert 3.0 < reach["expected_width_in_rank"][0] / least < 4.0
    options = (*BASE, "--epsilon", 1, "--dry-run", "--json", "--interval", "self-normalized")
    reach = json.loads(here(home, *options).stdout)
    assert reach["expected_width_in_rank"][0] / least == pytest.approx(1.3, rel=1e-3)


def test_a_dry_run_says_what_the_result_would_say_of_its_support(home: Path) -> None:
    (home / "many.csv").write_text("score\n" + "\n".join(str(i % 97 + i / 12_000) for i in range(12_000)) + "\n")
    enough = ("estimate", "many.csv", "--value", "score", "--range", 0, 100, "--epsilon", 5, "--dry-run")
    assert ": the rank is known within a standard error of 0.0046." in here(home, *enough).stdout
    assert "Beware" not in here(home, *enough).stdout
    options = (*BASE, "--epsilon", 1, "--q", 0.1, "--q", 0.5)
    shown = json.loads(here(home, *options, "--dry-run", "--json").stdout)
    text = here(home, *options, "--dry-run").stdout
    results = json.loads(here(home, *options, "--json").stdout)["results"]
    assert shown["information"] == [result["information"] for result in results]
    said = [caveat for result in results for caveat in result["caveats"] if caveat["code"] == "support"]
    assert len(said) == 2
    foreseen = [caveat for caveat in shown["caveats"] if caveat["code"] == "support"]
    assert [caveat["text"] for caveat in foreseen] == [caveat["text"] for caveat in said]
    assert [caveat["level"] for caveat in foreseen] == [0.1, 0.5]
    assert all(f"Beware: {caveat['text']}" in text for caveat in said)


def test_persons_are_the_unit_when_named(home: Path) -> None:
    text = (home / "data.csv").read_text()
    repeated = text + "\n".join(line for line in text.splitlines()[1:501]) + "\n"
    (home / "twice.csv").write_text(repeated)
    options = ("--value", "score", "--client", "region", "--range", 0, 100, "--person", "who", "--epsilon", 1, "--json")
    (facts,) = json.loads(here(home, "estimate", "twice.csv", *options).stdout)["results"]
    assert facts["records"] == 4500
    assert "person" in {caveat["code"] for caveat in facts["caveats"]}
    assert (home / "config" / "privatile" / "person.key").stat().st_mode & 0o777 == 0o600


def test_first_runs_that_race_hash_people_under_one_key_and_each_person_answers_once(home: Path) -> None:
    """Two make one ledger, one has its own: each has the keys that the fastest made, or is refused by the ledger."""
    options = (*BASE, "--person", "who", "--epsilon", 1, "--max-epsilon", 1, "--json")
    (home / "own").mkdir()
    racing = [
        started(home, *options, "--q", level, "--ledger", book)
        for level, book in ((0.4, "shared.db"), (0.5, "shared.db"), (0.5, "own/own.db"))
    ]
    ends = [(process, *process.communicate(timeout=TIMEOUT)) for process in racing]
    errors = [err for process, _, err in ends if process.returncode]
    assert not any("File exists" in err for err in errors), errors
    assert all(re.search("have answered|answered before|people left that may answer", err) for err in errors), errors
    asked = [json.loads(out)["results"][0]["records"] if out else 0 for _, out, _ in ends]
    assert (asked[0] + asked[1], asked[2]) == (4500, 4500)
    key = PersonKey.read(home / "config" / "privatile" / "person.key")
    for book in ("shared.db", "own/own.db"):
        facts = json.loads(here(home, "ledger", "show", book, "--json").stdout)
        assert (facts["people"], facts["person_epsilon"]) == (4500, 1.0)
        with Ledger.open(home / book, read_only=True) as ledger:
            assert ledger.meta("person key") == key.fingerprint


BAD = [
    ((), "there is no default"),
    (("--epsilon", 0), "epsilon must lie in"),
    (("--epsilon", "nan"), "epsilon must lie in"),
    (("--epsilon", -1), "epsilon must lie in"),
    (("--epsilon", 12), "--allow-weak"),
    (("--epsilon", "much"), "takes a number"),
    (("--epsilon", 1, "--not-private"), "exclude each other"),
    (("--epsilon", 1, "--q", 0), r"inside \(0, 1\)"),
    (("--epsilon", 1, "--q", 1.5), r"inside \(0, 1\)"),
    (("--epsilon", 1, "--q", 0.5, "--q", 0.5), "once only"),
    (("--epsilon", "north=1"), "missing for client 'south'"),
    (("--epsilon", "north=1", "--epsilon", "east=1", "--epsilon", "south=1"), "names 'east'"),
    (("--epsilon", "north=1", "--epsilon", 2), "not both"),
    (("--epsilon", "north=1", "--epsilon", "north=2"), "names client 'north' more than once"),
    (("--epsilon", 1, "--epsilon", 2), "was given 2 times"),
    (("--epsilon", 1, "--client-weights", "nothing.csv"), "none of these"),
    (("--epsilon", 1, "--client-weights", "torn.csv"), "torn.csv cannot be read"),
    (("--epsilon", 1, "--client-weights", "words.csv"), "words.csv cannot be read"),
    (("--epsilon", 1, "--client-weights", "twice.csv"), "more than once"),
    (("--epsilon", 1, "--client-weights", "negative.toml"), "positive"),
    (("--epsilon", 1, "--client-weights", "long.toml"), "sum to 1; they sum to 1.2"),
    (("--epsilon", 1, "--client-weights", "short.toml"), "missing for client 'south'"),
    (("--epsilon", 1, "--value", "scores"), "score"),
    (("--epsilon", 1, "--value", "who"), "must hold numbers"),
    (("--epsilon", 1, "--client", "area"), "region"),
    (("--epsilon", 1, "--rounds", 1501), "fewer"),
    (("--epsilon", 1, "--rounds", 1), "at least 20"),
    (("--epsilon", 1, "--rounds", 1, "--design", "rounds"), "at least 2"),
    (("--epsilon", 1, "--range", 100, 0), "low < high"),
    (("--epsilon", 1, "--range", 0, 100, "--scale", "log"), "above 0"),
    (("--epsilon", 1, "--seed", 7), "operating system only"),
    (("--epsilon", 1, "--simulate", "--ledger", "l.db"), "No such option '--simulate'"),
    (("--epsilon", 1, "--design", "paper-c9"), "design must be one of"),
    (("--epsilon", 1, "--confidence-level", 95), "--confidence-level must lie"),
    (("--epsilon", 1, "--dither", -5), "width of 0 or more"),
    (("--epsilon", 1, "--max-epsilon", 0.5), "allows epsilon 0.5 for life"),
    (("--epsilon", 1, "--nonsense"), "No such option"),
]


@pytest.mark.parametrize(("options", "text"), BAD)
def test_bad_input_is_refused_with_exit_2_and_nothing_written(
    home: Path, options: tuple[object, ...], text: str
) -> None:
    (home / "negative.toml").write_text("north = 1.5\nsouth = -0.5\n")
    (home / "long.toml").write_text("north = 0.6\nsouth = 0.6\n")
    (home / "short.toml").write_text("north = 1.0\n")
    (home / "torn.csv").write_text("client\nnorth\nsouth\n")
    (home / "words.csv").write_text("client,weight\nnorth,half\nsouth,half\n")
    (home / "twice.csv").write_text("client,weight\nnorth,0.5\nnorth,0.5\n")
    done = here(home, *BASE, *options)
    assert done.returncode == 2, done.stdout + done.stderr
    assert re.search(text, done.stderr), done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert not (home / "state").exists()


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("empty.csv", "region,score\n", "no records"),
        ("one.csv", "region,score\nnorth,1\n", "record"),
        ("gone.csv", "region,score\n" + "north,\n" * 50, "missing"),
        ("torn.parquet", "PAR1 and then the disk was full", "torn.parquet"),
        ("options.toml", 'data = "data.csv"\nepsilom = 1\nrange = 5\n', "Did you mean 'epsilon'"),
        ("broken.toml", "data = ", "is not valid TOML"),
        ("shown.toml", 'data = "data.csv"\ndry_run = true\n', "estimate shown.toml --dry-run"),
        ("simulate.toml", 'data = "data.csv"\nsimulate = true\nledger = "l.db"', "simulate: there is no such setting"),
        ("seed.toml", 'data = "data.csv"\nseed = 5\n', "seed: there is no such setting"),
    ],
)
def test_bad_files_are_refused_with_exit_2_and_nothing_written(home: Path, name: str, content: str, text: str) -> None:
    (home / name).write_text(content)
    options = ("--value", "score", "--client", "region", "--range", 0, 100, "--epsilon", 1)
    done = here(home, "estimate", name, *options)
    assert done.returncode == 2, done.stdout + done.stderr
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert not (home / "state").exists()


def test_a_range_that_excludes_the_answer_is_a_caveat(home: Path) -> None:
    (facts,) = json.loads(here(home, *BASE[:-2], 70, 100, "--epsilon", 4, "--json").stdout)["results"]
    assert "range" in {caveat["code"] for caveat in facts["caveats"]}


def test_no_environment_variable_or_hash_seed_fixes_the_coins(home: Path) -> None:
    """Two runs over fresh ledgers with every plausible seed variable set still differ."""
    seeds = dict.fromkeys(("SEED", "PRIVATILE_SEED", "NUMPY_SEED", "RANDOM_SEED"), "7")
    runs = [
        json.loads(
            privatile(home, *BASE, "--epsilon", 1, "--json", "--ledger", f"{i}.db", PYTHONHASHSEED="0", **seeds).stdout
        )
        for i in range(2)
    ]
    assert runs[0]["results"][0]["estimate"] != runs[1]["results"][0]["estimate"]


def test_state_is_for_its_owner_only(home: Path) -> None:
    assert privatile(home, *BASE, "--epsilon", 1).returncode == 0
    state = home / "state" / "privatile"
    assert {path.name: path.stat().st_mode & 0o777 for path in (state, *state.iterdir())} == {
        "privatile": 0o700,
        "runs": 0o700,
        "ledger.db": 0o600,
    }
    lost = here(home, *BASE, "--epsilon", 1, XDG_STATE_HOME=str(home / "data.csv"))
    assert lost.returncode == 2
    assert "Set XDG_STATE_HOME" in lost.stderr


def test_a_ledger_in_use_is_said(home: Path) -> None:
    assert here(home, *BASE, "--epsilon", 1, "--ledger", "ledger.db").returncode == 0
    holder = sqlite3.connect(home / "ledger.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    done = privatile(home, *BASE, "--epsilon", 1, "--spend-again", "--ledger", "ledger.db")
    holder.close()
    assert done.returncode == 2
    assert "is in use by another process. Wait" in done.stderr
    assert done.stderr.count("\n") == 1


def counted_once(ledger: Path) -> dict[str, list[tuple[int, int]]]:
    """Stretches of the permutation that each client's answers used, in order."""
    with sqlite3.connect(ledger) as database:
        rows = database.execute("SELECT client, start, stop FROM answers ORDER BY client, start").fetchall()
    database.close()
    stretches: dict[str, list[tuple[int, int]]] = {}
    for client, start, stop in rows:
        stretches.setdefault(client, []).append((start, stop))
    return stretches


def look_into(path: Path, query: str) -> list[tuple[int, str]]:
    """Rows of a run's file as it is now; none where it is not there or still blank."""
    if not path.exists():
        return []
    store = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=5.0)
    try:
        return store.execute(query).fetchall()
    except sqlite3.OperationalError:
        return []
    finally:
        store.close()


def stored_rounds(path: Path) -> dict[int, str]:
    """What a run's file holds now."""
    return dict(look_into(path, "SELECT round, ones FROM rounds"))


def rounds_in(path: Path) -> int:
    """How many rounds that is."""
    return next((count for count, _ in look_into(path, "SELECT count(*), '' FROM rounds")), 0)


@pytest.mark.faults
def test_ctrl_c_at_any_moment_is_one_line_and_the_same_command_continues(home: Path) -> None:
    options = [
        *map(str, BASE),
        "--epsilon",
        "1",
        "--rounds",
        "1200",
        "--design",
        "rounds",
        "--json",
        "--save",
        "run.db",
    ]
    # Nothing stored: while modules are imported or data are read. Then in mid-run.
    for wanted in (0, 1, 300):
        process = started(home, *options)
        deadline = time.monotonic() + TIMEOUT
        while rounds_in(home / "run.db") < wanted and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.004)
        time.sleep(0.0 if wanted else 0.3)
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=TIMEOUT if wanted else 0.3)
        except subprocess.TimeoutExpired:
            # Python drops an interrupt that falls into the clean-up of an import ("Exception ignored"): press again.
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=TIMEOUT)
        assert process.returncode in (130, -signal.SIGINT), (out, err)
        assert out == ""
        if wanted:
            assert "interrupted; what was answered is kept" in err
            assert "Traceback" not in err
    done = privatile(home, *options)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["results"][0]["records"] == 4500
    for stretches in counted_once(home / "state" / "privatile" / "ledger.db").values():
        assert all(stop == start for (_, stop), (start, _) in itertools.pairwise(stretches))


@pytest.mark.faults
@pytest.mark.parametrize("saved", [True, False])
def test_kills_lose_nothing_and_ask_no_one_twice(home: Path, saved: bool) -> None:
    """kill -9 at random moments; the same command continues until it is done, as one and the same run."""
    options = [*map(str, BASE), "--epsilon", "1", "--rounds", "1200", "--design", "rounds", "--json"]
    options += ["--ledger", "ledger.db", *(["--save", "run.db"] if saved else [])]
    rng = np.random.default_rng(3)
    acknowledged: dict[int, str] = {}
    kills = (20 if os.environ.get("PRIVATILE_LONG") else 4) if saved else 2

    def store() -> Path:
        found = [home / "run.db"] if saved else sorted((home / "runs").glob("*.db"))
        return found[0] if found else home / "nothing.db"

    for kill in range(kills + 1):
        process = started(home, *options)
        if kill < kills:
            # Some rounds further, at a moment nobody chose, the first time before anything was asked.
            wanted = len(acknowledged) + int(rng.integers(1, 50)) if kill else 0
            deadline = time.monotonic() + TIMEOUT
            while rounds_in(store()) < wanted and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.004)
            time.sleep(float(rng.uniform(0.0, 0.01)) if kill else 0.4)
            process.send_signal(signal.SIGKILL)
        out, err = process.communicate(timeout=TIMEOUT)
        if kill < kills and process.returncode != -signal.SIGKILL:
            # Nobody looked in time, and the run was over. Once more, elsewhere.
            asked = {client: stretches[-1][1] for client, stretches in counted_once(home / "ledger.db").items()}
            assert asked == {"north": 3000, "south": 1500}, err
            (home / "again").mkdir()
            shutil.copy(home / "data.csv", home / "again")
            return test_kills_lose_nothing_and_ask_no_one_twice(home / "again", saved)
        assert process.returncode == (-signal.SIGKILL if kill < kills else 0), err
        seen = stored_rounds(store())
        # Whatever was stored before is still there, unchanged.
        if kill < kills or saved:
            assert all(seen.get(number) == ones for number, ones in acknowledged.items())
            acknowledged = seen
    assert json.loads(out)["results"][0]["records"] == 4500
    for client, stretches in counted_once(home / "ledger.db").items():
        assert stretches[0][0] == 0
        assert stretches[-1][1] == (3000 if client == "north" else 1500)
        assert all(stop == start for (_, stop), (start, _) in itertools.pairwise(stretches))
    with sqlite3.connect(home / "ledger.db") as database:
        assert database.execute("SELECT count(DISTINCT run) FROM runs").fetchone() == (1,)
    database.close()


def test_a_town_in_two_unicode_forms_is_asked_whole_and_names_in_another_case_are_pointed_out(home: Path) -> None:
    towns = ("K\u00f6ln", "Ko\u0308ln", "Bonn", "bonn")
    rows = [f"{town},{value}" for town in towns for value in range(100)]
    (home / "data.csv").write_text("region,score\n" + "\n".join(rows) + "\n", encoding="utf-8")
    done = here(home, *BASE, "--epsilon", 2, "--only", "Ko\u0308ln", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert re.search(r"K\u00f6ln +200\b", done.stdout), done.stdout
    assert "'Bonn' and 'bonn' count as 2 clients or groups, each for itself" in done.stderr
    assert "K\u00f6ln" not in done.stderr


def test_after_spending_again_the_sum_of_all_runs_is_said_beside_the_result(home: Path) -> None:
    assert "All runs together" not in here(home, *BASE, "--epsilon", 1).stderr
    again = here(home, *BASE, "--epsilon", 0.5, "--spend-again", "--save", "two.db")
    assert "the most that one record of this column has spent: ε = 1.5." in again.stderr
    assert "All runs together" not in again.stdout
