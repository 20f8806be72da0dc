"""A site's countersignature: its own statement about a record, after comparing the transcript with its own ledger.

The statement names the record by the digest of its body and says what the site's ledger knows:

    compared           rounds in which question and count are those of the ledger
    not_counted        rounds that the site has answered and the transcript calls silent
    not_in_transcript  rounds that the site has answered and the transcript does not have
    lost               rounds that a restored ledger no longer holds

A site does not sign where a question or a count differs. An answer that was not counted may have come late; it may also
have been dropped after the coordinator had seen it, which would bias the result. The site cannot tell, so it says so.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from privatile.client.ledger.ledger import Ledger
from privatile.client.sources.source import ONLY_CLIENT
from privatile.core.messages import LARGEST_LENGTH
from privatile.core.text import counted
from privatile.errors import InputError, PrivatileError
from privatile.federation.record.record import Exchange, canonical, exchanges, sign, transcript_digest
from privatile.federation.site.responder import GivenAnswer, given_answers, lost_through
from privatile.federation.study import FederationStudy, name_in_ledger
from privatile.records.keys import KeyPair
from privatile.run.run_file import RunStore

FORMAT: Literal[1] = 1
MOST_NAMED = 10
"""Rounds named in one line; the others are counted."""


class CountersignRefused(PrivatileError):
    """The transcript is not what this site has answered."""


Rounds = list[Annotated[int, msgspec.Meta(ge=1, le=LARGEST_LENGTH)]]


class Statement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a site signs; every field must be there, and no other."""

    privatile_countersignature: Literal[1]
    client: str
    record: str
    """`body_digest` of the record."""
    compared: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_LENGTH)]
    not_counted: Rounds
    not_in_transcript: Rounds
    lost: Rounds


class Comparison(NamedTuple):
    """A transcript beside a site's ledger; lists of rounds, in order."""

    compared: list[int]
    not_counted: list[int]
    not_in_transcript: list[int]
    lost: list[int]
    differences: list[str]
    """What forbids a countersignature, in words."""


def body_digest(body: dict[str, Any]) -> str:
    """SHA-256 of a record's body, by which a countersignature names it."""
    return hashlib.sha256(canonical(body)).hexdigest()


def named_rounds(rounds: Sequence[int]) -> str:
    """Rounds in words.

    >>> named_rounds([3]), named_rounds([3, 5, 8])
    ('round 3', 'rounds 3, 5, 8')
    """
    shown = ", ".join(map(str, rounds[:MOST_NAMED]))
    more = f" and {len(rounds) - MOST_NAMED:,} more" if len(rounds) > MOST_NAMED else ""
    return f"round{'s' if len(rounds) > 1 else ''} {shown}{more}"


def compare_with_ledger(store: RunStore, client: str, ledger: Ledger, name: str = ONLY_CLIENT) -> Comparison:
    """Compare every question and count of one client with the site's own ledger, where it goes by `name`."""
    given, lost = given_answers(ledger, store.run, name), lost_through(ledger, store.run, name)
    own = {number: exchange for (number, name), exchange in exchanges(store).items() if name == client}
    found = Comparison([], [], sorted(given.keys() - own.keys()), [], [])
    missed: list[int] = []
    for number, exchange in sorted(own.items()):
        answered = given.get(number)
        if exchange.unspent and (drawn := [one for one in missed if one in given]):
            found.differences.append(
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
                found.differences.append(f"round {number}: the transcript has a count, this ledger gave none")
        elif _questions_differ(exchange, answered, open_ended=store.spec.design == "open"):
            found.differences.append(f"round {number}: this ledger answered another question than the one recorded")
        elif exchange.is_silent:
            found.not_counted.append(number)
        elif exchange.ones != tuple(one.ones for one in answered):
            found.differences.append(f"round {number}: this ledger gave another count than the one recorded")
        else:
            found.compared.append(number)
    return found


def _questions_differ(exchange: Exchange, answered: tuple[GivenAnswer, ...], *, open_ended: bool) -> bool:
    given = tuple(one.question for one in answered)
    if open_ended and exchange.is_silent and len(given) == len(exchange.questions):
        # Nobody counted them, so the transcript does not say how many took part.
        given = tuple(one.of(asked.length) for one, asked in zip(given, exchange.questions, strict=True))
    return exchange.questions != given


def countersign(record: dict[str, Any], client: str, key: KeyPair, transcript: Path, ledger: Ledger) -> dict[str, Any]:
    """The record with a site's signed statement beside the coordinator's signature.

    `transcript` is the run's file that the record names: check both with `verify_record` first.
    """
    body, signatures = record["body"], record["signatures"]
    if client not in body["study"]["clients"]:
        raise InputError(f"the record's study has no client {client!r}.")
    ledger.verify()  # what somebody has edited without the key is not what this site has answered
    with RunStore.frozen(transcript) as store:
        # By its digest: the file may be another one than when it was verified.
        named = (store.run, store.spec.digest, transcript_digest(store))
        study = FederationStudy.from_dict(body["study"])
        if named != (study.run, study.spec.digest, body["transcript"]["digest"]):
            raise CountersignRefused(f"{transcript} is not the run's file that the record names.")
        found = compare_with_ledger(store, client, ledger, name_in_ledger(study.clients, client))
    if found.differences:
        shown = "\n- ".join(found.differences[:MOST_NAMED])
        raise CountersignRefused(
            f"the transcript differs from what this site has answered, in {counted(len(found.differences), 'round')} "
            f"of client {client}; it is not countersigned. Ask the coordinator to explain, and keep this ledger:\n"
            f"- {shown}"
        )
    statement: dict[str, Any] = msgspec.to_builtins(
        Statement(
            FORMAT,
            client,
            body_digest(body),
            len(found.compared),
            found.not_counted,
            found.not_in_transcript,
            found.lost,
        )
    )
    entry = {"signer": key.public.signer, "statement": statement, "signature": sign(statement, key)}
    return {"body": body, "signatures": {**signatures, "clients": {**signatures["clients"], client: entry}}}


def read_statement(plain: object) -> Statement | None:
    """A statement that anybody may have written; None where it is not a complete one of this format.

    >>> read_statement({"client": "south", "record": "0"}) is None
    True
    """
    try:
        return msgspec.convert(plain, Statement)
    except msgspec.ValidationError:
        return None


def statement_lines(statement: Statement) -> list[str]:
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
