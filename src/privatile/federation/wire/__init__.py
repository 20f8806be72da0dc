"""What crosses the wire and how: signed messages, keys, subjects, TLS and the connection; see `docs/wire.md`.

`connection` is not exported: it imports the broker's client library, which a reader of messages does not need.
"""

from privatile.federation.wire.keys import KeyPair, PublicKeys
from privatile.federation.wire.messages import (
    AnswerMessage,
    AskMessage,
    Hello,
    Link,
    Message,
    Notice,
    Welcome,
    read_message,
)

__all__ = [
    "AnswerMessage",
    "AskMessage",
    "Hello",
    "KeyPair",
    "Link",
    "Message",
    "Notice",
    "PublicKeys",
    "Welcome",
    "read_message",
]
