"""The release record of a run: what is published and signed, and how anybody checks it from the counts alone.

    document          the record: made from a run's file, written, read, signed
    transcript        what the run's file says was asked of every client, and answered
    countersignature  a site's own statement about a record, from its ledger
    checks            the list of checks of a record
    common_checks     what every record is checked for, a web survey's too
    silence           who was silent, and the study's patience and quorum
    verification      checking a record, by itself or against the run's file
    comparison        a record's result beside the one that its counts give

The body of a record holds study, budgets, estimate, interval, method, caveats, a digest of the transcript and public
keys; the coordinator signs it, and sites may countersign. Each count in the transcript carries its client's own
signature, so a coordinator cannot invent answers; the signature holds for the question too, so it cannot record
another question than it asked; and the ledger's link, so a client cannot answer from two ledgers.
"""

from privatile.federation.record.countersignature import CountersignRefused, countersign
from privatile.federation.record.record import canonical, read_record, release, write_record
from privatile.federation.record.verify import Checks, VerificationFailed, verify_record

__all__ = [
    "Checks",
    "CountersignRefused",
    "VerificationFailed",
    "canonical",
    "countersign",
    "read_record",
    "release",
    "verify_record",
    "write_record",
]
