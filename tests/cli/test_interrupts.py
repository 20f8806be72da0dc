"""Ctrl-C while a module is imported or a file is queried: an interrupt, whatever they make of it."""

import signal
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

import privatile.cli
from privatile.cli import main


def failing(*, pressed: bool, kind: type[Exception] = ImportError) -> click.Command:
    """A command whose import fails, as numpy's does when it is interrupted, or by itself; or its query."""

    @click.command("estimate")
    def command() -> None:
        if pressed:
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                raise kind("a compiled part failed to import") from None
        raise kind("a module is missing")

    return command


@pytest.fixture(autouse=True)
def the_usual_handler() -> Iterator[None]:
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, usual)


@pytest.mark.parametrize("kind", [ImportError, RuntimeError])
def test_an_interrupted_import_or_query_is_an_interrupt(monkeypatch: pytest.MonkeyPatch, kind: type[Exception]) -> None:
    monkeypatch.setattr(privatile.cli.LazyGroup, "get_command", lambda *_: failing(pressed=True, kind=kind))
    done = CliRunner().invoke(main, ["estimate"])
    assert done.exit_code == 130
    assert "interrupted; what was answered is kept" in done.output
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # pressed again, it still ends as an interrupt


@pytest.mark.parametrize("kind", [ImportError, RuntimeError])
def test_what_fails_by_itself_is_not_an_interrupt(monkeypatch: pytest.MonkeyPatch, kind: type[Exception]) -> None:
    monkeypatch.setattr(privatile.cli.LazyGroup, "get_command", lambda *_: failing(pressed=False, kind=kind))
    done = CliRunner().invoke(main, ["estimate"])
    assert isinstance(done.exception, kind)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_while_the_options_are_read_is_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse_args(*_: object) -> list[str]:
        signal.raise_signal(signal.SIGINT)
        return []

    monkeypatch.setattr(privatile.cli.LazyGroup, "parse_args", parse_args)
    assert CliRunner().invoke(main, ["estimate"]).exit_code == 130
