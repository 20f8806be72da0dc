"""The run behind a survey: its file `run.db` holds questions and counts of closed rounds, nothing private."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from privatile.core.text import STRATA, moment
from privatile.errors import StoreError
from privatile.estimator.clients import UNKNOWN_SIZE
from privatile.estimator.open_ended import End
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.run.coordinator import Coordinator
from privatile.run.locks import begin_or_continue
from privatile.survey.store import Count
from privatile.survey.study import SurveyStudy


def run_spec(study: SurveyStudy) -> RunSpec:
    """The specification of a survey's run: open-ended, one client per stratum, weights as fixed beforehand."""
    clients = tuple(
        ClientSpec(name, study.mechanism.threshold, stratum.weight, UNKNOWN_SIZE)
        for name, stratum in study.strata.items()
    )
    end = None
    if study.end_date or study.end_answers:
        end = End(moment(study.ends_at) if study.end_date else None, study.end_answers or None)
    return RunSpec(
        value=f"{study.value} ({study.unit})" if study.unit else study.value,
        levels=(study.level,),
        clients=clients,
        scale=study.scale,
        low=study.range[0],
        high=study.range[1],
        design="open",
        confidence_level=study.confidence_level,
        weighting=STRATA,
        value_kind=study.value_kind,
        missing="fail",  # a person without a number sends nothing
        until_width=study.end_width or None,
        end=end,
    )


class SurveyRun:
    """The coordinator of a survey's run; used by one thread."""

    def __init__(self, path: Path, study: SurveyStudy) -> None:
        """Begin a survey's run, or continue it."""
        self._begin = partial(begin_or_continue, path, study.run, run_spec(study))
        self.coordinator = Coordinator(self._begin())

    def question(self) -> float | None:
        """What the open round asks, in units; none once the run is over."""
        rounds = self.coordinator.rounds() if self.coordinator.store.finished is None else None
        return None if rounds is None else rounds[0].questions[0].query

    def close_round(self, number: int, counts: Sequence[Count]) -> None:
        """Give the counts of round `number` to the run, unless it has them: then it was killed right after that."""
        done = self.coordinator.done
        if done == number:
            return
        if done != number - 1:
            raise two_moments(self.coordinator.store.path, done, number)
        ones = [one.ones if one.came else None for one in counts]
        try:
            self.coordinator.accept([ones], lengths=[[one.came for one in counts]])
        except StoreError:
            # Not written: the coordinator has gone on in memory. It is read again, as the file has it.
            self.close()
            self.coordinator = Coordinator(self._begin())
            raise

    def finish(self, by_date: bool) -> None:
        """End the run, unless it has ended; where its number of answers or its width ended it, that is written."""
        if self.coordinator.store.finished is None:
            over = self.coordinator.rounds() is None
            self.coordinator.finish(None if over else "date" if by_date else "command")

    def close(self) -> None:
        """Close the file."""
        self.coordinator.store.close()


def two_moments(path: str | Path, rounds: int, number: int) -> StoreError:
    """Where the run's file and the survey's own are not of one moment."""
    return StoreError(
        f"{path} has {rounds:,} rounds, and the survey's own file is at round {number:,}: one of the two files is an "
        "older copy. Restore both from the same backup."
    )
