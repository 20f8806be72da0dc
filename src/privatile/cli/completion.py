"""`privatile completion`: a script that teaches a shell our commands and options."""

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from privatile.cli.printing import echo

SHELLS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}


@click.command()
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """A completion script for SHELL, to be loaded at its start.

    \b
    bash   eval "$(privatile completion bash)"            in ~/.bashrc
    zsh    eval "$(privatile completion zsh)"             in ~/.zshrc
    fish   privatile completion fish | source             in ~/.config/fish/config.fish
    """
    root = ctx.find_root().command
    echo(SHELLS[shell](root, {}, "privatile", "_PRIVATILE_COMPLETE").source())
