"""The study file: it reads back as written, all errors are reported at once, equal studies have equal digests."""

from __future__ import annotations

import json
import math
import tomllib
from pathlib import Path

import msgspec
import pytest

from privatile.errors import InputError
from privatile.federation.setup.invitation import Enrolment, read_enrolment
from privatile.federation.study import ClientAgreement, FederationStudy, load_study, study_toml
from privatile.records.keys import KeyPair
from tests.federation.kit import make_study
from tests.federation.mutations import DROPPED, with_value


def test_file_reads_back_as_the_same_study(tmp_path: Path) -> None:
    study = make_study(3, title='Löhne "2026"', mode="local", design="paper-c1", scale="log", range=(1.0, 1e6))
    path = tmp_path / "study.toml"
    path.write_text(study_toml(study), encoding="utf-8")
    assert load_study(path) == study
    assert load_study(path).digest == study.digest


def test_all_errors_are_reported_at_once(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(
        """
        identity = "xyz"
        title = ""
        asked_by = "us"
        value = "salary"
        level = 1.5
        range = [10, 1]
        rounds = 100
        scale = "cubic"
        quorum = 9
        patience = 0
        deadline = 0.0
        [clients."no.rth"]
        epsilon = -1
        weight = 0.5
        records = 5
        [clients.south]
        epsilon = 20
        weight = 0.2
        records = 500
        """
    )
    with pytest.raises(InputError) as caught:
        load_study(path)
    head, *lines = str(caught.value).splitlines()
    assert head == f"{path} has 13 errors:"
    for words in ("line 2, identity", "line 3, title", "line 6, level", "line 7, range", "line 9, scale",
                  "line 10, quorum", "line 11, patience", "line 12, deadline", "line 13, clients.no.rth: a name",
                  "line 14, clients.no.rth.epsilon", "line 16, clients.no.rth.records",
                  "line 18, clients.south.epsilon: 20 is above", "weights must sum"):  # fmt: skip
        assert any(words in line for line in lines), words


def test_wrong_kinds_and_unknown_settings_are_named() -> None:
    plain = make_study().to_dict()
    plain["rounds"] = "many"
    plain["colour"] = "red"
    del plain["level"]
    plain["clients"]["site0"]["epsilon"] = "one"
    del plain["clients"]["site1"]["epsilon"]
    with pytest.raises(InputError) as caught:
        FederationStudy.from_dict(plain)
    text = str(caught.value)
    for word in (
        "rounds: must be a whole number; got a text",
        "colour: there is no such setting",
        "level: is missing",
        "clients.site0.epsilon: must be a finite number",
        "clients.site1.epsilon: is missing",
        "never by default",
    ):
        assert word in text


@pytest.mark.parametrize(
    ("path", "values"),
    [
        (("identity",), ("", "0123456789AB", "0123456789ab\n", 1, None, DROPPED)),
        (("title",), ("", "x" * 201, "a\nb", 1, DROPPED)),
        (("level",), (0, 1, -0.5, True, "0.5", [0.5], math.nan, 10**400, DROPPED)),
        (("levels",), ([0.5], 0.5)),  # beside level
        (("range",), ([1, 0], [0], [0, 1, 2], [0, True], ["0", "1"], [0, math.inf], [0, 10**400], 1, DROPPED)),
        (("rounds",), (0, -1, 10.0, True, "10", 10**30, DROPPED)),
        (("scale",), ("cubic", 1)),
        (("mode",), ("global", 1)),
        (("design",), ("nothing", 1)),
        (("missing",), ("ignore", 1)),
        (("value_kind",), ("smooth", "step=0", "step=-1", "step=inf", "step=", "whole ", 1, None)),
        (("confidence_level",), (0, 1, 95, True, "0.95")),
        (("deadline",), (0, -1, 1e9, True, math.inf)),
        (("quorum",), (-1, 3, 1.0, True)),
        (("patience",), (0, 1.0, True)),
        (("allow_weak",), (0, 1, "true")),
        (("clients",), ({}, [], [{}], 1, DROPPED)),
        (("clients", "site0"), ([], 1, {}, DROPPED)),
        (("clients", "site0", "epsilon"), (0, -1, 20, True, "1", math.nan, 10**400, DROPPED)),
        (("clients", "site0", "weight"), (0, -0.5, 0.6, True, DROPPED)),
        (("clients", "site0", "records"), (0, 9, 40.0, True, DROPPED)),
        (("clients", "site0", "level"), (0, 1, True, "0.5")),
        (("clients", "no.name"), ({"epsilon": 1, "weight": 0.5, "records": 40},)),
        (("colour",), ("red",)),
    ],
    ids=str,
)
def test_what_breaks_a_rule_is_refused(path: tuple[str | int, ...], values: tuple[object, ...]) -> None:
    text = json.dumps(make_study().to_dict())
    for value in values:
        with pytest.raises(InputError, match=f"{path[0]}|weights"):
            FederationStudy.from_dict(json.loads(with_value(text, path, value)))


@pytest.mark.parametrize(
    "change",
    [{"levels": (0.25,)}, {"rounds": 9}, {"range": (0.0, 99.0)}, {"deadline": 31.0}, {"quorum": 1}, {"title": "other"},
     {"value_kind": "whole"}, {"value_kind": "continuous"},
     {"clients": {"site0": ClientAgreement(1.0, 0.4, 40), "site1": ClientAgreement(1.0, 0.6, 40)}}],
)  # fmt: skip
def test_every_change_changes_the_digest(change: dict[str, object]) -> None:
    study = make_study()
    plain = {item: getattr(study, item) for item in study.__dataclass_fields__}
    assert FederationStudy(**{**plain, **change}).digest != study.digest
    assert FederationStudy(**plain).digest == study.digest


def test_whole_numbers_and_reals_are_the_same_number() -> None:
    study = make_study(range=(0, 100), deadline=30)
    assert study.digest == FederationStudy.from_dict(tomllib.loads(study_toml(study))).digest


def test_the_plan_itself_is_checked() -> None:
    with pytest.raises(InputError, match="rounds"):
        make_study(rounds=1, length=10)


ESCAPES = "\x1b]0;all is well\x07\x1b[2J"


def test_a_setting_with_terminal_escapes_in_its_name_is_shown_without_them() -> None:
    table = make_study(2).to_dict()
    agreement = table["clients"]["site0"]
    changes = ({ESCAPES: 1}, {"clients": {**table["clients"], ESCAPES: agreement}})
    for changed in (*changes, {"clients": {**table["clients"], "site0": {**agreement, ESCAPES: 1}}}):
        with pytest.raises(InputError) as caught:
            FederationStudy.from_dict({**table, **changed})
        assert "\x1b" not in str(caught.value)
        assert "\x07" not in str(caught.value)


def test_a_file_with_terminal_escapes_in_a_field_is_refused_without_them(tmp_path: Path) -> None:
    key = KeyPair.generate()
    fields = msgspec.to_builtins(Enrolment.make("north", "0123456789ab", key))
    path = tmp_path / "enrolment.json"
    keys = {**fields["keys"], ESCAPES: 1}
    for changed in ({ESCAPES: 1}, {"keys": keys}, {"client": ESCAPES}, {"privatile_enrolment": ESCAPES}):
        path.write_text(json.dumps({**fields, **changed}))
        with pytest.raises(InputError) as caught:
            read_enrolment(path)
        assert str(caught.value).isprintable()


def test_a_level_of_nothing_is_refused() -> None:
    table = make_study(2).to_dict()
    agreement = {**table["clients"]["site0"], "level": None}
    with pytest.raises(InputError, match=r"clients\.site0\.level: must be a finite number"):
        FederationStudy.from_dict({**table, "clients": {**table["clients"], "site0": agreement}})
    del table["level"]
    with pytest.raises(InputError, match="level and levels exclude each other"):
        FederationStudy.from_dict({**table, "level": None, "levels": [0.25, 0.5]})
