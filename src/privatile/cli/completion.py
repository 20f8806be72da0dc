"""`privatile completion`: a script that teaches a shell our commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from privatile.errors import InputError

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """A completion script for SHELL, to be loaded at its start.

    \b
    bash   eval "$(privatile completion bash)"            in ~/.bashrc
    zsh    eval "$(privatile completion zsh)"             in ~/.zshrc
    fish   privatile completion fish | source             in ~/.config/fish/config.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise InputError(f"there is no completion for {shell}; there is one for {', '.join(SHELLS)}.")
    root = ctx.find_root().command
    click.echo(kind(root, {}, "privatile", "_PRIVATILE_COMPLETE").source())
