"""The options of a run's dashboard, for every command that has one."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privatile.cli.printing import echo
from privatile.errors import InputError

if TYPE_CHECKING:
    from privatile.dashboard.serving import DashboardAddress


@dataclass(frozen=True)
class DashboardOptions:
    """What the command line asks for."""

    flag: bool
    at: str | None
    tls: tuple[Path, Path] | None
    keep: bool = False
    prefix: str = "dashboard-"
    """What the names of --dashboard-at and --dashboard-tls begin with, at this command."""

    @property
    def wanted(self) -> bool:
        """Whether there is to be a dashboard at all."""
        return self.flag or self.at is not None or self.keep

    @contextlib.contextmanager
    def running(self, path: str | Path) -> Iterator[None]:
        """A dashboard of the run's file while the block lasts; its address is printed."""
        if not self.wanted:
            yield
            return
        from privatile.dashboard.serving import run_dashboard

        with run_dashboard(Path(path), self.address()) as page:
            echo(f"dashboard: {page.url}", err=True)
            yield

    def address(self) -> "DashboardAddress":
        """Where it listens."""
        from privatile.dashboard.serving import DashboardAddress

        host, port = self._address()
        certificate, key = self.tls or (None, None)
        return DashboardAddress(host, port, certificate, key)

    def __post_init__(self) -> None:
        self._address()  # a wrong one is refused before anyone is asked
        for path in self.tls or ():
            if not path.is_file():
                raise InputError(f"--{self.prefix}tls takes the files of a certificate and its key; {path} is none.")

    def _address(self) -> tuple[str, int]:
        if self.at is None:
            return "127.0.0.1", 0
        host, _, port = self.at.rpartition(":")
        if not host or not (port.isdecimal() and int(port) < 1 << 16):
            raise InputError(f"--{self.prefix}at takes HOST:PORT, as in 127.0.0.1:8080; got {self.at!r}.")
        return host.removeprefix("[").removesuffix("]"), int(port)

    def linger(self, *, at_a_terminal: bool = True) -> None:
        """Keep the page open until Ctrl-C: with --keep, or for the person at the terminal."""
        if self.keep or (at_a_terminal and self.wanted and sys.stdin.isatty()):
            echo("the dashboard stays open until you press Ctrl-C.", err=True)
            with contextlib.suppress(KeyboardInterrupt):
                threading.Event().wait()


def address_options(prefix: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Where the dashboard listens, and with which certificate: --at and --tls, behind a prefix."""

    def with_address(command: Callable[..., Any]) -> Callable[..., Any]:
        where = click.option(
            f"--{prefix}at", metavar="HOST:PORT", help="Where the dashboard listens (127.0.0.1, any port)."
        )
        tls = click.option(
            f"--{prefix}tls",
            nargs=2,
            type=click.Path(path_type=Path),
            metavar="CERT KEY",
            help="Certificate and key: needed to show the dashboard to other machines, with a token that is printed.",
        )
        return where(tls(command))

    return with_address


def dashboard_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--dashboard, --dashboard-at, --dashboard-tls and --keep; the command gets one argument, `dashboard`."""

    @click.option(
        "--dashboard", is_flag=True, help="Watch the run in a browser while it runs; the page changes nothing."
    )
    @address_options("dashboard-")
    @click.option("--keep", is_flag=True, help="Keep the dashboard open when the run has ended, until Ctrl-C.")
    @wraps(command)
    def with_options(
        *args: Any,
        dashboard: bool,
        dashboard_at: str | None,
        dashboard_tls: tuple[Path, Path] | None,
        keep: bool,
        **values: Any,
    ) -> Any:
        return command(*args, dashboard=DashboardOptions(dashboard, dashboard_at, dashboard_tls, keep), **values)

    return with_options
