"""`privatile dashboard`: one run or several in a browser, for as long as you like."""

from pathlib import Path

import click

from privatile.cli.dashboard_options import DashboardOptions, address_options
from privatile.cli.printing import echo


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=click.Path(path_type=Path))
@address_options("")
def dashboard(runs: tuple[Path, ...], at: str | None, tls: tuple[Path, Path] | None) -> None:
    """Watch runs in a browser: running, finished, or not begun yet. The page changes nothing.

    RUN is a run's file (`estimate --save RUN.DB`) or a federation's folder. Of several runs the first page lists all of
    them. Ends with Ctrl-C, not with a run.

    \b
    privatile dashboard run.db
    privatile dashboard study/ another-study/ --at 127.0.0.1:8080
    """
    from privatile.dashboard.live import find_run
    from privatile.dashboard.serving import show_runs

    address = DashboardOptions(True, at, tls, prefix="").address()
    found = [find_run(run) for run in runs]
    for path in found:
        if not path.exists():
            echo(f"{path} does not exist yet: waiting for it", err=True)
    show_runs(found, address, lambda url: echo(f"dashboard: {url}", err=True))
