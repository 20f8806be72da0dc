"""What runs of many groups would cost and give, before anyone is asked."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from privatile.estimator.spec import RunSpec
from privatile.planning.preview import Preview, preview
from privatile.result.layout import fixed_columns
from privatile.result.number_words import epsilon_text


class GroupWidth(NamedTuple):
    """One group: its run, or why nobody would be asked."""

    name: str
    records: int
    spec: RunSpec | None
    why: str


@dataclass(frozen=True)
class GroupPreview:
    """Who would pay what, and how far each group's interval would reach, in rank."""

    by: str
    groups: tuple[GroupWidth, ...]
    overall: RunSpec | None
    overall_share: float

    def _previews(self) -> list[tuple[str, int, Preview | None, str]]:
        rows: list[tuple[str, int, Preview | None, str]] = [
            (
                group.name,
                round(group.records * (1.0 - self.overall_share)),
                None if group.spec is None else preview(group.spec),
                group.why,
            )
            for group in self.groups
        ]
        if self.overall is not None:
            asked = sum(client.records for client in self.overall.clients)
            rows.insert(0, ("overall", asked, preview(self.overall), ""))
        return rows

    def to_dict(self) -> dict[str, Any]:
        """All facts as plain values."""
        return {
            "dry_run": True,
            "by": self.by,
            "groups": [
                {"name": name, "records": records, "why": why, "preview": None if found is None else found.to_dict()}
                for name, records, found, why in self._previews()
            ],
        }

    def to_text(self) -> str:
        """A table for a terminal: the interval of each group would reach from one quantile to another."""
        cells, reasons = [], []
        for name, records, found, why in self._previews():
            if found is None:
                cells.append((name, f"{records:,}", "–", "–"))
                reasons.append(f"{name}: {why}.")
                continue
            epsilon = epsilon_text(max(client.mechanism.epsilon for client in found.spec.clients))
            reach = ", ".join(
                f"{max(0.0, level - half):.3f} … {min(1.0, level + half):.3f}" if half == half else "not known"
                for level, half in zip(found.spec.levels, found.rank_half_widths, strict=True)
            )
            cells.append((name, f"{records:,}", epsilon, reach))
        asked = sum(records for _, records, found, _ in self._previews() if found is not None)
        return "\n".join(
            [
                f"Dry run: {asked:,} records would answer once each; no one was.",
                "",
                *fixed_columns([(self.by, "records", "ε", "interval reaches, in rank"), *cells]),
                *(["", *reasons] if reasons else []),
            ]
        )
