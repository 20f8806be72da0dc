"""The one text of plain values that is hashed and signed: the same content is always the same text."""

import hashlib
import json
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any


def canonical_json(plain: object) -> str:
    """One line of JSON, keys sorted, no blanks; what is not ASCII is escaped, and NaN is refused.

    >>> canonical_json({"b": 1.0, "a": ["é"]})
    '{"a":["\\\\u00e9"],"b":1.0}'
    """
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)


def text_digest(text: str) -> str:
    """SHA-256 of a text, in hexadecimal.

    >>> text_digest("")[:8]
    'e3b0c442'
    """
    return hashlib.sha256(text.encode()).hexdigest()


class Hashed(ABC):
    """A frozen value that is named by the hash of its plain values: what everybody means by "the same study"."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Plain values, in the order of the file."""

    @cached_property
    def canonical(self) -> str:
        """The text that is hashed: JSON, keys sorted, no blanks."""
        return canonical_json(self.to_dict())

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical text, in hexadecimal."""
        return text_digest(self.canonical)
