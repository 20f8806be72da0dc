"""Designs: what a good one becomes, and every way a bad one is refused, by line, field and rule, all at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from privatile.errors import InputError
from privatile.estimator.schedule import Constant, Listed, Logarithmic, Power
from privatile.simulation.experiment import parse_experiment, read_experiment
from privatile.simulation.populations import Cauchy, Normal, Uniform

GOOD = """\
title = "A small experiment"
clients = 4
replications = 50
seed = 3

[populations]
same = "normal"
moved = { family = "normal", location = [0, 1, 2, 3] }
mixed = [
  { family = "uniform", low = -1, high = 1, count = 2 },
  "normal",
  { family = "cauchy" },
]

[levels]
low = { from = 0.3, to = 0.6 }

[truth_rates]
one = { epsilon = 1.0 }
listed = [0.2, 0.4, 0.6, 0.8]

[methods]
C5 = { lengths = 5, mode = "local", warm_up = 0.05 }
grow = { lengths = { power = 0.3 }, burn_in = 0.1, step_scale = 5 }
log = { lengths = "log" }
hand = { lengths = [1, 2, 3, 4] }

[[grid]]
population = ["same", "moved", "mixed"]
level = [0.5, "low"]
truth_rate = [0.25, "one", "listed"]
method = ["C5", "log"]
records = [100, 200]

[[grid]]
population = ["same"]
level = [0.5]
truth_rate = [1]
method = ["grow", "hand"]
rounds = [4]
"""


def test_a_design_becomes_cells_in_order() -> None:
    experiment = parse_experiment(GOOD)
    assert (experiment.title, experiment.replications, experiment.seed, experiment.protocol) == (
        "A small experiment",
        50,
        3,
        "independent",
    )
    assert len(experiment.entries) == 3 * 2 * 3 * 2 * 2 + 2
    first, last = experiment.entries[0], experiment.entries[-1]
    assert dict(first.labels) == {
        "population": "same", "level": "0.5", "truth_rate": "0.25", "method": "C5", "records": "100",
    }  # fmt: skip
    assert first.scheduled.design.rule == Constant(5)
    assert first.scheduled.design.mode == "local"
    assert first.cell.records == (100,) * 4
    assert first.cell.weights == (0.25,) * 4
    assert last.scheduled.lengths.tolist() == [[1, 2, 3, 4]]
    rules = {entry.scheduled.design.rule for entry in experiment.entries}
    assert rules == {Constant(5), Logarithmic(), Power(0.3), Listed((1, 2, 3, 4))}
    by_name = {dict(entry.labels)["population"]: entry.cell.populations for entry in experiment.entries}
    assert by_name["moved"] == (Normal(0.0), Normal(1.0), Normal(2.0), Normal(3.0))
    assert by_name["mixed"] == (Uniform(-1.0, 1.0), Uniform(-1.0, 1.0), Normal(), Cauchy())
    low = next(entry.scheduled for entry in experiment.entries if dict(entry.labels)["level"] == "low")
    assert low.levels == pytest.approx((0.3, 0.4, 0.5, 0.6))
    one = next(entry.cell for entry in experiment.entries if dict(entry.labels)["truth_rate"] == "one")
    assert one.truth_rates == pytest.approx((0.46211716,) * 4)


def test_keys_name_settings_and_not_places() -> None:
    experiment = parse_experiment(GOOD)
    keys = [entry.cell.key for entry in experiment.entries]
    assert len(set(keys)) == len(keys)
    other = parse_experiment(
        GOOD.replace('level = [0.5, "low"]', 'level = ["low", 0.5]').replace("seed = 3", "seed = 4")
    )
    assert set(keys) == {entry.cell.key for entry in other.entries}
    assert experiment.digest != other.digest


def test_protocols_differ_in_data_steps_and_critical_values() -> None:
    fresh, fixed = (parse_experiment(GOOD, protocol=p).entries[0].scheduled for p in ("independent", "published"))
    assert (fresh.fixed_data, fresh.fixed_step, fresh.critical, fresh.critical_beside) == (False, False, None, 6.74735)
    assert (fixed.fixed_data, fixed.fixed_step, fixed.critical) == (True, True, 6.74735)
    # The fixed step: the first 5% of the records' number of rounds at the first value.
    assert fixed.steps[:5].tolist() == [fixed.steps[0]] * 5
    assert fixed.steps[5:].tolist() == fresh.steps[: fresh.steps.size - 5].tolist()


def errors_of(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        parse_experiment(text, source="bad.toml")
    return str(caught.value).splitlines()


def test_all_errors_are_named_at_once_with_line_field_and_rule() -> None:
    bad = (
        GOOD.replace("replications = 50", "replications = 0")
        .replace('same = "normal"', 'same = "gauss"')
        .replace("{ from = 0.3, to = 0.6 }", "{ from = 0.3, to = 1.6 }")
        .replace("listed = [0.2, 0.4, 0.6, 0.8]", "listed = [0.2, 0.4]")
        .replace('mode = "local"', 'mode = "global"')
        .replace('method = ["C5", "log"]', 'method = ["C5", "logg"]')
        .replace("records = [100, 200]", "records = [100, 1]")
        .replace("rounds = [4]", "rounds = [4]\nrecords = [4]\nsize = 3")
        .replace("seed = 3", "seed = 3\nsede = 4")
    )
    found = errors_of(bad)
    assert found[0] == "bad.toml has 10 errors:"
    assert found[1:] == [
        "  line 3, replications: must be a whole number from 1 to 10000000; got 0.",
        "  line 5, sede: there is no such setting. Did you mean 'seed'?",
        "  line 8, populations.same: family must be one of normal, uniform, cauchy, laplace, lognormal, student-t, "
        "mixture; got 'gauss'.",
        "  line 17, levels.low: a level must lie inside (0, 1); got 1.6.",
        "  line 21, truth_rates.listed: must hold one number per client, 4; got 2.",
        "  line 24, methods.C5.mode: must be one of cohort, local; got 'global'.",
        "  line 33, grid[1].method[2]: must be the name of one of the design's methods (C5, grow, log, hand); "
        "got 'logg'.",
        "  line 34, grid[1].records[2]: must be a whole number from 2 to 100000000; got 1.",
        "  line 36, grid[2]: must give records or rounds, and not both.",
        "  line 43, grid[2].size: there is no such setting. Known: population, level, truth_rate, method, records, "
        "rounds.",
    ]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("seed = 3", "seed = 3.5", "line 4, seed: must be a whole number from 0 to 2⁶³ − 1; got 3.5."),
        ("clients = 4", "clients = 0", "line 2, clients: must be a whole number from 1 to 100000; got 0."),
        ("seed = 3", "weights = [0.5, 0.5]", "line 4, weights: must hold one positive number per client, 4; got 2"),
        ("seed = 3", "weights = [0.5, 0.3, 0.3, 0.1]", "line 4, weights: must sum to 1"),
        ("seed = 3", 'protocol = "both"', "line 4, protocol: must be one of independent, published; got 'both'."),
        ("seed = 3", "confidence_level = 95.0", "must be a number inside (0, 1); 95% is 0.95; got 95.0."),
        ("seed = 3", 'start = "nowhere"', "line 4, start: family must be one of"),
        ("[0, 1, 2, 3] }", "[0, 1] }", "line 8, populations.moved: location must hold one number per client, 4; got"),
        ("count = 2", "count = 3", "line 9, populations.mixed: must give one population per client, 4; got 5."),
        ("count = 2", f"count = {10**18}", "line 9, populations.mixed: must give one population per client, 4; got 7."),
        ("count = 2", "count = 0", "count must be a whole number of at least 1; got 0."),
        ("lengths = 5", "lengths = 0", "methods.C5: a round's length must be at least 1 record; got 0."),
        ("lengths = 5", "lenghts = 5", "methods.C5.lenghts: there is no such setting. Did you mean 'lengths'?"),
        ("lengths = 5", 'lengths = "five"', "methods.C5.lengths: must be a whole number"),
        ("warm_up = 0.05", "warm_up = 1.5", "methods.C5: warm_up is a share and must lie in [0, 1); got 1.5."),
        ("step_scale = 5", "step_scale = -1", "methods.grow: a step rule needs scale > 0"),
        ("lengths = 5,", 'method = "magic", lengths = 5,', "methods.C5.method: must be one of estimator, dp-sgd"),
        ("truth_rate = [1]", "truth_rate = [0]", "line 38, grid[2].truth_rate[1]: a truth_rate must lie in (0, 1]"),
        ("truth_rate = [1]", "truth_rate = []", "grid[2].truth_rate: must be a list of at least one truth_rate"),
        ("rounds = [4]", "rounds = [4, 4]", "the cell population=same, level=0.5, truth_rate=1, method=grow, rounds=4"),
        ("rounds = [4]", "", "line 35, grid[2]: must give records or rounds, and not both."),
        ("rounds = [4]", "rounds = [400]", "grid[2]: the list holds 4 round lengths; 400 were asked for."),
        ("lengths = 5,", 'method = "dp-sgd", lengths = 5,', "dp-sgd asks one record per round"),
    ],
)  # fmt: skip
def test_one_error_is_named(old: str, new: str, line: str) -> None:
    assert old in GOOD
    assert any(line in found for found in errors_of(GOOD.replace(old, new)))


def test_a_text_that_is_no_toml_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"bad.toml is not valid TOML: .*line 2"):
        parse_experiment("title = 'x'\nseed = = 3", source="bad.toml")
    with pytest.raises(InputError, match="cannot be read"):
        read_experiment(tmp_path / "missing.toml")
    with pytest.raises(InputError, match=r"at least one \[\[grid\]\]"):
        parse_experiment("clients = 3")
