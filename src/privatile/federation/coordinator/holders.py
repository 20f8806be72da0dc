"""Two processes that use one client's key at the same time, as their hellos show it."""

from collections import deque

from privatile.federation.wire.messages import Hello

TWO_HOLDERS = (
    "two processes used its key at the same time, and both have stopped. Find the second one (a copied folder, a "
    "service left running), remove it, then start one again"
)

KEPT_HELLOS = 32
"""Hellos of one client, by whichever process, whose nonces another process may still echo."""


class Holders:
    """The processes that say hello with one client's key: finds two that live at the same time.

    Each of them echoes a nonce of the other (`site.service`), which no recorded hello can do; and one of the two has
    echoed a nonce of this coordinator, so that an old exchange that is sent again proves nothing.
    """

    def __init__(self) -> None:
        self._hellos: deque[tuple[str, str]] = deque(maxlen=KEPT_HELLOS)
        """(nonce, process) of the last hellos."""
        self._echoes: deque[tuple[str, str]] = deque(maxlen=KEPT_HELLOS)
        """(process, another one whose nonce it has echoed)."""
        self._live: deque[str] = deque(maxlen=2)
        """Processes that have echoed a nonce of this coordinator."""

    def see(self, hello: Hello, *, fresh: bool) -> bool:
        """Take in a hello; true when it proves two live holders."""
        this = hello.instance
        if fresh and this not in self._live:
            self._live.append(this)
        other = next((process for nonce, process in self._hellos if nonce == hello.echo and process != this), None)
        self._hellos.append((hello.nonce, this))
        if other is None or (this, other) in self._echoes:
            return False
        self._echoes.append((this, other))
        return (other, this) in self._echoes and (this in self._live or other in self._live)
