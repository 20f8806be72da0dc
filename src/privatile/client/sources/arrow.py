"""Batches of an Arrow stream as numpy arrays, through the C data interface, without pyarrow.

duckdb hands its results out as such a stream (`__arrow_c_stream__`), batch by batch, and the base install has no
other way to read a result in pieces. Only what `files` asks for is read here: doubles, 32-bit integers and texts.
https://arrow.apache.org/docs/format/CStreamInterface.html
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_void_p
from typing import Any

import numpy as np
from numpy.typing import NDArray


class _Schema(Structure):
    pass


class _Array(Structure):
    pass


class _Stream(Structure):
    pass


_Schema._fields_ = [
    ("format", c_char_p),
    ("name", c_char_p),
    ("metadata", c_char_p),
    ("flags", c_int64),
    ("n_children", c_int64),
    ("children", POINTER(POINTER(_Schema))),
    ("dictionary", POINTER(_Schema)),
    ("release", CFUNCTYPE(None, POINTER(_Schema))),
    ("private_data", c_void_p),
]
_Array._fields_ = [
    ("length", c_int64),
    ("null_count", c_int64),
    ("offset", c_int64),
    ("n_buffers", c_int64),
    ("n_children", c_int64),
    ("buffers", POINTER(c_void_p)),
    ("children", POINTER(POINTER(_Array))),
    ("dictionary", POINTER(_Array)),
    ("release", CFUNCTYPE(None, POINTER(_Array))),
    ("private_data", c_void_p),
]
_Stream._fields_ = [
    ("get_schema", CFUNCTYPE(c_int, POINTER(_Stream), POINTER(_Schema))),
    ("get_next", CFUNCTYPE(c_int, POINTER(_Stream), POINTER(_Array))),
    ("get_last_error", CFUNCTYPE(c_char_p, POINTER(_Stream))),
    ("release", CFUNCTYPE(None, POINTER(_Stream))),
    ("private_data", c_void_p),
]

_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = c_void_p
_pointer_of.argtypes = [ctypes.py_object, c_char_p]

FIXED: dict[bytes, Any] = {b"g": np.float64, b"i": np.int32, b"C": np.uint8, b"S": np.uint16, b"I": np.uint32}
OFFSETS: dict[bytes, Any] = {b"u": np.int32, b"U": np.int64}


class StreamFailed(Exception):
    """The producer broke off. Its own words may quote records, so callers pass on what they can vouch for only."""


def batches(capsule: object) -> Iterator[list[NDArray[Any] | list[bytes | None]]]:
    """The columns of each batch: arrays with NaN (doubles) or −1 (integers) where null, texts as bytes or None."""
    stream = ctypes.cast(_pointer_of(capsule, b"arrow_array_stream"), POINTER(_Stream))
    formats = _formats(stream)
    while True:
        array = _Array()
        if stream.contents.get_next(stream, ctypes.byref(array)):
            text = stream.contents.get_last_error(stream) or b""
            raise StreamFailed(text.decode("utf-8", "replace"))
        if not array.release:
            return
        try:
            yield [_column(array.children[k].contents, kind, array) for k, kind in enumerate(formats)]
        finally:
            array.release(ctypes.byref(array))


def _formats(stream: Any) -> list[bytes]:
    schema = _Schema()
    if stream.contents.get_schema(stream, ctypes.byref(schema)):
        text = stream.contents.get_last_error(stream) or b""
        raise StreamFailed(text.decode("utf-8", "replace"))
    try:
        return [bytes(schema.children[k].contents.format) for k in range(schema.n_children)]
    finally:
        schema.release(ctypes.byref(schema))


def _buffer(array: Any, number: int, kind: Any, count: int) -> NDArray[Any]:
    size = count * np.dtype(kind).itemsize
    if size == 0 or not array.buffers[number]:
        return np.empty(0, dtype=kind)
    return np.frombuffer((ctypes.c_char * size).from_address(array.buffers[number]), dtype=kind)


def _column(array: Any, kind: bytes, parent: Any) -> NDArray[Any] | list[bytes | None]:
    start, length = array.offset + parent.offset, parent.length
    if kind in FIXED:
        values = _buffer(array, 1, FIXED[kind], start + length)[start:].copy()
        missing = _nulls(array, start, length)
        if missing is not None:
            values = values if kind in b"gi" else values.astype(np.int64)
            values[missing] = np.nan if kind == b"g" else -1
        return values
    if kind in OFFSETS:
        ends = _buffer(array, 1, OFFSETS[kind], start + length + 1)[start:].tolist()
        text = _buffer(array, 2, np.uint8, ends[-1] if ends else 0).tobytes()
        texts: list[bytes | None] = [text[ends[k] : ends[k + 1]] for k in range(length)]
        missing = _nulls(array, start, length)
        for k in [] if missing is None else np.flatnonzero(missing).tolist():
            texts[k] = None
        return texts
    raise StreamFailed(f"a column came in format {kind!r}")


def _nulls(array: Any, start: int, length: int) -> NDArray[np.bool_] | None:
    """Which entries are null; None where there are none. Bit k of the first buffer is 1 where entry k is present."""
    if array.null_count == 0 or not array.buffers[0]:
        return None
    bits = _buffer(array, 0, np.uint8, (start + length + 7) // 8)
    missing: NDArray[np.bool_] = np.unpackbits(bits, bitorder="little")[start : start + length] == 0
    return missing
