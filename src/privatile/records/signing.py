"""Signatures of records and statements, and a record's file.

    {"body": {...}, "signatures": {"signer": "base64", "clients": {name: entry}}}

A signature is over the canonical text of what is signed: JSON, keys sorted, no blanks.
"""

import base64
import binascii
import json
from pathlib import Path
from typing import Any

from privatile import __version__
from privatile.core.text import READS_EARLIER_FORMATS, canonical_json, short
from privatile.errors import InputError
from privatile.records.keys import KeyPair, verify
from privatile.run.files import read_json, replace_file

FORMAT = 4
"""Of records. 4: numbers and codes without wording; `signatures.signer`."""

SOFTWARE = f"privatile {__version__}"


def canonical(body: object) -> bytes:
    """The bytes that are signed."""
    return canonical_json(body).encode()


def sign(body: object, key: KeyPair) -> str:
    """A signature of a body, in base64."""
    return base64.b64encode(key.sign(canonical(body))).decode()


def is_signed(content: bytes, signer: object, signature: object) -> bool:
    """Whether a base64 signature, which may be anything, is the signer's over these bytes."""
    try:
        return verify(str(signer), content, base64.b64decode(str(signature), validate=True))
    except (binascii.Error, ValueError):
        return False


def signed_record(body: dict[str, Any], key: KeyPair) -> dict[str, Any]:
    """A record, signed by whoever has held the run."""
    return {"body": body, "signatures": {"signer": sign(body, key), "clients": {}}}


def write_record(record: dict[str, Any], path: Path) -> None:
    """Write a record, all or nothing."""
    replace_file(path, json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_record(path: Path) -> dict[str, Any]:
    """Read a record; only its form is checked here."""
    what = "a release record of this version of privatile"
    record = read_json(path, dict[str, dict[str, Any]], what)
    form = set(record) == {"body", "signatures"} and isinstance(record["signatures"].get("clients"), dict)
    found = record["body"].get("privatile_release") if form else None
    if type(found) is int and found != FORMAT:
        raise InputError(
            f"{path}: is a release record of format {short(found)}; this privatile reads format {FORMAT}. "
            f"Commit {READS_EARLIER_FORMATS} of privatile reads format 3."
        )
    if found != FORMAT:
        raise InputError(f"{path}: is not {what}.")
    return record
