"""The release record of a survey: what is published, signed by the organiser, checked by `privatile verify`.

The same form and the same comparison as a federation's record (`privatile.records`). A survey has no signatures of its
clients: people send bits without a name, so that the organiser's file alone says what came. What follows from that
stands under "not checked".
"""

from pathlib import Path
from typing import Any

import msgspec

from privatile.core.text import counted
from privatile.errors import InputError
from privatile.records.record import ended, run_facts, transcript_digest
from privatile.records.signing import signed_record
from privatile.records.verification import (
    Checks,
    StudyRules,
    check_end,
    check_recomputed,
    check_signature,
    check_study,
    part,
    run_of_record,
)
from privatile.run.coordinator import Coordinator
from privatile.run.rounds import Phase
from privatile.run.run_file import RunStore
from privatile.survey.folder import SurveyFolder
from privatile.survey.run import run_spec
from privatile.survey.store import SurveyStore
from privatile.survey.study import SurveyStudy


def nothing_to_release(study: SurveyStudy) -> str:
    """Of a survey to which too few have come, in words."""
    return (
        f"the survey has no interval, and so nothing to release: at ε = {study.epsilon:g} a first one takes about "
        f"{study.first_interval_after:,} answers."
    )


def has_result(folder: SurveyFolder) -> bool:
    """Whether there is something to release."""
    with RunStore.frozen(folder.run_file) as store:
        return Coordinator(store).has_interval


def release(folder: SurveyFolder, *, unfinished: bool = False) -> dict[str, Any]:
    """The signed record of a survey: study, page, result, how many answered per stratum, how many came too late."""
    study, key = folder.study(), folder.key()
    with SurveyStore.open(folder.store_file, study.digest, len(study.strata), read_only=True) as codes:
        state, late = codes.round(), codes.late()
    if not folder.run_file.exists() or (state.phase is not Phase.CLOSED and not unfinished):
        raise InputError(
            "the survey is not closed: end it with `privatile survey close`. To release it as it is, with that said in "
            "the record, use --unfinished."
        )
    with RunStore.frozen(folder.run_file) as store:
        coordinator = Coordinator(store)
        if not coordinator.has_interval:
            raise InputError(nothing_to_release(study))
        body = {
            **run_facts(study.digest, store, coordinator.results()),
            "survey": study.to_dict(),
            "ended_by": store.why_ended,
            "answers": _answers(study, coordinator),
            "late": dict(zip(study.strata, late, strict=True)),
            "transcript": {"rounds": coordinator.done, "digest": transcript_digest(store), "until": ended(store)},
            "organiser": msgspec.to_builtins(key.public),
        }
    return signed_record(body, key)


def _answers(study: SurveyStudy, coordinator: Coordinator) -> dict[str, int]:
    """Answers of closed rounds, per stratum."""
    totals = coordinator.clients
    return {name: totals[name].answered for name in study.strata}


def is_survey_record(record: dict[str, Any]) -> bool:
    """Whether a record that `read_record` has read is one of a survey."""
    return "survey" in record["body"]


def verify_survey_record(record: dict[str, Any], transcript: Path | None = None) -> Checks:
    """Check a survey's record by itself and, given the run's file, recompute it from the counts alone."""
    checks, body = Checks(), record["body"]
    try:
        study = SurveyStudy.from_dict(body["survey"])
        rules = StudyRules(study.digest, study.run, run_spec(study), "organiser")
        checks.add("the study is well formed", True)
    except InputError as error:
        checks.add("the study is well formed", False, str(error))
        return checks
    check_study(checks, body, rules)
    check_signature(checks, record, rules)
    told = part(body, "answers")
    whole = all(type(told.get(name)) is int for name in study.strata)
    enough = whole and all(told[name] <= one.codes for name, one in study.strata.items())
    checks.add("no stratum has more answers than codes", enough)
    check_end(checks, body, rules)
    if body.get("finished") is not True:
        checks.flagged.append(
            "the survey goes on, and the organiser chose when to release it: of its intervals only the anytime "
            "interval is valid at such a time"
        )
    if number := sum(one for one in part(body, "late").values() if type(one) is int):
        checks.flagged.append(
            f"late: {counted(number, 'answer')}, after the round; late answers spend their codes and are not counted"
        )
    with run_of_record(checks, body, rules, transcript) as store:
        recomputed = None if store is None else check_recomputed(checks, body, store)
        if store is not None and recomputed is not None:
            checks.add(
                "the numbers of answers are those of the counts",
                _answers(study, recomputed.coordinator) == body.get("answers"),
            )
            end = part(body, "transcript")
            found = (store.finished is not None, store.why_ended, recomputed.coordinator.done, ended(store))
            said = (body.get("finished"), body.get("ended_by"), end.get("rounds"), end.get("until"))
            checks.add("it ended as the record says, after as many rounds", found == said)
    checks.not_checked += [
        "that the organiser's key belongs to the people named: compare its fingerprint with them",
        f"that visitors were served the page with the hash {study.page_sha256 or '(none)'}",
        "that every code went to one person of its stratum, and that the organiser used none: nobody signs a bit",
        "how many answers came too late: the gateway alone has counted them",
    ]
    return checks
