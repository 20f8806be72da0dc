"""Weight classes of a site are clients of the study: agreed, thinned by the site, one ledger for all of them."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from privatile.cli import main
from privatile.client.ledger.account import SpendingRules
from privatile.client.ledger.ledger import Ledger
from privatile.client.sources.databases import open_source
from privatile.core.decoding import BrokenRules
from privatile.core.messages import Question
from privatile.errors import AlreadyAnswered, DataError, InputError, SiteRefusal
from privatile.federation.setup.invitation import Invitation
from privatile.federation.site.folder import enroll
from privatile.federation.site.responder import SiteResponder, open_responder
from privatile.federation.study import ClientAgreement, FederationStudy, load_study, name_in_ledger, study_toml
from privatile.records.keys import KeyPair
from privatile.run.certificates import make_authority
from tests.federation.kit import make_study


def records(count: int = 4_000) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(2)
    table = np.zeros(count, dtype=[("x", float), ("w", float)])
    table["w"] = np.exp(rng.uniform(0.0, math.log(1.44), count))
    table["x"] = rng.normal(50.0, 10.0, count)
    return table


CLASSES = ((1.0, 1.2), (1.2000001, 1.44))


def make(bounds: tuple[tuple[float, float], ...] = CLASSES, rounds: int = 100) -> FederationStudy:
    clients = {
        f"north-{k + 1}": ClientAgreement(1.0, share, 1_500, site="north", weights=pair)
        for k, (pair, share) in enumerate(zip(bounds, (0.4, 0.35), strict=False))
    }
    rest = 1.0 - math.fsum(one.weight for one in clients.values())
    return make_study({**clients, "south": ClientAgreement(1.0, rest, 1_500)}, rounds)


def open_class(study: FederationStudy, client: str, ledger: Ledger, table: Any = None) -> SiteResponder:
    source = open_source(records() if table is None else table, value="x", weight="w")
    return open_responder(study, client, source, ledger, SpendingRules(max_epsilon=1.0))


def test_a_site_answers_for_each_class_with_other_records(tmp_path: Path) -> None:
    study = make()
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        first, second = (open_class(study, name, ledger) for name in ("north-1", "north-2"))
        one = first.answer([Question(study.run, 1, 0.5, 0.0, 1_500)])
        two = second.answer([Question(study.run, 1, 0.5, 0.0, 1_500)])
        assert (one[0].client, two[0].client) == ("north-1", "north-2")
        with pytest.raises(SiteRefusal, match="agreed to"):
            first.answer([Question(study.run, 2, 0.5, 0.0, 1)])
        names = [name_in_ledger(study.clients, name) for name in ("north-1", "north-2", "south")]
        assert names == ["weight 1.0 to 1.2", "weight 1.2000001 to 1.44", "all"]
        assert [len(ledger.answers(study.run, name)) for name in names] == [1, 1, 0]
        # Opened again, nothing is drawn anew: the same count for the same question.
        again = open_class(study, "north-1", ledger).answer([Question(study.run, 1, 0.5, 0.0, 1_500)])
        assert again == one


def test_other_classes_of_the_same_records_are_refused(tmp_path: Path) -> None:
    """A study with other bounds would ask some of the same people; so would one without weights."""
    study = make()
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        open_class(study, "north-1", ledger).answer([Question(study.run, 1, 0.5, 0.0, 1_500)])
        shifted = make(((1.0, 1.1), (1.1000001, 1.44)))
        with pytest.raises(AlreadyAnswered):
            open_class(shifted, "north-2", ledger)
        plain = make_study({"north": ClientAgreement(1.0, 1.0, 1_500)}, 100)
        with pytest.raises(AlreadyAnswered):
            open_responder(plain, "north", open_source(records(), value="x"), ledger, SpendingRules(max_epsilon=1.0))


def test_weights_and_study_must_agree(tmp_path: Path) -> None:
    study = make()
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        with pytest.raises(InputError, match="--weight"):
            open_responder(study, "north-1", open_source(records(), value="x"), ledger, SpendingRules())
        with pytest.raises(InputError, match="leave out the weight column"):
            open_class(study, "south", ledger)


def test_a_positive_weight_in_no_agreed_class_is_refused(tmp_path: Path) -> None:
    """Dropped, the records between two classes would change the quantile, and nobody would know."""
    table = records()
    gap = make(((1.0, 1.2), (1.3, 1.44)))
    with Ledger.open(tmp_path / "ledger.db") as ledger:
        for name in gap.clients:
            if name != "south":
                with pytest.raises(DataError, match="outside any of the 2 classes") as refused:
                    open_class(gap, name, ledger, table)
                assert not any(f"{weight:.4g}"[:5] in str(refused.value) for weight in table["w"] if weight != 1.0)
        with pytest.raises(DataError, match="outside the 1 class "):
            open_class(make(((1.0, 1.2),)), "north-1", ledger, table)
        # A weight of 0 says that a record is not asked: nothing is left out in silence.
        table["w"][(table["w"] > 1.2) & (table["w"] < 1.3)] = 0.0
        study = make(((1.0, 1.2), (1.3, 1.44)), rounds=50)
        study = replace(study, clients={name: replace(one, records=500) for name, one in study.clients.items()})
        open_class(study, "north-1", ledger, table).answer([Question(study.run, 1, 0.5, 0.0, 500)])


def test_an_invitation_says_when_a_class_is_wide(tmp_path: Path) -> None:
    make_authority(tmp_path / "a.pem", tmp_path / "a.key", "test")
    parts = ("tls://127.0.0.1:4222",), (tmp_path / "a.pem").read_text(), KeyPair.generate().public

    def words(bounds: tuple[tuple[float, float], ...]) -> str:
        return " ".join(text for _, text in Invitation("north-1", make(bounds), *parts).rows())

    assert "and here it is 3: of the lightest records about 67% are never asked" in words(((1.0, 3.0), (3.1, 3.2)))
    assert "beware: a class" not in words(((1.0, 1.2), (1.3, 1.5)))
    assert "beware: a class" not in words(((1.1, 1.1 * 1.2), (1.4, 1.5)))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"weights": (1.1, 1.3)}, "must not overlap"),
        ({"weights": (0.0, 0.5)}, "must be positive and rise"),
        ({"weights": (3.0, 2.0)}, "must be positive and rise"),
        ({"site": None}, "go together"),
    ],
)
def test_a_study_with_wrong_classes_is_refused(changed: dict[str, Any], words: str) -> None:
    study = make()
    clients = {**study.clients, "north-2": replace(study.clients["north-2"], **changed)}
    with pytest.raises(BrokenRules, match=words):
        replace(study, clients=clients)


def test_the_study_file_holds_the_classes_and_the_result_says_so(tmp_path: Path) -> None:
    study = make()
    (tmp_path / "study.toml").write_text(study_toml(study), encoding="utf-8")
    assert load_study(tmp_path / "study.toml") == study
    assert load_study(tmp_path / "study.toml").digest == study.digest
    other = replace(study, clients={**study.clients, "north-1": replace(study.clients["north-1"], weights=(1.0, 1.19))})
    assert other.digest != study.digest
    assert study.spec.survey is not None
    assert "agreed share" in study.spec.survey.to_text(3, 0)


def test_one_site_may_be_all_classes_of_its_records_and_nobody_else(tmp_path: Path) -> None:
    study = make()
    make_authority(tmp_path / "a.pem", tmp_path / "a.key", "test")
    parts = ("tls://127.0.0.1:4222",), (tmp_path / "a.pem").read_text(), KeyPair.generate().public
    invited = {name: Invitation(name, study, *parts) for name in study.clients}
    for name in ("north-1", "north-2"):
        enroll(invited[name], tmp_path / "site", max_epsilon=1.0)
    with pytest.raises(SiteRefusal, match="cannot be client"):
        enroll(invited["south"], tmp_path / "site")
    assert any("with weights from 1 to 1.2" in words for _, words in invited["north-1"].rows())


def test_a_dry_run_tells_a_site_its_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    table = records()
    lines = [f"{x!r},{w!r}" for x, w in zip(table["x"].tolist(), table["w"].tolist(), strict=True)]
    (tmp_path / "data.csv").write_text("\n".join(["x,w", *lines]))
    words = ["estimate", tmp_path / "data.csv", "--value", "x", "--weight", "w", "--epsilon", 1, "--range", 0, 100]
    done = CliRunner().invoke(
        main,
        [str(word) for word in (*words, "--dry-run", "--json", "--ledger", tmp_path / "l.db")],
    )
    facts = json.loads(done.stdout)
    bounds = [client["weights"] for client in facts["clients"]]
    assert bounds[0][0] == table["w"].min()
    assert bounds[-1][1] == table["w"].max()
    assert math.fsum(client["weight"] for client in facts["clients"]) == pytest.approx(1.0)
