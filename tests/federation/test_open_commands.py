"""The commands and the alarms of open studies."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from privatile.errors import InputError
from privatile.federation.coordinator.service import Control
from privatile.federation.operations.status import read_status
from privatile.federation.setup.folder import Directory, add_client
from privatile.federation.study import Arrivals, FederationStudy, load_study, study_toml
from privatile.run.state import GONE, read_alarms
from tests.federation.kit import Federation, call, make_study
from tests.federation.open_kit import DAY, OpenFederation, make_open_study

pytestmark = pytest.mark.network  # a free port of the loopback is looked for; nothing is sent

CLIENTS = (
    "--add-client",
    "north",
    "--add-client",
    "south",
    "--epsilon",
    "1",
    "--records",
    "500",
    "--range",
    "0",
    "100",
)
WEIGHTS = ("--client-weights", "north=0.6", "--client-weights", "south=0.4")


def test_an_open_study_is_set_up(tmp_path: Path) -> None:
    folder = str(tmp_path / "weeks")
    ends = ("--end-date", "2036-12-31", "--end-answers", "900", "--round-answers", "50")
    made = call("federation", "init", folder, "--open", *CLIENTS, *WEIGHTS, *ends)
    assert made.exit_code == 0, made.output
    study = Directory(Path(folder)).study()
    assert study.arrivals == Arrivals(50, "2036-12-31", 900, 0.0)
    assert (study.design, study.rounds, study.spec.design, study.weighting) == ("open", 0, "open", "given")
    assert study.spec.end is not None
    assert study.spec.end.date == "2036-12-31T00:00:00Z"
    shown = call("status", folder).output
    assert "rounds       0, as many as it takes" in shown
    add_client(Directory(Path(folder)), "west", 1.0, 100, 0.2)
    assert Directory(Path(folder)).study().clients["north"].weight == pytest.approx(0.48)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--open", *CLIENTS), "give --client-weights CLIENT=NUMBER for every client"),
        ((*CLIENTS, *WEIGHTS, "--end-answers", "900"), "--end-answers go with --open"),
        (("--open", *CLIENTS, *WEIGHTS, "--design", "rounds"), "leave out --design"),
        (("--open", *CLIENTS, *WEIGHTS, "--rounds", "100"), "rounds: an open study has none"),
        (("--open", *CLIENTS, *WEIGHTS, "--mode", "local"), "mode: an open study has none"),
        (("--open", *CLIENTS, *WEIGHTS, "--quorum", "1"), "quorum: an open study has none"),
        (("--open", *CLIENTS, *WEIGHTS, "--q", "0.5", "--q", "0.9"), "levels: an open study asks for one level"),
        (("--open", *CLIENTS, *WEIGHTS, "--end-date", "soon"), "arrivals.end_date: must be a date such as 2027-01-31"),
        (("--open", *CLIENTS, *WEIGHTS, "--end-width", "-1"), "arrivals.end_width: must be a width of 0 or more"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    result = call("federation", "init", str(tmp_path / "weeks"), *options)
    assert isinstance(result.exception, InputError | SystemExit)
    assert said in f"{result.output} {result.exception}".replace("\n", " ")


def test_the_study_file_is_read_back(tmp_path: Path) -> None:
    study = make_open_study(end_width=2.5)
    (tmp_path / "study.toml").write_text(study_toml(study), encoding="utf-8")
    assert load_study(tmp_path / "study.toml") == study
    assert FederationStudy.from_dict(study.to_dict()).digest == study.digest
    closed = make_study(2)
    assert "arrivals" not in closed.to_dict()
    with pytest.raises(InputError, match='set design = "open"'):
        FederationStudy.from_dict({**closed.to_dict(), "arrivals": {}})
    with pytest.raises(InputError, match=r"rounds: is missing\. It must be a whole number"):
        FederationStudy.from_dict({key: value for key, value in closed.to_dict().items() if key != "rounds"})


@pytest.mark.parametrize(
    ("arrivals", "said"),
    [
        ({"end_answer": 900}, "Did you mean 'end_answers'?"),
        ({"end_answers": True}, "arrivals.end_answers: must be a whole number"),
        ({"end_date": 2036}, "arrivals.end_date: must be a text"),
        ([], "must be a table with round_answers"),
    ],
)
def test_what_the_study_file_says_is_read_strictly(arrivals: object, said: str) -> None:
    with pytest.raises(InputError) as caught:
        FederationStudy.from_dict({**make_open_study().to_dict(), "arrivals": arrivals})
    assert said in str(caught.value)


def test_close_is_for_open_studies(tmp_path: Path) -> None:
    federation = Federation(tmp_path / "closed", make_study(2))
    result = call("federation", "close", str(federation.directory.path))
    assert "only an open study is ended by command" in f"{result.output} {result.exception}"
    federation = OpenFederation(tmp_path / "open", make_open_study())
    result = call("federation", "close", str(federation.directory.path))
    assert "the next `privatile serve`" in result.output
    assert Control(federation.directory.path / "control").take() == [("close", "")]
    old, new = str(federation.directory.path), str(tmp_path / "n")
    result = call("federation", "init", new, "--from", old, "--without", "south", "--client-weights", "north=1")
    assert "is not continued without a client" in f"{result.output} {result.exception}"


def test_close_is_heard_while_a_round_waits_for_answers_under_way(tmp_path: Path) -> None:
    federation = OpenFederation(tmp_path, make_open_study())
    federation.core._rule = replace(federation.core._rule, seconds=1e-9, grace=DAY)
    federation.start("north")
    federation.arrive("north", {f"n{k}": 50.0 for k in range(45)})
    asked = federation.open_round()
    payload = federation.answer("north", asked)
    assert payload is not None
    assert federation.core.take("north", payload).outcome == "counted"
    now = time.time() + 1.0
    for action in ("", "close"):
        federation.core.request(action)
        federation.core.look(now)
        assert federation.core.intake.is_open  # south may be answering
    federation.core.look(now + DAY)
    assert federation.open_round() == b""
    assert "by command" in federation.core._finish()


def test_nobody_came_is_no_alarm_and_a_site_that_is_gone_is_one(tmp_path: Path) -> None:
    federation = OpenFederation(tmp_path, make_open_study())
    for name in federation.study.clients:
        federation.start(name)
    federation.arrive("north", {f"n{k}": 50.0 for k in range(45)})
    federation.play(3)  # nobody comes to south
    journal, store, now = federation.run_.journal, federation.run_.store, time.time()
    federation.open_round()
    journal.set_awaited(4, now - 2 * DAY, ["south"])
    journal.hear({"north": now, "south": now})
    assert read_alarms(store, {}, now=now) == []
    assert read_status(federation.directory).silent == {}
    journal.hear({"south": now - 40.0})  # whatever the deadline: the site gives a sign of life every 15 seconds
    assert read_alarms(store, {}, now=now) == []
    journal.hear({"south": now - 2 * GONE})
    (alarm,) = read_alarms(store, {}, now=now)
    assert (alarm.kind, alarm.client) == ("silent", "south")
    assert "south is not there" in alarm.text
