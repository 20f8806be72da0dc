"""The options of commands that run as services: their operations page, their log, their unit."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from privatile.cli.printing import echo


def service_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--ops-port, --ops-host, --ops-name, --install-unit and --json-logs."""
    options = (
        click.option(
            "--ops-port", type=click.IntRange(0, 65535), help="Serve /metrics and /health here (0: any free port)."
        ),
        click.option("--ops-host", default="127.0.0.1", show_default=True, help="The address to serve them on."),
        click.option(
            "--ops-name",
            "ops_names",
            multiple=True,
            metavar="NAME",
            help="Another name by which they may be asked for, such as this machine's name in DNS; may be repeated.",
        ),
        click.option(
            "--install-unit", type=click.Path(path_type=Path), metavar="DIR", help="Write a systemd unit and stop."
        ),
        click.option("--json-logs", is_flag=True, help="Log one JSON object per line."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def operations_arguments(ops_port: int | None, ops_host: str, ops_names: Sequence[str]) -> list[str]:
    """The same as words of a command, for a unit.

    >>> operations_arguments(9464, "127.0.0.1", ["ops.example"])
    ['--ops-port', '9464', '--ops-host', '127.0.0.1', '--ops-name', 'ops.example']
    """
    if ops_port is None:
        return []
    names = [word for name in ops_names for word in ("--ops-name", name)]
    return ["--ops-port", str(ops_port), "--ops-host", ops_host, *names]


def write_unit(folder: Path, name: str, unit: str) -> None:
    """Write a unit's text into a folder and say what to do with it."""
    path = folder / f"privatile-{name}.service"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(unit, encoding="utf-8")
    echo(f"{path}: copy it to /etc/systemd/system, then `systemctl enable --now {path.name}`.")
