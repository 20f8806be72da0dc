"""A federation without a coordinator: one process per organization, which answers and follows the log.

running    a peer's folder becomes a running peer; votes, recovery from a lost log, catching up
service    connect, read the log, apply, act
conduct    what a peer does where it stands: propose, answer, vote to close, sign the end
log_port   the log on the broker: publish until seen, read by a consumer
log_requests  what the servers are asked about it, again and again until they reply
outbox     when an entry that is not yet seen is published again
votes      decisions of this organization's people on their way to the log
notes      events, metrics and alarms
"""

__all__ = ["conduct", "log_port", "log_requests", "notes", "outbox", "running", "service", "votes"]
