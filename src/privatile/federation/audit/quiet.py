"""Whether a planted value is in anything that a process wrote or sent."""

import re
import struct
from collections.abc import Collection, Iterable
from pathlib import Path

from privatile.federation.audit.judgement import Finding
from privatile.federation.audit.planted import PlantedFile
from privatile.federation.audit.processes import FILE
from privatile.federation.setup.broker_configuration import BROKER_LOG


def find_quiet(
    folder: Path,
    files: Iterable[PlantedFile],
    received: Collection[bytes] = (),
    *,
    numbers: Iterable[float] | None = None,
) -> Finding:
    """Whether no planted value, and nobody's identifier, is in a file of the folder or in a message.

    `numbers` are those that a run has asked. They have as many digits as they like, so a value must show more of its
    own, and digits that a question has, too, tell nothing.
    """
    planted = list(files)
    values = sorted({value for file in planted for value in file.marks})
    traces = traces_of(values, digits=6 if numbers is None else 8)
    texts = "" if numbers is None else " ".join(map(repr, numbers))
    traces = [trace for trace in traces if not texts or trace.decode("latin-1") not in texts]
    traces += sorted({file.people.encode() for file in planted if file.people})
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    for path in paths:
        if path.name != FILE and has_trace(path.name, path.read_bytes(), traces):
            return Finding("quiet", False, f"a planted value is in {path.name}")
    if any(has_trace("", payload, traces) for payload in received):
        return Finding("quiet", False, "a planted value crossed the wire")
    messages = f" and {len(received)} messages" if numbers is None else ", the servers' streams among them"
    return Finding("quiet", True, f"no planted value in {len(paths)} files{messages}")


def traces_of(values: list[float], digits: int = 6) -> list[bytes]:
    """Planted values as a file or a message could hold them: digits, the eight bytes of a number, those in hexadecimal.

    >>> traces_of([31415.9267])[:4]
    [b'31415.9', b'31415,9', b'3.14159', b'314159267']
    >>> traces_of([31415.9267])[-2:]
    [b'40deadfb4f0d844d', b'40DEADFB4F0D844D']
    """
    traces = []
    for value in values:
        every = f"{value:.4f}".replace(".", "")
        shown = every[:digits]
        texts = [f"{shown[:5]}.{shown[5:]}", f"{shown[:5]},{shown[5:]}", f"{shown[0]}.{shown[1:]}"]
        texts += [every] if digits == 6 else []  # among many hashes some have nine digits in a row
        traces += [text.encode() for text in texts]
        for number in (struct.pack("<d", value), struct.pack(">d", value)):
            traces += [number, number.hex().encode(), number.hex().upper().encode()]
    return traces


TIMES = re.compile(rb"\d\d:\d\d:\d\d\.\d{6} ")
"""Times in the broker's log."""


def has_trace(name: str, content: bytes, traces: list[bytes]) -> bool:
    """Whether a file holds a planted value.

    Of the broker's log the times are left out: among so many microseconds some are digits of a value.
    """
    searched = TIMES.sub(b"", content) if name == BROKER_LOG else content
    return any(trace in searched for trace in traces)
