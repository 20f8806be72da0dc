"""What the pages of a survey show, as plain values: computed from closed rounds, never from the open one."""

from typing import Any

from privatile.core.words import moment
from privatile.result.result import QuantileResult
from privatile.server.alarms import Alarm
from privatile.survey.rounds import OpenRound, Phase
from privatile.survey.store import StratumTotals
from privatile.survey.study import SurveyStudy


def public_state(state: OpenRound) -> str:
    """`open`, `draining` or `closed`, as visitors are told: between two rounds they wait."""
    return "draining" if state.phase is Phase.CLOSING else state.phase.value


def survey_facts(study: SurveyStudy, state: OpenRound) -> dict[str, Any]:
    """What a device needs before it asks for the question."""
    return {
        "survey": study.survey,
        "study_sha256": study.digest,
        "title": study.title,
        "value": study.value,
        "unit": study.unit,
        "range": list(study.range),
        "scale": study.scale,
        "level": study.level,
        "threshold": str(study.mechanism.threshold),
        "lies_per_100": study.lies_per_100,
        "epsilon": study.epsilon,
        "asked_by": study.asked_by,
        "languages": list(study.languages),
        "page_sha256": study.page_sha256,
        "state": public_state(state),
    }


def live_facts(
    study: SurveyStudy, state: OpenRound, rounds: int, result: QuantileResult | None, late: list[int], opened: float
) -> dict[str, Any]:
    """What the public page shows."""
    shown: dict[str, Any] = dict.fromkeys(("estimate", "interval", "final", "sentence"))
    if result is not None:
        anytime = result.confidence_interval if result.valid_at_every_look else result.anytime
        shown = {
            "estimate": result.estimate if result.located else None,
            "interval": None if anytime is None else list(anytime),
            "final": None if result.other is None else [result.other.interval.low, result.other.interval.high],
            "sentence": result.sentence,
        }
    return {
        **survey_facts(study, state),
        **shown,
        "answers": state.counted_before,
        "late": sum(late),
        "codes": study.codes,
        "rounds": rounds,
        "confidence": study.confidence_level,
        "caveats": [] if result is None else [caveat.text for caveat in result.caveats],
        "opened": moment(opened),
        "ends": study.end_date or None,
        "ended": state.ending or None if state.phase is Phase.CLOSED else None,
        "strata": [
            {"name": name, "weight": one.weight, "codes": one.codes, "late": here}
            for (name, one), here in zip(study.strata.items(), late, strict=True)
        ],
    }


def organiser_facts(
    study: SurveyStudy,
    live: dict[str, Any],
    state: OpenRound,
    totals: list[StratumTotals],
    planned: int,
    alarms: list[Alarm],
) -> dict[str, Any]:
    """What the organiser's page shows besides: how many codes are spent, never by whom and never an answer."""
    return {
        **live,
        "strata": [
            {
                "name": name,
                "weight": one.weight,
                "codes": one.codes,
                "spent": here.counted + here.late,
                "counted": here.counted,
                "late": here.late,
                "handed": here.handed,
            }
            for (name, one), here in zip(study.strata.items(), totals, strict=True)
        ],
        "open_round": {
            "number": state.number,
            "state": state.phase.value,
            "since": moment(state.since),
            "answers": state.came,
            "planned": planned,
        },
        "alarms": [f"{alarm.title}: {alarm.text}" for alarm in alarms],
    }
