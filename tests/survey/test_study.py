from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from privatile.errors import InputError
from privatile.survey.folder import new_code
from privatile.survey.run import run_spec
from privatile.survey.study import SurveyStudy, study_toml
from tests.survey.kit import STUDY, make_study


def test_a_study_is_read_back_from_its_file_and_keeps_its_digest(tmp_path: Path) -> None:
    study = make_study(title='Grüße "a"', strata={"a b": 100, "süd": 7, "c": 3}, end_date="2027-01-31T18:00Z")
    path = tmp_path / "survey.toml"
    path.write_text(study_toml(study), encoding="utf-8")
    assert SurveyStudy.load(path) == study
    assert SurveyStudy.load(path).digest == study.digest
    assert SurveyStudy.from_dict(json.loads(study.canonical)).digest == study.digest


def test_weights_are_the_codes_issued_unless_they_are_given() -> None:
    study = make_study(strata={"small": 10, "large": 30})
    assert {name: one.weight for name, one in study.strata.items()} == {"small": 0.25, "large": 0.75}
    given = make_study(strata={"small": {"codes": 10, "weight": 0.5}, "large": {"codes": 30, "weight": 0.5}})
    assert [one.weight for one in given.strata.values()] == [0.5, 0.5]
    assert [client.weight for client in run_spec(given).clients] == [0.5, 0.5]


def test_strata_in_another_order_are_the_same_study() -> None:
    """Codes name their stratum by its place: who moves lines of the file must not move people to another stratum."""
    study = make_study(strata={"plant": 300, "office": 100})
    plain = study.to_dict()
    turned = SurveyStudy.from_dict({**plain, "strata": dict(reversed(plain["strata"].items()))})
    assert turned.digest == study.digest
    assert list(turned.strata) == list(study.strata) == ["office", "plant"]
    assert run_spec(turned).digest == run_spec(study).digest


def test_every_public_fact_is_in_the_digest() -> None:
    study = make_study()
    changes: dict[str, Any] = {
        "title": "x", "value": "x", "unit": "x", "epsilon": 0.5, "range": [0, 9], "level": 0.9, "scale": "identity",
        "confidence_level": 0.9, "value_kind": "whole", "asked_by": "x", "round_answers": 9, "round_seconds": 9.0,
        "grace": 9.0, "end_date": "2030-01-01", "end_answers": 9, "end_width": 9.0, "languages": ["de"],
        "page_sha256": "0" * 64, "strata": {"all": {"codes": 9}}, "survey": "0" * 12, "address": "https://x.example/",
    }  # fmt: skip
    assert set(changes) == set(study.to_dict()), "a field is not tried here"
    digests = {SurveyStudy.from_dict({**study.to_dict(), name: value}).digest for name, value in changes.items()}
    assert len(digests | {study.digest}) == len(changes) + 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": 10.5}, "epsilon: must lie in"),
        ({"epsilon": 0.0}, "epsilon: must lie in"),
        ({"level": 1.0}, "level: must lie inside"),
        ({"range": [3, 3]}, "range: .* low < high"),
        ({"range": [80, 0]}, r"range: must rise, low < high; got 80 0\. Give the low end first"),
        ({"range": [0, 9], "scale": "log"}, "scale: a log scale needs a range above 0"),
        ({"scale": "cubic"}, "must be one of identity"),
        ({"title": "two\nlines"}, "title: must be one line"),
        ({"title": '=HYPERLINK("https://evil.example")'}, "title: must not have = \\+ - or @"),
        ({"address": "https://survey.example/a;=1/"}, "address: must not have ="),
        ({"strata": {"@SUM(1)": {"codes": 5}}}, "a spreadsheet that opens links.csv"),
        ({"end_date": "soon"}, "end_date: must be a date"),
        ({"languages": ["English"]}, "is no language"),
        ({"grace": -1.0}, "grace: must lie in"),
        ({"strata": {}}, "1 to 1,000 strata"),
        ({"strata": {"a": {"codes": 0}}}, "codes: must lie in"),
        ({"strata": {"a": {"codes": 5, "weight": 0.5}, "b": {"codes": 5}}}, "give every stratum a weight, or none"),
        ({"strata": {"a": {"codes": 5, "weight": 0.5}, "b": {"codes": 5, "weight": 0.4}}}, "they sum to 0.9"),
        ({"address": "http://survey.example/"}, "address: .*must begin with https"),
        ({"survey": "x"}, "12 digits"),
        ({"titel": "x"}, "Did you mean 'title'?"),
    ],
)
def test_a_broken_rule_is_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words.replace("?", r"\?")):
        make_study(**changes)


def test_epsilon_has_no_default() -> None:
    without = {key: value for key, value in STUDY.items() if key != "epsilon"}
    with pytest.raises(InputError, match=r"epsilon: is missing.*never by default"):
        SurveyStudy.from_dict({"survey": "0" * 12, **without, "strata": {"all": {"codes": 5}}})


def test_the_runs_value_has_its_unit() -> None:
    assert run_spec(make_study()).value == "monthly salary (EUR)"
    assert run_spec(make_study(unit="")).value == "monthly salary"


def test_an_end_fixed_beforehand_is_in_the_runs_specification() -> None:
    end = run_spec(make_study(end_date="2027-01-31", end_answers=500)).end
    assert end is not None
    assert (end.date, end.answers) == ("2027-01-31T00:00:00Z", 500)
    assert run_spec(make_study()).end is None


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "＝", "＋", "－", "＠", "﹣"])
@pytest.mark.parametrize(
    "before", ["", " ", "Pay;", "Pay; ", "Pay,", "Pay|", "Pay；", "Pay，", "office, ", 'Pay;"', 'Pay; " ']
)
def test_no_cell_of_links_csv_is_a_formula_whatever_divides_the_cells(before: str, sign: str) -> None:
    """A spreadsheet may divide cells at a semicolon, and it reads full-width signs as the plain ones."""
    formula = f'{before}{sign}HYPERLINK("https://evil.example";"Pay")'
    with pytest.raises(InputError, match="title: must not have"):
        make_study(title=formula)
    with pytest.raises(InputError, match=r"opens links\.csv"):
        make_study(strata={formula[:60].strip(): {"codes": 5}})


def test_texts_with_signs_of_formulas_inside_are_taken() -> None:
    title = "Pay - gross + bonus = total, me@example.org (A-Z); 2026"
    assert make_study(title=title, strata={"IT-support": {"codes": 5}}).title == title


def test_no_cell_of_the_codes_is_a_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter(["-" + "A" * 21, "-" * 22, "A" * 22])
    monkeypatch.setattr("privatile.survey.folder.secrets.token_urlsafe", lambda size: next(drawn))
    assert new_code() == "A" * 22
