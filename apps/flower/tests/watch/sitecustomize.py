"""Python imports a module of this name when it starts: every process with this folder on its path is kept from looking
up, or connecting to, another machine, and every attempt is written down.

$PRIVATILE_WATCH names a folder: its file `started` gets one line per process, `outside` one line per attempt.
Connecting a datagram socket sends nothing (Ray does it to learn this machine's own address) and is allowed.
"""

import os
import socket
import sys
from pathlib import Path

HERE = {None, "", "localhost", "0.0.0.0", "::", "::1", socket.gethostname()}


def note(name: str, text: str) -> None:
    if folder := os.environ.get("PRIVATILE_WATCH"):
        with Path(folder, name).open("a") as file:
            file.write(f"{Path([*sys.orig_argv, '', ''][1]).name} {text}\n")


def own_addresses() -> set[str]:
    """The addresses by which others reach this machine, found without sending."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return set()
        return {probe.getsockname()[0]}


def watch(event: str, arguments: tuple[object, ...]) -> None:
    if event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        host = arguments[0]
    elif event in ("socket.connect", "socket.sendto"):
        link, address = arguments[:2]
        if not isinstance(link, socket.socket) or link.family not in (socket.AF_INET, socket.AF_INET6):
            return
        if event == "socket.connect" and link.type & socket.SOCK_DGRAM:
            return
        host = address[0] if isinstance(address, tuple) else address
    else:
        return
    text = host.decode(errors="replace") if isinstance(host, bytes) else host
    plain = text.removeprefix("::ffff:") if isinstance(text, str) else text
    if plain in HERE or (isinstance(plain, str) and plain.startswith("127.")):
        return
    note("outside", f"{event} {plain}")
    raise OSError("the tests send nothing to another machine")


HERE |= own_addresses()
note("started", "")
sys.addaudithook(watch)
