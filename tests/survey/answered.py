"""A survey that people have answered for weeks, made of simulated counts: its pages have everything to show."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np

from privatile.run.rounds import OpenRound, Phase
from privatile.survey.folder import code_hash, read_codes
from privatile.survey.run import SurveyRun
from privatile.survey.store import COUNTED, FREE, LATE, Changed, Count, SurveyStore
from tests.survey.kit import Clock, Made, make_survey

FIRST = 1_735_084_800.0
"""When the first round closed: 25 December 2024, a Wednesday, so that the series passes the end of a year."""

WEEK = 7 * 86_400.0
WEEKS, ROUNDS, LENGTH = 6, 72, 100
MOVES_AFTER = 50
"""Rounds after which everybody has 700 more."""

STRATA = {"office": 6_000, "production & logistics": 3_000, "field service": 1_000}
PEOPLE = {"office": 4_200, "production & logistics": 2_300, "field service": 700}
"""How many of each stratum answer, ROUNDS · LENGTH in all; some others come too late."""

LATE_ANSWERS = {"office": 9, "production & logistics": 4, "field service": 1}


def round_times() -> list[float]:
    """When the rounds close: evenly over the weeks."""
    return [FIRST + WEEKS * WEEK * number / ROUNDS for number in range(ROUNDS)]


def answered_survey(path: Path, **changes: object) -> Made:
    """A survey with a located interval, six weeks, the table of liars and an alarm: the quantile has moved."""
    made = make_survey(path, strata=STRATA, round_answers=LENGTH, **changes)
    _run_the_rounds(made)
    _spend_the_codes(made)
    return made


def _run_the_rounds(made: Made) -> None:
    study, rng, clock = made.folder.study(), np.random.default_rng(3), Clock(FIRST - 86_400.0)
    with patch("privatile.run.run_file.time", SimpleNamespace(time=clock)):
        run = SurveyRun(made.folder.run_file, study)
        for number, clock.now in enumerate(round_times()):
            query = run.question()
            assert query is not None
            counts = []
            # As many of every stratum as it has in all, up to a person, whatever they answer.
            for place, name in enumerate(study.strata):
                people = PEOPLE[name]
                came = people * (number + 1) // ROUNDS - people * number // ROUNDS
                values = rng.normal(3400 + 300 * place + 700 * (number >= MOVES_AFTER), 900, came)
                truthful = rng.random(came) < 0.5 * (1.0 + study.mechanism.truth_rate)
                counts.append(Count(came, int((truthful == (values > query)).sum())))
            run.close_round(number + 1, counts)
        run.close()


def _spend_the_codes(made: Made) -> None:
    """Bring the survey's own file to the same moment: codes used, the next round open."""
    study = made.folder.study()
    left = {name: [COUNTED] * PEOPLE[name] + [LATE] * LATE_ANSWERS[name] for name in study.strata}
    changed = [
        Changed(code_hash(one.code), 0, FREE, left[one.stratum].pop())
        for one in read_codes(made.folder.codes_file)
        if left[one.stratum]
    ]
    with SurveyStore.open(made.folder.store_file, study.digest, len(STRATA)) as store:
        store.claim()
        with store.transaction():
            store.change(changed)
            store.add([], [LATE_ANSWERS[name] for name in study.strata])
            store.set_round(OpenRound(ROUNDS + 1, Phase.OPEN, round_times()[-1], 0, sum(PEOPLE.values())))
