"""A site has one ledger and one file of limits, whatever invitations it gets and wherever it opens them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import privatile
from privatile.client.ledger.datasets import statement
from privatile.client.ledger.ledger import Ledger
from privatile.client.sources.databases import open_source
from privatile.core.messages import Question
from privatile.core.private_files import ledger_path, state_folder
from privatile.errors import AlreadyAnswered, InputError, SiteRefusal
from privatile.federation.operations.join import JoinOptions, prepare_client
from privatile.federation.setup.folder import initialize
from privatile.federation.setup.invitation import read_invitation
from privatile.federation.setup.permissions import BrokerSettings
from privatile.federation.site.folder import find_site
from privatile.federation.site.limits import read_limits
from privatile.federation.site.service import ClientService
from privatile.federation.study import ClientAgreement
from tests.federation.kit import call, make_study

PEOPLE = 100
VALUES = np.random.default_rng(5).normal(50.0, 10.0, PEOPLE)


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who has not used privatile before."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def invitations(folder: Path, *names: str, epsilon: float = 1.0) -> list[Path]:
    """A new organizer's invitations, each in a folder of its own, as a mail program would save them."""
    clients = {name: ClientAgreement(epsilon, 1.0 / len(names), PEOPLE) for name in names}
    directory = initialize(folder / "organizer", make_study(clients, 10), BrokerSettings())
    saved = []
    for name in names:
        saved.append(folder / f"mail-{name}" / "invitation.json")
        saved[-1].parent.mkdir()
        shutil.copy(directory.invitation_file(name), saved[-1])
    return saved


def join(path: Path, site: Path | None = None, column: str | None = None) -> ClientService:
    """What `privatile join` does before it connects, with the site's own records."""
    invitation = read_invitation(path)
    place = find_site(site or state_folder(), invitation, path)
    return prepare_client(invitation, place, open_source(VALUES + bool(column), value=column), JoinOptions("value"))


def answer_all(service: ClientService) -> None:
    for number in range(1, 11):
        service.core.responder.answer([Question(service.core.study.run, number, 0.5, 50.0, PEOPLE // 10)])


def test_two_invitations_under_two_names_do_not_ask_a_record_twice(tmp_path: Path) -> None:
    (one,), (two,) = invitations(tmp_path / "one", "north"), invitations(tmp_path / "two", "nord")
    assert call("enroll", str(one), "--max-epsilon", "1").exit_code == 0
    assert call("enroll", str(two)).exit_code == 0  # the limits are there already
    answer_all(join(one))
    with pytest.raises(AlreadyAnswered):
        join(two)
    with Ledger.open(ledger_path(), read_only=True) as ledger:
        (line,) = statement(ledger).datasets
    assert line.reports == PEOPLE
    assert line.epsilon == pytest.approx(1.0)


def test_two_names_in_one_study_are_refused(tmp_path: Path) -> None:
    north, south = invitations(tmp_path, "north", "south")
    assert call("enroll", str(north), "--max-epsilon", "1").exit_code == 0
    (elsewhere,) = invitations(tmp_path / "elsewhere", "north")
    assert call("enroll", str(elsewhere)).exit_code == 0  # another federation calls it the same
    refused = call("enroll", str(south))
    assert isinstance(refused.exception, SystemExit | SiteRefusal)
    assert not (state_folder() / "south.key").exists()
    # Not even with a key that came another way.
    shutil.copy(state_folder() / "north.key", state_folder() / "south.key")
    with pytest.raises(SiteRefusal, match="as client north"):
        join(south)
    # Two organizations on one machine: each with a folder of its own.
    assert call("enroll", str(south), "--max-epsilon", "2", "--site", str(tmp_path / "south")).exit_code == 0
    join(south, tmp_path / "south")


def test_two_studies_of_different_columns_count_twice(tmp_path: Path) -> None:
    """Before, each column had a budget of its own, and one person could spend both."""
    (one,), (two,) = invitations(tmp_path / "one", "north"), invitations(tmp_path / "two", "north")
    told = call("enroll", str(one), "--max-epsilon", "1").output
    words = "Two studies of different columns without a person column count twice"
    assert words in told
    limits = state_folder() / "policy.toml"
    assert words in limits.read_text()
    assert call("enroll", str(two)).exit_code == 0
    join(one)  # what it has reserved counts
    with pytest.raises(AlreadyAnswered, match=r"allow more in this site's policy file.*new_people=True"):
        join(two, column="bonus")
    # `privatile estimate` with this ledger, and no limit of its own, takes the site's.
    with pytest.raises(AlreadyAnswered, match="max_epsilon=1, the last limit given"):
        privatile.estimate({"north": VALUES + 1}, value="rent", epsilon=0.5, range=(0, 100), ledger=ledger_path())
    limits.write_text("max_epsilon = 2\n")
    join(two, column="bonus")  # the control


def test_estimate_and_a_federation_are_added_up(tmp_path: Path) -> None:
    (one,) = invitations(tmp_path, "north")
    call("enroll", str(one), "--max-epsilon", "1")
    privatile.estimate(VALUES, epsilon=1, range=(0, 100))
    with pytest.raises(AlreadyAnswered):
        join(one)


def test_the_limit_is_the_sites_own(tmp_path: Path) -> None:
    (greedy,) = invitations(tmp_path / "one", "north", epsilon=8.0)
    told = call("enroll", str(greedy))
    assert told.exit_code != 0
    assert isinstance(told.exception, InputError | SystemExit)
    text = told.output + str(told.exception)
    assert "--max-epsilon NUMBER when you enroll" in text
    assert not state_folder().exists()  # nothing was made
    assert call("enroll", str(greedy), "--max-epsilon", "nan").exit_code != 0
    assert not state_folder().exists()
    told = call("enroll", str(greedy), "--max-epsilon", "1")
    refusal = "asks epsilon 8; this site's limits allow 1"
    assert (told.exit_code, refusal in told.output, "larger --max-epsilon" in told.output) == (5, True, True)
    assert not state_folder().exists()
    (modest,) = invitations(tmp_path / "two", "north", epsilon=0.5)
    assert call("enroll", str(modest), "--max-epsilon", "1").exit_code == 0
    limits = state_folder() / "policy.toml"
    assert read_limits(limits).max_epsilon == 1.0
    # A later invitation neither raises the limit nor lowers it; only the operator does, in the file.
    told = call("enroll", str(greedy))
    assert (told.exit_code, f"Edit max_epsilon in {limits}" in " ".join(told.output.split())) == (5, True)
    with pytest.raises(SiteRefusal, match=refusal):
        join(greedy)
    assert call("enroll", str(modest), "--max-epsilon", "8").exit_code != 0
    assert call("enroll", str(modest)).exit_code == 0
    assert read_limits(limits).max_epsilon == 1.0
