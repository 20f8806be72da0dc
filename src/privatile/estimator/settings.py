"""What a result needs beside the plan and the state: which interval is shown, at which confidence, of what."""

from dataclasses import KW_ONLY, dataclass

from privatile.core.report_options import ReportOptions
from privatile.estimator.clients import Survey


@dataclass(frozen=True)
class ReportSettings(ReportOptions):
    """Everything a result needs beside the plan and the state. A run's specification contains it.

    >>> ReportSettings("income", (0.25, 0.5, 0.75), simultaneous=True).joint
    3
    """

    value: str
    """What the numbers are, in words."""
    levels: tuple[float, ...]
    _: KW_ONLY
    weighting: str = "equal"
    person: bool = False
    """Whether the unit of privacy is the person."""
    simulated: bool = False
    """Whether the draws were seeded."""
    survey: Survey | None = None
    """Of weighted records: what was done about their weights."""

    @property
    def joint(self) -> int:
        """How many levels the confidence holds for at once; 1: each by itself."""
        return len(self.levels) if self.simultaneous else 1
