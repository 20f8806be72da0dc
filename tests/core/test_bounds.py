"""Small files that would cost much: what they ask for is bounded before it is computed."""

import json
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from privatile.core.decoding import LARGEST_FILE, line_numbers, parse_json, parse_toml, read_text
from privatile.core.messages import Answer, Question
from privatile.errors import InputError, PrivatileError
from privatile.estimator.schedule import MAX_COUNTS, Constant, Logarithmic, Power, lengths_by_records
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.federation.study import FederationStudy
from privatile.simulation.experiment import parse_experiment

LONG = "9" * 400
LONGER = "9" * 5000
"""Python refuses to convert a number of so many digits."""


def refused(call: Callable[[], object], seconds: float = 3.0, megabytes: float = 60.0) -> str:
    """The error of a call that must be refused, quickly and in little memory."""
    tracemalloc.start()
    begun = time.process_time()
    try:
        with pytest.raises(PrivatileError) as error:
            call()
        assert time.process_time() - begun < seconds
        assert tracemalloc.get_traced_memory()[1] < megabytes * 1e6
    finally:
        tracemalloc.stop()
    return str(error.value)


def study(**changes: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "identity": "0123456789ab",
        "title": "t",
        "asked_by": "a",
        "value": "x",
        "level": 0.5,
        "range": [0.0, 100.0],
        "rounds": 200,
        "clients": {"north": {"epsilon": 1.0, "weight": 1.0, "records": 10_000}},
    }
    levels = changes.pop("levels", 1)
    if levels > 1:
        del plain["level"]
        plain["levels"] = [(k + 1) / (levels + 1) for k in range(levels)]
    plain["clients"]["north"] |= {"records": changes.pop("records", 10_000)}
    return {**plain, **changes}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rounds": 5_000_000, "levels": 50, "records": 10**9}, "a run may have 5,000,000 counts"),
        ({"rounds": 5_000_000, "levels": 50, "records": 10**9, "design": "rounds"}, "a run may have 5,000,000 counts"),
        ({"rounds": 200_000, "levels": 50, "records": 10**9, "design": "rounds"}, "are 10,000,000. Ask for fewer"),
        ({"rounds": 10_000_000, "records": 10**9}, "must lie in 1 to 5,000,000; got 10000000"),
        ({"records": int(LONG)}, "a whole number must lie within"),
        ({"rounds": int(LONG)}, "a whole number must lie within"),
        ({"rounds": -int(LONGER[:4000])}, "a whole number must lie within"),
        ({"level": int(LONG)}, "a whole number must lie within"),
        ({"range": [0, int(LONG)]}, "range[2]: a whole number must lie within"),
        ({"records": 1 << 60}, "must be at most 9007199254740992"),
    ],
)
def test_a_small_study_that_asks_for_much_is_refused_at_once(changes: dict[str, Any], words: str) -> None:
    assert words in refused(lambda: FederationStudy.from_dict(study(**changes)))


def test_the_largest_study_that_is_accepted_takes_a_second_or_two() -> None:
    begun = time.process_time()
    FederationStudy.from_dict(study(rounds=MAX_COUNTS, records=MAX_COUNTS, design="rounds"))
    assert time.process_time() - begun < 3.0


@pytest.mark.parametrize("design", ["constant:1", "paper-c1", f"constant:{LONG}", f"list:1,{LONG}"])
def test_a_design_that_would_cut_many_records_into_rounds_is_refused_at_once(design: str) -> None:
    def plan() -> object:
        clients = (ClientSpec("north", (1 << 63) + 1, 1.0, 1 << 53),)
        spec = RunSpec("x", (0.5,), clients, "linear", 0.0, 1.0, design=design)
        return spec.plan()

    # The table of as many rounds as are allowed is made before it is found too small.
    assert "round" in refused(plan, megabytes=250.0)


def test_round_lengths_are_the_same_however_many_are_tried_first() -> None:
    """The first guess of the number of rounds has changed from a sixteenth of the records to 16."""
    assert lengths_by_records(Constant(3), 1000).tolist() == [3] * 333 + [1]
    assert lengths_by_records(Power(2.0), 1 << 53).sum() == 1 << 53
    assert len(lengths_by_records(Logarithmic(), 10_000, 500)) == 1_549


RUN = RunSpec("x", (0.5,), (ClientSpec("north", (1 << 63) + 1, 1.0, 1000),), "linear", 0.0, 1.0, rounds=100)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rounds": int(LONG)}, "a whole number must lie within"),
        ({"rounds": 1 << 60}, "rounds must lie in 1 to 5,000,000"),
        ({"rounds": 5_000_000, "levels": [0.1, 0.5]}, "a run may have 5,000,000 counts"),
        ({"low": int(LONG)}, "a whole number must lie within"),
        ({"clients": [{"name": "n", "threshold": LONG, "weight": 1.0, "records": 5}]}, "up to 20 digits"),
        ({"clients": [{"name": "n", "threshold": 7, "weight": 1.0, "records": 5}]}, "must be a text of up to 20"),
        ({"clients": [{"name": "n", "threshold": "7", "weight": 1.0, "records": 1 << 60}]}, "records must be at most"),
        ({"clients": [7]}, "up to 20 digits"),
        ({"clients": {"n": 7}}, "clients"),
        ({"levels": 0.5}, "levels: must be"),
        ({"levels": ["a"]}, "levels: must be"),
        ({"value": None}, "value: must be"),
        ({"design": ["auto"]}, "design: must be"),
    ],
)
def test_a_run_specification_from_outside_is_checked_before_it_is_used(changes: dict[str, Any], words: str) -> None:
    text = json.dumps({**json.loads(RUN.to_json()), **changes})
    assert words in refused(lambda: RunSpec.from_json(text))
    assert RunSpec.from_json(RUN.to_json()) == RUN


@pytest.mark.parametrize("text", [LONGER, f"[{LONGER}]", "NaN", "[Infinity]", "[" * 100_000, "[" * 40 + "]" * 40, "{"])
def test_json_that_cannot_be_computed_with_is_refused(text: str) -> None:
    assert "the file" in refused(lambda: parse_json(text, "the file"))


@pytest.mark.parametrize(
    "text",
    [
        f"a = {LONG}",
        f"a = {LONGER}",
        f"a = 0x{'f' * 5000}",
        "a = " + "[" * 10_000,
        "a = " + "[" * 40 + "]" * 40,
        ".".join("a" * 3000) + " = 1",
        "[" + ".".join("a" * 3000) + "]",
    ],
)
def test_toml_that_cannot_be_computed_with_is_refused(text: str) -> None:
    assert "x.toml" in refused(lambda: parse_toml(text, "x.toml"))


def test_a_line_that_looks_like_a_header_is_read_in_one_pass() -> None:
    """In a text of several lines anything may stand; 5,000 blanks after a bracket took minutes."""
    begun = time.process_time()
    for line in (
        "[" + " " * 20_000,
        "[" + " a" * 20_000,
        "a" * 20_000,
        "a." * 20_000,
        '"' * 20_001,
        "a" + " " * 20_000,
    ):
        line_numbers(f'a = """\n{line}\n"""')
    assert time.process_time() - begun < 3.0


def test_a_file_with_thousands_of_errors_is_refused_at_once() -> None:
    def read() -> object:
        document = parse_toml("\n".join(f"roundz{k} = 1" for k in range(1_000)), "x.toml")
        return document.finish(document.decode(RunSpec))

    message = refused(read)
    assert message.startswith("x.toml has too many errors:\n")
    assert message.count("\n") == 100


def test_a_file_that_is_no_settings_file_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    with path.open("wb") as file:
        file.truncate(LARGEST_FILE * 100)
    assert "more than 33,554,432 bytes" in refused(lambda: read_text(path), megabytes=80.0)


def test_an_experiment_with_too_many_cells_is_refused() -> None:
    numbers = ", ".join(f"0.{k:03}" for k in range(1, 400))
    text = f"""
        [populations]
        same = "normal"
        [methods]
        C1 = {{lengths = 1}}
        [[grid]]
        population = ["same"]
        level = [{numbers}]
        truth_rate = [{numbers}]
        method = ["C1"]
        records = [100]
    """
    assert "a grid may have 10,000 cells; this one has 159,201" in refused(lambda: parse_experiment(text))


def test_messages_with_long_numbers_are_refused() -> None:
    for value in (int(LONG), -int(LONG), 10**5000):
        for field in ("round", "length", "query", "level"):
            fields: dict[str, Any] = {"run": "r", "round": 1, "level": 0.5, "query": 0.0, "length": 1, field: value}
            with pytest.raises(InputError, match="more than 60 digits"):
                Question(**fields)
    for text in (LONG, LONGER):
        with pytest.raises(InputError):
            Answer.from_json(f'{{"question": {{}}, "client": "c", "position": [0, "{"0" * 32}"], "ones": {text}}}')
