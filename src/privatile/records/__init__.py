"""Signed records of runs: keys, signatures, what a record of a federation or a survey holds and is checked for.

    keys              one secret per party
    signing           signatures, and a record's file
    record            what a record says of a run
    verification      what every record is checked for
    comparison        a result in a record beside the one that the counts give
    countersignature  a site's own statement about a record, from its ledger

All of it is plain data: what needs a study or a journal is passed in (`federation.operations.record`, `survey.record`).
"""

from privatile.records.comparison import OTHER_BUILD, SAME, differences
from privatile.records.countersignature import (
    Countersignature,
    CountersignRefused,
    body_digest,
    named_rounds,
    statement_lines,
)
from privatile.records.keys import KeyPair, read_key, verify
from privatile.records.record import Exchange, exchanges, recorded_facts, transcript_digest
from privatile.records.signing import canonical, read_record, sign, write_record
from privatile.records.verification import Checks, StudyRules, check_links, check_silence

__all__ = [
    "OTHER_BUILD",
    "SAME",
    "Checks",
    "CountersignRefused",
    "Countersignature",
    "Exchange",
    "KeyPair",
    "StudyRules",
    "body_digest",
    "canonical",
    "check_links",
    "check_silence",
    "differences",
    "exchanges",
    "named_rounds",
    "read_key",
    "read_record",
    "recorded_facts",
    "sign",
    "statement_lines",
    "transcript_digest",
    "verify",
    "write_record",
]
