import json
from dataclasses import replace

import pytest

from privatile.core.mechanism import RandomizedResponse
from privatile.errors import InputError
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.estimator.straddle import StraddlePlan
from privatile.estimator.tuned import AutoPlan

SPEC = RunSpec(
    value="income",
    levels=(0.25, 0.5),
    clients=tuple(
        ClientSpec(name, RandomizedResponse.from_epsilon(epsilon).threshold, 0.5, records)
        for name, epsilon, records in (("a", 1.0, 1001), ("b", 0.3, 500))
    ),
    scale="log",
    low=1.0,
    high=1e6,
)


def test_json_comes_back_exactly_and_names_the_run() -> None:
    back = RunSpec.from_json(SPEC.to_json())
    assert back == SPEC
    assert back.digest == SPEC.digest
    assert replace(SPEC, dither=1.0).digest != SPEC.digest


def test_every_level_gets_its_own_share_of_the_records() -> None:
    shares = [[client.records for client in SPEC.at_level(index)] for index in range(2)]
    assert shares == [[501, 250], [500, 250]]
    for index in range(2):
        plan = SPEC.plan(index)
        assert plan.level == SPEC.levels[index]


def test_clients_own_levels_average_to_the_run_s() -> None:
    clients = tuple(replace(client, level=level) for client, level in zip(SPEC.clients, (0.3, 0.5), strict=True))
    plan = replace(SPEC, levels=(0.4,), clients=clients).plan()
    assert plan.level == pytest.approx(0.4)
    with pytest.raises(InputError, match="not with several"):
        replace(SPEC, clients=clients)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"levels": ()}, "at least one level"),
        ({"levels": (1.0,)}, r"inside \(0, 1\)"),
        ({"levels": (0.5, 0.5)}, "once only"),
        ({"design": "paper-c2"}, "design must be one of"),
        ({"dither": -1.0}, "width of 0 or more"),
        ({"confidence_level": 1.0}, "confidence_level"),
        ({"normalizer": "l7"}, "normalizer"),
        ({"value_kind": "steps"}, "value_kind must be any, continuous, whole or step=NUMBER"),
        ({"value_kind": "step=-1"}, "value_kind must be"),
        ({"value_kind": "step=inf"}, "value_kind must be"),
        ({"value_kind": "step=1e999"}, "value_kind must be"),
        ({"value_kind": "step= 1"}, "value_kind must be"),
        ({"design": "straddle", "interval": "paper"}, "need a design that follows the quantile"),
        ({"target": "moon"}, "one of population, file"),
    ],
)
def test_bad_specifications_are_refused(change: dict[str, object], text: str) -> None:
    with pytest.raises(InputError, match=text):
        replace(SPEC, **change)  # type: ignore[arg-type]


def test_foreign_json_is_refused() -> None:
    plain = json.loads(SPEC.to_json())
    with pytest.raises(InputError, match="no such setting"):
        RunSpec.from_json(json.dumps({**plain, "seed": 3}))
    with pytest.raises(InputError, match="of version 4, but of version 99"):
        RunSpec.from_json(json.dumps({**plain, "version": 99}))


def test_the_declaration_chooses_the_design_once_and_is_then_a_matter_of_the_report() -> None:
    auto = replace(SPEC, design="auto", value_kind="any")
    assert auto.design == "straddle"
    assert isinstance(auto.plan(), StraddlePlan)
    continuous = RunSpec.from_json(SPEC.to_json().replace('"value_kind":"any"', '"value_kind":"continuous"'))
    tuned = replace(continuous, design="auto")
    assert tuned.design == "tuned"
    assert isinstance(tuned.plan(), AutoPlan)
    # A grid changes no question, nor does reading straddled answers as smooth ones; another design does.
    for values in ("whole", "step=1000", "continuous"):
        again = replace(auto, value_kind=values)
        assert again.design == "straddle"
        assert again.questions == auto.questions
        assert auto.reported_as(again).value_kind == values
    assert tuned.questions != auto.questions
    # Self-normalised intervals need a path that follows the quantile.
    assert replace(SPEC, design="auto", interval="self-normalized").design == "tuned"
    stops = replace(auto, until_width=3.0)
    assert replace(stops, value_kind="whole").questions == stops.questions
    assert replace(stops, confidence_level=0.9).questions != stops.questions
