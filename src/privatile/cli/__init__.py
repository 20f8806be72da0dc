"""The command line: parse, call, print. One file per command, imported when it is called."""

import importlib
import re
import sys
from typing import Any

import click
from click.exceptions import Abort, Exit

from privatile import __version__
from privatile.cli.printing import (
    drop_what_cannot_be_written,
    echo,
    in_options,
    remembered_interrupts,
    said_by_the_system,
    show_any_text,
    tell_of_interrupt,
)
from privatile.core import extensions
from privatile.core.text import disarmed, meant, removed
from privatile.errors import OptionError, PrivatileError

__all__ = ["main"]

COMMANDS = {
    "demo": "A first result from made-up salaries, beside the truth.",
    "estimate": "A quantile with its interval from a file or several.",
    "report": "A page about a run: the answer, the way there, what it cost.",
    "status": "Where a run, a federation or a survey stands.",
    "dashboard": "Runs in a browser, one or several.",
    "plan": "How narrow an interval would be, and what it takes.",
    "compare": "The difference of quantiles of different people.",
    "ledger": "What has been spent, by whom.",
    "simulate": "Monte Carlo experiments from a design.",
    "paper": "The paper's tables and figures, reproduced.",
    "survey": "A survey on the web: one person, one randomized bit.",
    "federation": "Set up a federation, admit clients, look after a run.",
    "enroll": "Make a client's key on its own machine.",
    "serve": "Run a federation's coordinator.",
    "join": "Run a federation's client next to its data.",
    "release": "The signed record of a federation's run.",
    "audit": "Measure a client's privacy from outside.",
    "verify": "Check a release record, from the counts alone.",
    "doctor": "What is installed; are clock, randomness and disk fine?",
    "completion": "Teach your shell these commands.",
}
"""Command -> one line for --help."""

MODULES = {
    **dict.fromkeys(("demo", "doctor", "completion"), "start"),
    **dict.fromkeys(("report", "status", "dashboard", "compare"), "see"),
    **dict.fromkeys(("simulate", "paper"), "research"),
    **dict.fromkeys(("enroll", "serve", "join", "release", "audit"), "federation"),
}
"""Command -> the module of `privatile.cli` that holds it, where it is not of the same name."""

NO_COMMAND = re.compile(r"No such command '([\w-]+)'.*")
"""What click says of a command of a group that is not there."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


class LazyGroup(click.Group):
    """Knows its commands by name and help line; imports one only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names, in the order of the table, then those of extensions."""
        return [*COMMANDS, *(known.command for known in extensions.installed())]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import the command's module."""
        for known in extensions.KNOWN:
            if name == known.command:
                return extensions.find(known).command()
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"privatile.cli.{MODULES.get(name, name)}"), name)
        for known in extensions.installed():
            if name in known.options:
                command = extensions.find(known).extend(name, command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table, without importing a command."""
        with formatter.section("Commands"):
            added = [(known.command, known.about) for known in extensions.installed()]
            formatter.write_dl([*COMMANDS.items(), *added])

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Run, on whatever terminal this is."""
        show_any_text()
        return super().main(*arguments, **options)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is named; of an unknown one, which was meant."""
        name = args[0] if args else ""
        if args and not name.startswith("-") and self.get_command(ctx, name) is None:
            if gone := removed(name):
                ctx.fail(gone)
            known = dict.fromkeys(self.list_commands(ctx))
            near = meant(name, known)
            hint = f"Did you mean {near!r}?" if near else f"Commands: {', '.join(known)}."
            ctx.fail(f"No such command {name!r}. {hint}")
        return super().resolve_command(ctx, args)

    def make_context(self, *arguments: Any, **options: Any) -> click.Context:
        """Read the words of the command line."""
        try:
            return super().make_context(*arguments, **options)
        except KeyboardInterrupt:
            tell_of_interrupt()
            sys.exit(INTERRUPTED)

    def invoke(self, ctx: click.Context) -> Any:
        """Turn our errors into one clear paragraph on stderr and their exit code."""
        with remembered_interrupts() as interrupted:
            try:
                return super().invoke(ctx)
            except PrivatileError as error:
                command = self.get_command(ctx, ctx.invoked_subcommand or "")
                said = (
                    f"--{error.name.replace('_', '-')} {error.rule}" if isinstance(error, OptionError) else str(error)
                )
                text = str(error) if command is None else in_options(said, command)
                echo(f"privatile: {text}", err=True)
                ctx.exit(error.exit_code)
            except click.ClickException as error:
                told = _with_suggestion(error) if isinstance(error, click.NoSuchOption) else error
                if isinstance(error, click.UsageError) and (found := NO_COMMAND.fullmatch(error.message)):
                    gone = removed(f"{_named(error)}{found[1]}")
                    told = click.UsageError(gone, error.ctx) if gone else error
                told.message = disarmed(told.message)  # type: ignore[misc]  # click says it is final
                raise told from None
            except BrokenPipeError:
                raise  # the reader closed the pipe: click ends quietly
            except OSError as error:
                text, code = said_by_the_system(error)
                echo(f"privatile: {text}", err=True)
                drop_what_cannot_be_written()
                ctx.exit(code)
            except (KeyboardInterrupt, ImportError, RuntimeError) as error:
                # click's own ends are RuntimeErrors, too; a query that Ctrl-C ends raises the plain one.
                if not (isinstance(error, KeyboardInterrupt) or interrupted()) or isinstance(error, Exit | Abort):
                    raise
                tell_of_interrupt()
                ctx.exit(INTERRUPTED)


def _named(error: click.UsageError) -> str:
    """The command that an error is about, as it was typed behind `privatile`, each word with a blank."""
    names, ctx = "", error.ctx
    while ctx is not None and ctx.parent is not None:
        names, ctx = f"{ctx.info_name} {names}", ctx.parent
    return names


def _with_suggestion(error: click.NoSuchOption) -> click.UsageError:
    """The error with the one option that was probably meant, or what replaces it, instead of all that look alike."""
    if gone := removed(_named(error).rstrip(), error.option_name):
        return click.UsageError(gone, error.ctx)
    for one in extensions.KNOWN:
        if any(error.option_name in names for names in one.options.values()) and one not in extensions.installed():
            text = f"{error.option_name!r} needs the extension {one.name}. Install it: {one.install}."
            return click.NoSuchOption(error.option_name, text, ctx=error.ctx)
    options = [option for one in (error.ctx.command.params if error.ctx else ()) for option in one.opts]
    known = {option.lstrip("-").replace("-", "_"): option for option in options if option.startswith("--")}
    near = meant(error.option_name.lstrip("-"), known)
    hint = f" Did you mean {known[near]!r}?" if near else ""
    return click.NoSuchOption(error.option_name, f"No such option {error.option_name!r}.{hint}", ctx=error.ctx)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="privatile")
def main() -> None:
    """Quantiles with honest confidence intervals, from data that never leaves its owner.

    Each record answers one question, "are you above q?", once, through a randomized bit. Nothing else leaves it.

    \b
    Start here:
      privatile demo
    """


if __name__ == "__main__":
    sys.exit(main())
