"""A federation without a coordinator: every organization runs the same state machine over one ordered log.

No input, no output, no clock but in `peer_log`, which keeps a peer's own file.

entries    what organizations write into the log, signed
chain      one hash for everything that was asked, answered and decided; why no two histories can both be committed
"""

__all__ = ["chain", "entries"]
