"""A folder of groups: killed and resumed, read again, compared, shown as a page and a figure."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from privatile.api.groups import GroupRuns, prepare_groups
from privatile.api.local_run import prepare
from privatile.client.ledger.datasets import statement
from privatile.client.ledger.ledger import Ledger
from privatile.errors import AlreadyAnswered, InputError, StoreError
from privatile.report.groups import GroupFolder, figure_of, page_of, read_groups, read_runs, report_groups, results_of
from privatile.result.compare import compare_all
from tests.api.test_groups import renamed, simulated
from tests.api.test_only import options, table
from tests.federation.mutations import with_a_key_twice


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of three groups, one of which is too small."""
    folder: Path = tmp_path_factory.mktemp("groups") / "regions"
    rows = table()
    rows["region"][:30] = "east"
    simulated(rows, epsilon=2, save=folder)
    return folder


def test_a_folder_of_groups_is_read_again_and_compared(saved: Path, tmp_path: Path) -> None:
    assert {path.name for path in saved.iterdir()} == {"groups.json", "north.db", "south.db"}
    results = read_groups(saved)
    assert [group.name for group in results] == ["east", "north", "south"]
    assert "too small" in results["east"].why
    assert {name for name, _ in results.results} == {"north", "south"}
    together = results_of([saved], simultaneous=True)
    assert together["north"].result.confidence_level == 0.95 ** (1 / 3)  # type: ignore[union-attr]
    side_by_side = read_runs([saved / "north.db", saved / "south.db"], simultaneous=True)
    assert side_by_side["south"].result.confidence_level == 0.975  # type: ignore[union-attr]
    assert "of pay in 2 runs" in side_by_side.title()
    (pair,) = compare_all(results, disjoint=False).pairs
    assert (pair.first, pair.second) == ("south", "north")
    (alone,) = compare_all(side_by_side, disjoint=True).pairs
    assert alone.comparison.difference == pair.comparison.difference
    with pytest.raises(InputError, match="disjoint=True"):
        compare_all(side_by_side, disjoint=False)
    index = json.loads((saved / "groups.json").read_text())
    index["groups"][1]["file"] = "../elsewhere.db"
    (tmp_path / "groups.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match="lies in the same folder"):
        GroupFolder.read(tmp_path / "groups.json")


def test_a_list_of_groups_with_a_key_twice_is_refused(saved: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(saved, tmp_path / "copy"))
    text = (folder / "groups.json").read_text()
    assert read_groups(folder)
    for twice in with_a_key_twice(text):
        (folder / "groups.json").write_text(twice)
        with pytest.raises(InputError, match="an object has a key twice"):
            read_groups(folder)


def test_page_and_figure_show_every_group_and_escape_names(saved: Path, tmp_path: Path) -> None:
    results = renamed(simulated(), north="<b>north</b>", south="south")
    page = page_of(results)
    assert "&lt;b&gt;north&lt;/b&gt;" in page
    assert "<b>north</b></th>" not in page
    assert page.count('<svg class="dots"') == 3  # the axis and two groups
    assert 'src="http' not in page
    drawn = report_groups(results, tmp_path / "groups.svg").read_text()
    assert "median of pay, 95% intervals (each)" in drawn
    differences = compare_all(read_groups(saved), disjoint=False, simultaneous=True)
    assert "south − north" in page_of(differences)
    assert figure_of(differences).axes[0].get_yticklabels()[0].get_text() == "south − north"
    with pytest.raises(InputError, match=r"must end in \.html"):
        report_groups(results, tmp_path / "groups.txt")


class Killed(Exception):
    pass


def test_killed_and_resumed_every_group_answers_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped in the middle of the second group, with nothing saved: the same call goes on, and asks nobody twice.

    Not even where people may be asked again: those who have answered this very command are not.
    """
    data, chosen = table(), options(tmp_path, by="region", spend_again=True)
    from privatile.run.coordinator import Coordinator

    accept, left = Coordinator.accept, [24 + 7]

    def accept_until_killed(self: Coordinator, *given: Any, **more: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        accept(self, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Coordinator, "accept", accept_until_killed)
        with pytest.raises(Killed):
            prepare_groups(data, chosen).complete()
    resumed: GroupRuns = prepare_groups(data, chosen)
    states = [None if run.store is None else run.store.finished is not None for run in resumed.runs]
    assert states == [True, False]  # south was begun
    results = resumed.complete()
    assert sum(result.records for _, result in results.results) == len(data)
    assert not list((tmp_path / "runs").iterdir())
    with Ledger.open(tmp_path / "ledger.db", read_only=True) as book:
        assert {round(line.epsilon, 6) for line in statement(book).datasets} == {4.0}  # twice would be 8
    with pytest.raises(AlreadyAnswered):
        prepare_groups(data, options(tmp_path, by="region"))
    assert sum(run.store is not None for run in prepare_groups(data, chosen).runs) == 0  # now they would be
    with pytest.raises(AlreadyAnswered, match="split among other clients"):
        prepare(data, options(tmp_path, client="sex"))


def test_a_folder_keeps_what_its_statement_rests_on(tmp_path: Path) -> None:
    """Other groups would state something false about finished runs; the confidence may change, and says so.

    The file is as private as the runs beside it: it has the groups' sizes.
    """
    folder = tmp_path / "regions"
    begun = simulated(save=folder)
    before = (folder / "groups.json").read_bytes()
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    for more, words in (
        ({"by": "sex"}, "by='region'; got by='sex'"),
        ({"range": (0, 200)}, r"range=\(0, 100\); got range=\(0, 200\)"),
        ({"only": {"sex": "f"}}, "value='pay'; got value='pay at f'"),
    ):
        with pytest.raises(StoreError, match=f"began with {words}.*another folder with save=FOLDER"):
            simulated(save=folder, **more)
        assert (folder / "groups.json").read_bytes() == before
    rows = table()
    rows["region"][rows["region"] == "south"] = "west"
    with pytest.raises(StoreError, match="groups='north, south'; got groups='north, west'"):
        simulated(rows, save=folder)

    again = simulated(save=folder)
    assert again.notes() == begun.notes() == read_groups(folder).notes()
    assert "Chosen after" not in again.to_text()
    together = simulated(save=folder, simultaneous=True)
    said = "Chosen after the answers had come: the groups were asked for intervals that hold each by itself with 95%"
    assert said in together.notes()[1]
    assert said in read_groups(folder, simultaneous=True).notes()[1]
    assert (folder / "groups.json").read_bytes() == before
    (folder / "groups.json").write_text(before.decode().replace('"format": 2', '"format": 1'))
    with pytest.raises(StoreError, match="no list of groups that this version reads"):
        simulated(save=folder)
