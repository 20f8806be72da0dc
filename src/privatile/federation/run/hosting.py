"""What a long-running process of a federation needs around it: signals that stop them, and the page for operators."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any, Protocol

from privatile.federation.monitoring import Metrics, operations_page

Say = Callable[[str], None]
"""Shows a line to the operator."""


class Hosted(Protocol):
    """A coordinator or a client."""

    @property
    def metrics(self) -> Metrics:
        """What it measures."""

    def stop(self) -> None:
        """Keep what is done and return."""

    def health(self) -> tuple[bool, dict[str, Any]]:
        """Whether all is well, and how far it is."""


@contextlib.asynccontextmanager
async def hosted(
    service: Hosted,
    ops_host: str,
    ops_port: int | None,
    ops_names: Collection[str],
    say: Say,
) -> AsyncIterator[None]:
    """Let SIGTERM and SIGINT stop the service, and serve its operations page where a port is given."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, service.stop)
    if ops_port is None:
        yield
        return
    async with operations_page(ops_host, ops_port, service.metrics, service.health, names=ops_names) as port:
        say(f"operations  http://{ops_host}:{port}/metrics and /health")
        yield
