"""Ctrl-C while a module is imported: an interrupt, whatever the module makes of it."""

import signal
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

import privatile.cli
from privatile.cli import main


def failing(*, pressed: bool) -> click.Command:
    """A command whose import fails, as numpy's does when it is interrupted, or by itself."""

    @click.command("estimate")
    def command() -> None:
        if pressed:
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                raise ImportError("a compiled part failed to import") from None
        raise ImportError("a module is missing")

    return command


@pytest.fixture(autouse=True)
def the_usual_handler() -> Iterator[None]:
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, usual)


def test_an_interrupted_import_is_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privatile.cli.LazyGroup, "get_command", lambda *_: failing(pressed=True))
    done = CliRunner().invoke(main, ["estimate"])
    assert done.exit_code == 130
    assert "interrupted; what was answered is kept" in done.output
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # pressed again, it still ends as an interrupt


def test_an_import_that_fails_by_itself_is_not_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privatile.cli.LazyGroup, "get_command", lambda *_: failing(pressed=False))
    done = CliRunner().invoke(main, ["estimate"])
    assert isinstance(done.exception, ImportError)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_while_the_options_are_read_is_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse_args(*_: object) -> list[str]:
        signal.raise_signal(signal.SIGINT)
        return []

    monkeypatch.setattr(privatile.cli.LazyGroup, "parse_args", parse_args)
    assert CliRunner().invoke(main, ["estimate"]).exit_code == 130
