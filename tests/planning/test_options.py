"""Options read from a TOML file."""

from pathlib import Path
from typing import Any, get_type_hints

import pytest

from privatile.core.decoding import in_words
from privatile.errors import InputError
from privatile.planning.options import Options, read_options


def test_the_kind_of_every_option_can_be_said_in_words() -> None:
    words = {name: in_words(hint) for name, hint in get_type_hints(Options).items()}
    assert words["range"] == "a list of 2 finite numbers"
    assert words["ledger"] == "a text"
    assert all(words.values())


def test_all_errors_of_a_file_are_reported_at_once_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "options.toml"
    path.write_text('epsilom = 1\nrange = [1]\nmode = "locale"\nrounds = true\njson = true\n')
    with pytest.raises(InputError) as refused:
        read_options(path)
    assert str(refused.value).splitlines() == [
        f"{path} has 6 errors:",
        '  data: must name a file: data = "salaries.csv".',
        "  line 1, epsilom: there is no such setting. Did you mean 'epsilon'?",
        "  line 2, range: must be a list of 2 finite numbers; got a list of 1 whole numbers.",
        "  line 3, mode: must be one of cohort, local; got 'locale'.",
        "  line 4, rounds: must be a whole number; got true or false.",
        f"  line 5, json: goes on the command line: privatile estimate {path} --json.",
    ]


def test_paths_are_relative_to_the_file_and_numbers_stay_as_written(tmp_path: Path) -> None:
    path = tmp_path / "options.toml"
    path.write_text('data = "d.csv"\nledger = "l.db"\nq = [0.1, 0.9]\nepsilon = {a = 1}\ndither = 1\n')
    data, given = read_options(path)
    assert data == tmp_path / "d.csv"
    assert given == {"ledger": tmp_path / "l.db", "q": (0.1, 0.9), "epsilon": {"a": 1}, "dither": 1}
    assert isinstance(given["dither"], int)


def test_a_client_may_be_named_in_either_unicode_form_and_only_once() -> None:
    nfc, nfd = "K\u00f6ln", "Ko\u0308ln"
    options = Options(q={nfd: 0.5}, epsilon={f" {nfd}": 1.0}, client_weights={nfd: 1.0}, only=nfd, range=(0, 1))
    assert options.only == nfc
    assert (options.q, options.epsilon, options.client_weights) == ({nfc: 0.5}, {nfc: 1.0}, {nfc: 1.0})
    options.check_clients([nfc])
    for option in ("q", "epsilon", "client_weights"):
        twice: dict[str, Any] = {"epsilon": 1.0, option: {nfc: 0.5, nfd: 0.5}}
        with pytest.raises(InputError, match=f"{option} names client 'Köln' more than once"):
            Options(range=(0, 1), **twice)
