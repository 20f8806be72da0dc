"""Signed records of runs: keys, signatures, what a record of a federation or a survey holds and is checked for.

    keys              one secret per party
    signing           signatures, and a record's file
    record            what a record says of a run
    verification      what every record is checked for
    comparison        a result in a record beside the one that the counts give
    countersignature  a site's own statement about a record, from its ledger

All of it is plain data: what needs a study or a journal is passed in (`federation.operations.record`, `survey.record`).
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privatile.records.comparison import OTHER_BUILD, SAME, Differences, differences
    from privatile.records.countersignature import (
        ClientKeys,
        Countersignature,
        CountersignRefused,
        body_digest,
        named_rounds,
        read_statement,
        statement_lines,
    )
    from privatile.records.keys import KeyPair, PublicKeys, read_key, same_fingerprint, verify
    from privatile.records.record import Exchange, Exchanges, exchanges, recorded_facts, transcript_digest
    from privatile.records.signing import SOFTWARE, canonical, read_record, sign, signed_record, write_record
    from privatile.records.verification import Checks, StudyRules, VerificationFailed, check_links, check_silence

_HOMES = {
    "Checks": "verification",
    "ClientKeys": "countersignature",
    "CountersignRefused": "countersignature",
    "Countersignature": "countersignature",
    "Differences": "comparison",
    "Exchange": "record",
    "Exchanges": "record",
    "KeyPair": "keys",
    "OTHER_BUILD": "comparison",
    "PublicKeys": "keys",
    "SAME": "comparison",
    "SOFTWARE": "signing",
    "StudyRules": "verification",
    "VerificationFailed": "verification",
    "body_digest": "countersignature",
    "canonical": "signing",
    "check_links": "verification",
    "check_silence": "verification",
    "differences": "comparison",
    "exchanges": "record",
    "named_rounds": "countersignature",
    "read_key": "keys",
    "read_record": "signing",
    "read_statement": "countersignature",
    "recorded_facts": "record",
    "same_fingerprint": "keys",
    "sign": "signing",
    "signed_record": "signing",
    "statement_lines": "countersignature",
    "transcript_digest": "record",
    "verify": "keys",
    "write_record": "signing",
}

__all__ = [
    "OTHER_BUILD",
    "SAME",
    "SOFTWARE",
    "Checks",
    "ClientKeys",
    "CountersignRefused",
    "Countersignature",
    "Differences",
    "Exchange",
    "Exchanges",
    "KeyPair",
    "PublicKeys",
    "StudyRules",
    "VerificationFailed",
    "body_digest",
    "canonical",
    "check_links",
    "check_silence",
    "differences",
    "exchanges",
    "named_rounds",
    "read_key",
    "read_record",
    "read_statement",
    "recorded_facts",
    "same_fingerprint",
    "sign",
    "signed_record",
    "statement_lines",
    "transcript_digest",
    "verify",
    "write_record",
]


def __getattr__(name: str) -> Any:
    # Imported when first used: keys need the extra `federation`.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
