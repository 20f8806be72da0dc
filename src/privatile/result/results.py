"""The results of one run with several levels, together."""

import json
from typing import TYPE_CHECKING, Any

from privatile.result.document import Library, document, frame
from privatile.result.result import QuantileResult

if TYPE_CHECKING:
    from pandas import DataFrame


class Results(tuple[QuantileResult, ...]):
    """A tuple of results that is printed, kept and tabulated as one.

    >>> Results().reliable
    True
    """

    __slots__ = ()

    @property
    def reliable(self) -> bool:
        """Whether all of them are."""
        return all(result.reliable for result in self)

    def to_dict(self) -> dict[str, Any]:
        """The document that `--json` prints, as plain values: `docs/result.schema.json`."""
        return document([result.facts() for result in self])

    def to_json(self) -> str:
        """The same as text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    def to_text(self) -> str:
        """All texts, one after the other."""
        return "\n\n".join(result.to_text() for result in self)

    def to_frame(self, library: Library = "pandas") -> "DataFrame | Any":
        """A table with a row per result: a pandas frame, or what `library` ("polars", "pyarrow") has."""
        return frame([result.facts() for result in self], library)

    def __str__(self) -> str:
        return self.to_text()
