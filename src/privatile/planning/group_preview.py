"""What runs of many groups would cost and give, before anyone is asked."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from privatile.core.words import counted
from privatile.estimator.spec import RunSpec
from privatile.planning.preview import Account, Preview, preview
from privatile.result.layout import fixed_columns
from privatile.result.number_words import epsilon_text

UNKNOWN = "not known"


class GroupWidth(NamedTuple):
    """One group: its run, or why nobody would be asked."""

    name: str
    records: int
    spec: RunSpec | None
    why: str


@dataclass(frozen=True)
class GroupPreview:
    """Who would pay what, and how wide each group's interval would be, in rank."""

    by: str
    groups: tuple[GroupWidth, ...]
    account: Account | None = None

    @property
    def asked(self) -> int:
        """Records that would answer."""
        return sum(records for _, records, found, _ in self._previews if found is not None)

    @cached_property
    def _previews(self) -> list[tuple[str, int, Preview | None, str]]:
        return [
            (
                group.name,
                group.records if group.spec is None else _asked(group.spec),
                None if group.spec is None else preview(group.spec),
                group.why,
            )
            for group in self.groups
        ]

    def to_dict(self) -> dict[str, Any]:
        """All facts as plain values."""
        return {
            "dry_run": True,
            "by": self.by,
            "account": None if self.account is None else self.account.to_dict(),
            "groups": [
                {
                    "name": name,
                    "records": records,
                    "why": why,
                    "preview": None if found is None else found.to_dict(),
                }
                for name, records, found, why in self._previews
            ],
        }

    def to_text(self) -> str:
        """The same for a terminal."""
        return "\n".join([f"Dry run: {self.asked:,} records would answer once each; no one was.", "", *self.lines()])

    def lines(self) -> list[str]:
        """A table: between which quantiles the interval of each group would lie. Then who pays, and the warnings."""
        cells, reasons = [], []
        for name, records, found, why in self._previews:
            if found is None:
                cells.append((name, "0", "–", "–"))
                reasons.append(f"{name} ({counted(records, 'record')}): {why}.")
                continue
            epsilon = epsilon_text(max(client.mechanism.epsilon for client in found.spec.clients))
            between = ", ".join(
                f"{max(0.0, level - width / 2):.3f} … {min(1.0, level + width / 2):.3f}" if width == width else UNKNOWN
                for level, width in zip(found.spec.levels, found.rank_widths, strict=True)
            )
            cells.append((name, f"{records:,}", epsilon, between))
        warnings = self._warnings()
        budgets = (c.mechanism.epsilon for _, _, found, _ in self._previews if found for c in found.spec.clients)
        pays = [] if self.account is None else ["", self.account.to_text(max(budgets))]
        return [
            *fixed_columns([(self.by, "asked", "ε", "interval between the quantiles"), *cells]),
            *(["", *reasons] if reasons else []),
            *self._in_units(),
            *pays,
            *warnings,
        ]

    def _in_units(self) -> list[str]:
        """For the smallest group that would be asked, how to have its width in units."""
        asked = [(records, name, found) for name, records, found, _ in self._previews if found is not None]
        _, name, found = min(asked, key=lambda one: one[0], default=(0, "", None))
        lines = [] if found is None else found.in_units()
        return ["", *(f"{name}: {line[0].lower()}{line[1:]}" for line in lines)] if lines else []

    def _warnings(self) -> list[str]:
        """Of each kind one line: the first group's, and how many others have one of that kind."""
        said: dict[str, list[tuple[str, str]]] = {}
        for name, _, found, _ in self._previews:
            for code, line in () if found is None else found.warnings():
                said.setdefault(code, []).append((name, line))
        lines = []
        for (first, line), *others in said.values():
            if others and all(text == line for _, text in others):
                lines.append(line)
            else:
                lines.append(
                    f"{first}: {line}" + (f" So it is with {counted(len(others), 'other')}." if others else "")
                )
        return lines


def _asked(spec: RunSpec) -> int:
    return sum(client.records for client in spec.clients)
