"""The command `privatile` with a coordinator that lets a moment pass before each question.

A page on which a run goes on while commands are typed has thousands of rounds, so that it is not over before its reader
is. Asked as fast as the machine can, they take most of the page's processor time and show nothing.
"""

from __future__ import annotations

import asyncio
import sys

MOMENT = 0.04
"""Seconds: a round trip to sites that are not on the same machine."""


def pace() -> None:
    """Put the moment into this process's coordinator; nothing else changes."""
    from privatile.federation.coordinator.service import CoordinatorService
    from privatile.federation.transport import CoordinatorTransport

    publish = CoordinatorService._publish

    async def after_a_moment(self: CoordinatorService, transport: CoordinatorTransport, payload: bytes) -> None:
        await asyncio.sleep(MOMENT)
        await publish(self, transport, payload)

    CoordinatorService._publish = after_a_moment  # type: ignore[method-assign]


if __name__ == "__main__":
    from privatile.cli import main

    if sys.argv[1:2] == ["serve"]:
        pace()
    main()
