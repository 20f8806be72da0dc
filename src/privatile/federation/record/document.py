"""The release record as a document: its form, its bytes, its signatures."""

from __future__ import annotations

import base64
import binascii
import json
from pathlib import Path
from typing import Any

from privatile import __version__
from privatile.errors import InputError
from privatile.federation.setup.files import read_json, replace_file
from privatile.federation.wire.keys import KeyPair, verify

FORMAT = 1
SOFTWARE = f"privatile {__version__}"


def canonical(body: object) -> bytes:
    """The bytes that are signed: JSON, keys sorted, no blanks."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False).encode()


def sign(body: object, key: KeyPair) -> str:
    """A signature of a body, in base64."""
    return base64.b64encode(key.sign(canonical(body))).decode()


def is_signed(content: bytes, signer: object, signature: object) -> bool:
    """Whether a base64 signature, which may be anything, is the signer's over these bytes."""
    try:
        return verify(str(signer), content, base64.b64decode(str(signature), validate=True))
    except (binascii.Error, ValueError):
        return False


def write_record(record: dict[str, Any], path: Path) -> None:
    """Write a record, all or nothing."""
    replace_file(path, json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_record(path: Path) -> dict[str, Any]:
    """Read a record; only its form is checked here."""
    what = "a release record of this version of privatile"
    record = read_json(path, dict[str, dict[str, Any]], what)
    form = set(record) == {"body", "signatures"} and isinstance(record["signatures"].get("clients"), dict)
    if not form or record["body"].get("privatile_release") != FORMAT:
        raise InputError(f"{path}: is not {what}.")
    return record


def countersign(record: dict[str, Any], client: str, key: KeyPair) -> dict[str, Any]:
    """The record with a site's signature of the body beside the coordinator's."""
    body, signatures = record["body"], record["signatures"]
    if client not in body["study"]["clients"]:
        raise InputError(f"the record's study has no client {client!r}.")
    signed = {**signatures["clients"], client: {"signer": key.public.signer, "signature": sign(body, key)}}
    return {"body": body, "signatures": {**signatures, "clients": signed}}
