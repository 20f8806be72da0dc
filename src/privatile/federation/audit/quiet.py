"""Whether a planted value is in anything that a process wrote or sent."""

import re
import struct
from collections.abc import Collection
from pathlib import Path

from privatile.federation.audit.judgement import Finding
from privatile.federation.audit.planted import PlantedFile
from privatile.federation.audit.processes import FILE
from privatile.federation.setup.broker_configuration import BROKER_LOG


def find_quiet(folder: Path, files: Collection[PlantedFile], received: Collection[bytes]) -> Finding:
    """Whether a planted value, or somebody's identifier, is in a file of the folder or in a message."""
    traces = traces_of(sorted({value for file in files for value in file.marks}))
    traces += sorted({file.people.encode() for file in files if file.people})
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    for path in paths:
        if path.name != FILE and has_trace(path.name, path.read_bytes(), traces):
            return Finding("quiet", False, f"a planted value is in {path.name}")
    if any(has_trace("", payload, traces) for payload in received):
        return Finding("quiet", False, "a planted value crossed the wire")
    return Finding("quiet", True, f"no planted value in {len(paths)} files and {len(received)} messages")


def traces_of(values: list[float]) -> list[bytes]:
    """Planted values as a file or a message could hold them: digits, the eight bytes of a number, those in hexadecimal.

    >>> traces_of([31415.9267])[:4]
    [b'31415.9', b'31415,9', b'3.14159', b'314159267']
    >>> traces_of([31415.9267])[-2:]
    [b'40deadfb4f0d844d', b'40DEADFB4F0D844D']
    """
    traces = []
    for value in values:
        every = f"{value:.4f}".replace(".", "")
        shown = every[:6]
        texts = [f"{shown[:5]}.{shown[5:]}", f"{shown[:5]},{shown[5:]}", f"{shown[0]}.{shown[1:]}", every]
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
