"""A site's countersignature: its own signed statement about a record, after comparing the transcript with its ledger.

The statement names the record by the digest of its body and says what the site's ledger knows:

    compared           rounds in which question and count are those of the ledger
    not_counted        rounds that the site has answered and the transcript calls silent
    not_in_transcript  rounds that the site has answered and the transcript does not have
    lost               rounds that a restored ledger no longer holds

A site does not sign where a question or a count differs. An answer that was not counted may have come late; it may also
have been dropped after the coordinator had seen it, which would bias the result. The site cannot tell, so it says so.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from privatile.core.messages import LARGEST_LENGTH, Answer
from privatile.core.text import counted
from privatile.errors import InputError, PrivatileError
from privatile.records.keys import KeyPair, PublicKeys
from privatile.records.record import Exchange, exchanges, transcript_digest
from privatile.records.signing import canonical, is_signed, sign
from privatile.records.verification import MAX_NAMED, Checks, StudyRules, named, part
from privatile.run.run_file import RunStore

Rounds = list[Annotated[int, msgspec.Meta(ge=1, le=LARGEST_LENGTH)]]


class CountersignRefused(PrivatileError):
    """The transcript is not what this site has answered."""


class Countersignature(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a site signs; every field must be there, and no other."""

    privatile_countersignature: Literal[1]
    client: str
    record: str
    """`body_digest` of the record."""
    compared: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_LENGTH)]
    not_counted: Rounds
    not_in_transcript: Rounds
    lost: Rounds


class ClientKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of one client: the one it has now, and those before it."""

    current: PublicKeys | None
    """May countersign; None where it was revoked and no other admitted."""
    replaced: list[PublicKeys]
    """Keys that signed counts while they were current. They may have been stolen: they countersign nothing."""

    @property
    def signers(self) -> set[str]:
        """The keys that may have signed a count."""
        return {one.signer for one in (*([self.current] if self.current else []), *self.replaced)}


def named_keys(body: dict[str, Any], client: str) -> ClientKeys:
    """The keys that a record names for a client; none where it names them in another form."""
    try:
        return msgspec.convert(part(body, "clients").get(client), ClientKeys)
    except (InputError, msgspec.ValidationError):
        return ClientKeys(None, [])


def body_digest(body: dict[str, Any]) -> str:
    """SHA-256 of a record's body, by which a countersignature names it."""
    return hashlib.sha256(canonical(body)).hexdigest()


def named_rounds(rounds: Sequence[int]) -> str:
    """Rounds in words.

    >>> named_rounds([3]), named_rounds([3, 5, 8])
    ('round 3', 'rounds 3, 5, 8')
    """
    return f"round{'s' if len(rounds) > 1 else ''} {named(rounds)}"


def compare_with_ledger(
    store: RunStore, client: str, given: Mapping[int, tuple[Answer, ...]], lost: int, record: str
) -> tuple[Countersignature, list[str]]:
    """Compare every question and count of one client with what the site's own ledger has answered.

    Parameters
    ----------
    given
        By round.
    lost
        The last round whose answers a restored ledger may lack; 0 where none was restored.
    record
        The record's digest.

    Returns
    -------
    The statement, and in words what forbids to sign it.
    """
    own = {number: exchange for (number, name), exchange in exchanges(store).items() if name == client}
    found = Countersignature(1, client, record, 0, [], sorted(given.keys() - own.keys()), [])
    compared = 0
    differences: list[str] = []
    missed: list[int] = []
    for number, exchange in sorted(own.items()):
        answered = given.get(number)
        if exchange.unspent and (drawn := [one for one in missed if one in given]):
            differences.append(
                f"round {number}: the transcript asks records of {named_rounds(drawn)} again, for which this ledger "
                "has drawn coins"
            )
        missed = [*missed, number] if exchange.is_silent else []
        if answered is None:
            if exchange.is_silent:
                continue
            if number <= lost:
                found.lost.append(number)
            else:
                differences.append(f"round {number}: the transcript has a count, this ledger gave none")
        elif _questions_differ(exchange, answered, open_ended=store.spec.design == "open"):
            differences.append(f"round {number}: this ledger answered another question than the one recorded")
        elif exchange.is_silent:
            found.not_counted.append(number)
        elif exchange.ones != tuple(one.ones for one in answered):
            differences.append(f"round {number}: this ledger gave another count than the one recorded")
        else:
            compared += 1
    return msgspec.structs.replace(found, compared=compared), differences


def _questions_differ(exchange: Exchange, answered: tuple[Answer, ...], *, open_ended: bool) -> bool:
    given = tuple(one.question for one in answered)
    if open_ended and exchange.is_silent and len(given) == len(exchange.questions):
        # Nobody counted them, so the transcript does not say how many took part.
        given = tuple(one.of(asked.length) for one, asked in zip(given, exchange.questions, strict=True))
    return exchange.questions != given


def countersign(
    record: dict[str, Any],
    rules: StudyRules,
    client: str,
    key: KeyPair,
    store: RunStore,
    given: Mapping[int, tuple[Answer, ...]],
    lost: int,
) -> dict[str, Any]:
    """The record with a site's signed statement beside the first signature.

    Check record and file with the rules of its study first. The file is looked at again here, by its digest: it may be
    another one than when it was verified. `given` and `lost` as in `compare_with_ledger`.
    """
    body, signatures = record["body"], record["signatures"]
    if client not in rules.clients:
        raise InputError(f"the record's study has no client {client!r}.")
    digest = part(body, "transcript").get("digest")
    if (store.run, store.spec.digest, transcript_digest(store)) != (rules.run, rules.spec.digest, digest):
        raise CountersignRefused(f"{store.path} is not the run's file that the record names.")
    found, differences = compare_with_ledger(store, client, given, lost, body_digest(body))
    if differences:
        shown = "\n- ".join(differences[:MAX_NAMED])
        raise CountersignRefused(
            f"the transcript differs from what this site has answered, in {counted(len(differences), 'round')} "
            f"of client {client}; it is not countersigned. Ask the coordinator to explain, and keep this ledger:\n"
            f"- {shown}"
        )
    statement: dict[str, Any] = msgspec.to_builtins(found)
    entry = {"signer": key.public.signer, "statement": statement, "signature": sign(statement, key)}
    return {"body": body, "signatures": {**signatures, "clients": {**signatures["clients"], client: entry}}}


def read_statement(plain: object) -> Countersignature | None:
    """A statement that anybody may have written; None where it is not a complete one of this format.

    >>> read_statement({"client": "south", "record": "0"}) is None
    True
    """
    try:
        return msgspec.convert(plain, Countersignature)
    except msgspec.ValidationError:
        return None


def statement_lines(statement: Countersignature) -> list[str]:
    """What a statement says that a reader should know, in words."""
    words = (
        (
            statement.not_counted,
            "answer",
            "not counted: {} it gave ({}). Such answers were lost with a crash or on the way, came late, or were left "
            "out by somebody who had seen them",
        ),
        (
            statement.not_in_transcript,
            "round",
            "not in the transcript: {} it answered ({}). Such rounds were being asked when the run ended, or were left "
            "out",
        ),
        (statement.lost, "round", "no longer in its ledger, which was restored: {} ({})"),
    )
    return [
        f"client {statement.client} says: {text.format(counted(len(rounds), noun), named_rounds(rounds))}"
        for rounds, noun, text in words
        if rounds
    ]


def check_countersignatures(
    checks: Checks, record: dict[str, Any], clients: Sequence[str]
) -> dict[str, Countersignature]:
    """Only a client of the study may countersign, with the key it has now and a complete statement.

    Gives the statements of those that have, by client.
    """
    body, signatures = record["body"], record["signatures"]["clients"]
    statements: dict[str, Countersignature] = {}
    strangers = sorted(set(part(body, "clients")) - set(clients))
    checks.add("it names keys of the study's clients only", not strangers, ", ".join(strangers))
    for client, entry in sorted(signatures.items()):
        found = _countersigned(body, clients, client, entry if isinstance(entry, dict) else {})
        why = found if isinstance(found, str) else ""
        if checks.add(f"client {client} has countersigned it", not why, why) and not isinstance(found, str):
            statements[client] = found
            checks.flagged += statement_lines(found)
    missing = sorted(set(clients) - set(signatures))
    if missing:
        checks.not_checked.append(f"countersignatures of {', '.join(missing)}: they have not given any")
    return statements


def _countersigned(
    body: dict[str, Any], clients: Sequence[str], client: str, entry: dict[str, Any]
) -> Countersignature | str:
    """What a client has signed about this record, or why an entry is not its countersignature."""
    if client not in clients:
        return "it is no client of the study"
    keys, signer, plain = named_keys(body, client), entry.get("signer"), entry.get("statement")
    if keys.current is None or signer != keys.current.signer:
        replaced = signer in [old.signer for old in keys.replaced]
        return "its key was replaced and may not countersign" if replaced else "its key is not the one the record names"
    statement = read_statement(plain)
    if statement is None:
        return "the statement is not complete, or of another format"
    if not is_signed(canonical(plain), signer, entry.get("signature")):
        return "the signature is not that of its key"
    if (statement.client, statement.record) != (client, body_digest(body)):
        return "the statement is about another record"
    return statement


def left_to_people(body: dict[str, Any], clients: Sequence[str]) -> list[str]:
    """What no record of a federation shows: whose keys these are, and whether reports are randomized."""
    told = []
    for client in sorted(clients):
        keys = named_keys(body, client)
        if keys.current is not None:
            told.append(
                f"that key {keys.current.fingerprint} is that of client {client}: compare the fingerprint with them"
            )
        told += [
            f"that key {old.fingerprint} was that of client {client} before it was replaced: ask them"
            for old in keys.replaced
        ]
    return [*told, "that a client's reports are randomized as agreed: `privatile audit` measures that at the site"]
