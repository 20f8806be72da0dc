"""What the pages of a survey show, as plain values: computed from closed rounds, never from the open one."""

from typing import Any

from privatile.core.words import moment
from privatile.estimator.values import parse_values
from privatile.result.result import ConfidenceInterval, QuantileResult
from privatile.result.sentence import headline_parts
from privatile.server.alarms import Alarm
from privatile.server.open_rounds import OpenRound, Phase
from privatile.survey.run import Standing
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
        "step": parse_values(study.values).step,
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


def live_facts(study: SurveyStudy, state: OpenRound, found: Standing, late: list[int], opened: float) -> dict[str, Any]:
    """What the public page shows."""
    return {
        **survey_facts(study, state),
        **_result_facts(found.result),
        "answers": state.counted_before,
        "late": sum(late),
        "codes": study.codes,
        "rounds": found.rounds,
        "first_interval_after": study.first_interval_after,
        "most_answers": study.most_answers,
        "confidence": study.confidence_level,
        "opened": moment(opened),
        "ends": study.end_date or None,
        "ended": found.ended,
        "strata": [
            {"name": name, "weight": one.weight, "codes": one.codes, "late": here}
            for (name, one), here in zip(study.strata.items(), late, strict=True)
        ],
    }


def _as_shown(
    result: QuantileResult, interval: ConfidenceInterval | None, final: ConfidenceInterval | None
) -> dict[str, Any]:
    """The result in the numbers that people read: those of `privatile report`, by the declared reading."""
    kind, number = headline_parts(result)
    declared = interval is not None and result.declared_ends(interval) is not None
    return {
        "headline": kind,
        "number": number,
        "interval": None if interval is None else list(result.ends_shown(interval)),
        "declared": result.condition_shown if declared else None,
        "undeclared": list(result.rounded_ends(interval)) if interval and declared else None,
        "final": None if final is None else list(result.rounded_ends(final)),
    }


def _result_facts(result: QuantileResult | None) -> dict[str, Any]:
    """The result in the few facts that fit on a page; the record and the run's file have all of it."""
    if result is None:
        nothing: dict[str, Any] = dict.fromkeys(
            ("estimate", "interval", "condition", "final", "shown", "sentence", "drift")
        )
        return {**nothing, "caveats": [], "liars": [], "series": [], "change": None}
    # Of values declared continuous the interval for a fixed end stands first once that end is reached.
    anytime, condition = result.anytime, result.anytime_condition
    final: ConfidenceInterval | None = result.confidence_interval
    if result.valid_at_every_look:
        anytime, condition = result.confidence_interval, result.condition
        final = None if result.other is None else result.other.interval
    facts = result.facts()
    moved = [caveat.text for caveat in result.caveats if caveat.code == "moved"]
    return {
        "estimate": result.estimate if result.located else None,
        "interval": None if anytime is None else list(anytime),
        "condition": None if anytime is None else condition,
        "final": None if final is None else list(final),
        "shown": _as_shown(result, anytime, final),
        "sentence": result.sentence,
        "drift": moved[0] if moved else None,
        "caveats": [one.text for one in result.caveats if one.severity != "standing" and one.code != "moved"],
        "liars": list(facts.get("liars") or ()),
        "series": list(facts.get("series") or ()),
        "change": facts.get("change"),
    }


def organiser_facts(
    study: SurveyStudy,
    live: dict[str, Any],
    state: OpenRound,
    totals: list[StratumTotals],
    planned: int,
    alarms: list[Alarm],
    restored: int,
) -> dict[str, Any]:
    """What the organiser's page shows besides: how many codes are spent, never by whom and never an answer."""
    return {
        **live,
        "restored": restored,
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
        "alarms": [f"{alarm.title}: {alarm.text}" for alarm in alarms] + ([live["drift"]] if live["drift"] else []),
    }
