"""The dashboard's process: `python -m privatile.report.dashboard RUN.DB --fd N`, started by `serving.run_dashboard`."""

import contextlib
import os
import socket
from pathlib import Path

import click

from privatile.report.dashboard.serving import TOKEN_VARIABLE, DashboardAddress, run_server

BELOW_THE_RUN = 10
"""Niceness: where cores are few, the run goes first."""


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--fd", type=int, required=True)
@click.option("--host", required=True)
@click.option("--certificate", type=click.Path(path_type=Path))
@click.option("--key", type=click.Path(path_type=Path))
def main(path: Path, fd: int, host: str, certificate: Path | None, key: Path | None) -> None:
    """Serve the dashboard of a run's file on an inherited socket."""
    with contextlib.suppress(OSError):
        os.nice(BELOW_THE_RUN)
    token = os.environ.pop(TOKEN_VARIABLE, None)
    address = DashboardAddress(host=host, certificate=certificate, key=key)
    run_server([path], socket.socket(fileno=fd), address, token, with_parent=True)


if __name__ == "__main__":
    main()
