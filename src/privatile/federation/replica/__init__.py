"""A federation without a coordinator: every organization runs the same state machine over one ordered log.

No input, no output, no clock but in `peer_log` and `stored`, which keep and read a peer's own file. (A replica holds
its rounds in a run's file in memory, whose times say when they were applied here; no chain value depends on them.)

entries     what organizations write into the log, signed
chain       one hash for everything that was asked, answered and decided; why no two histories can both be committed
slots       what a peer has signed: one chain value per slot, for ever
decisions   votes, and what a quorum has decided
history     closed rounds and the state that follows from them
recovery    a new log after a lost one
unread      a log that is read again, or after catching up: which of the known rounds have come
standing    where a replica stands: what there is to read and to sign
following   going back, and following rounds that others have closed
rounds      what entries do in a log that has begun
replica     the state machine: entries in, rounds out; how a new log begins
happenings  what an entry has changed
stored      closed rounds out of a run's file
peer_log    a peer's own file
"""

__all__ = [
    "chain",
    "decisions",
    "entries",
    "following",
    "happenings",
    "history",
    "peer_log",
    "recovery",
    "replica",
    "rounds",
    "slots",
    "standing",
    "stored",
    "unread",
]
