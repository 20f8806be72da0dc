"""The results of one run with several levels, together."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privatile.result.document import Library, document, frame
from privatile.result.layout import levels_table
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

    def to_text(self, *, explain: bool = False) -> str:
        """All levels at a glance where there are several, then the text of each."""
        glance = ["\n".join(levels_table(self))] if len(self) > 1 else []
        return "\n\n".join([*glance, *(result.to_text(explain=explain) for result in self)])

    def to_frame(self, library: Library = "pandas") -> "DataFrame | Any":
        """A table with a row per result: a pandas frame, or what `library` ("polars", "pyarrow") has."""
        return frame([result.facts() for result in self], library)

    def report(self, path: str | Path = "report.html") -> Path:
        """Write one page about the run, or a figure of it, as `QuantileResult.report` does."""
        return self[0].report(path)

    if not TYPE_CHECKING:  # a type checker finds a wrong name by itself

        def __getattr__(self, name: str) -> Any:
            """Of what one result has and several have not: how to get it."""
            if name in QuantileResult.__dataclass_fields__ or hasattr(QuantileResult, name):
                raise AttributeError(
                    f"there are {len(self)} results, one per level: take one of them, results[0].{name}, or all of "
                    "them with to_frame()."
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __str__(self) -> str:
        return self.to_text()
