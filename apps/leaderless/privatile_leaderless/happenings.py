"""What an entry of the log has changed, in words for a journal and with the signed payloads behind it."""

from typing import Literal, NamedTuple

Kind = Literal[
    "unsigned",
    "refused",
    "other history",
    "astray",
    "proposed",
    "counted",
    "close vote",
    "two answers",
    "quarantined",
    "vote",
    "readmitted",
    "key",
    "restored",
    "aborted",
    "closed",
    "closed without",
    "committed",
    "ended",
    "final",
    "finished",
    "stand",
    "checkpoint",
    "relayed",
    "begun",
    "behind",
]


class Happening(NamedTuple):
    """One thing that an entry has brought about; `round` is the one it belongs to.

    unsigned       without a valid signature of the peer under whose name it lies in the log: as if it were not there
    refused        signed, but malformed, or a question that is off: not counted, and the payload is evidence
    other history  after another chain value, to another question, or ahead: not counted, and nobody is blamed
    astray         so many peers have signed another history that this one cannot be committed: read the log again from
                   its beginning, or catch up with another peer's file
    proposed       the question of the round; from now on it is answered
    counted        an answer
    close vote     one more clock says that the deadline has passed, by the payload
    two answers    different answers of one peer to one round: both payloads are evidence
    quarantined    the round waits until a quorum has decided about the peer
    vote           one more voice for a decision
    readmitted, key, aborted   a quorum has decided
    restored       a peer's ledger was put back from a backup
    closed         the round has its closing set
    closed without   a peer is not in it: enough clocks have said that the deadline has passed
    committed      a quorum has signed a chain value with this round in it
    ended          this round was the last one: the question of the next is that there is none
    final          one more signature over the value after the end
    finished       a quorum of them
    stand          a peer says in a new log where it stands; rounds after this one it may lack
    checkpoint     a peer has signed where the new log is to begin
    relayed        a closed round came from another peer
    begun          the new log begins after this round
    behind         the new log begins after this round, which is not known here: it must be relayed, or caught up with
    """

    kind: Kind
    round: int
    client: str | None = None
    text: str = ""
    payloads: tuple[bytes, ...] = ()
    signs: bool = False
    """Whether the payloads sign a chain value (`chain.signed_value`) and do not count: what shows a lie."""
