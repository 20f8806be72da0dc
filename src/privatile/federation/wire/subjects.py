"""The broker's subjects and streams of one federation. `docs/wire.md` says who may use which."""

import re

NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")
"""A client's name is one token of a subject: no dots, blanks or wildcards."""


def ask_subject(identity: str) -> str:
    """Where questions and notices are published; the last one is kept by the broker."""
    return f"privatile.{identity}.ask"


def answer_subject(identity: str, client: str) -> str:
    """Where one client, and no other, publishes its answers."""
    return f"privatile.{identity}.answer.{client}"


def hello_subject(identity: str, client: str) -> str:
    """Where one client says that it is there."""
    return f"privatile.{identity}.hello.{client}"


def welcome_subject(identity: str, client: str) -> str:
    """Where the coordinator replies to one client."""
    return f"privatile.{identity}.to.{client}"


def ask_stream(identity: str) -> str:
    """The stream that keeps the last question."""
    return f"PRIVATILE_{identity}_ASK"


def answer_stream(identity: str) -> str:
    """The stream that keeps the last answers of every client."""
    return f"PRIVATILE_{identity}_ANSWER"


def inbox_prefix(party: str) -> str:
    """Replies of the broker to one party; no other may listen there."""
    return f"_INBOX_{party}"
