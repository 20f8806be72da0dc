"""The release record of a survey: what is published, signed by the organiser, checked by `privatile verify`.

The same envelope and the same comparison as a federation's record (`federation.record`). A survey has no signatures of
its clients: people send bits without a name, so that the organiser's file alone says what came. What follows from
that stands under "not checked".
"""

from pathlib import Path
from typing import Any

import msgspec

from privatile.core.text import counted
from privatile.errors import InputError
from privatile.federation.record.record import (
    FORMAT,
    SOFTWARE,
    ended,
    recorded_facts,
    sign,
    transcript_digest,
)
from privatile.federation.record.verify import (
    Checks,
    check_end,
    check_recomputed,
    check_study_and_signature,
    part,
    run_of_record,
)
from privatile.run.coordinator import Coordinator
from privatile.run.rounds import Phase
from privatile.run.run_file import RunStore
from privatile.run.tables import program
from privatile.survey.folder import SurveyFolder
from privatile.survey.run import result_so_far, run_spec
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
        return result_so_far(Coordinator(store)) is not None


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
        if result_so_far(coordinator) is None:
            raise InputError(nothing_to_release(study))
        body = {
            "privatile_release": FORMAT,
            "software": SOFTWARE,
            "program": program(),
            "survey": study.to_dict(),
            "study_hash": study.digest,
            "run": store.run,
            "finished": store.finished is not None,
            "ended_by": store.why_ended,
            "results": [recorded_facts(result) for result in coordinator.results()],
            "answers": answers(study, store),
            "late": dict(zip(study.strata, late, strict=True)),
            "transcript": {"rounds": coordinator.done, "digest": transcript_digest(store), "until": ended(store)},
            "organiser": msgspec.to_builtins(key.public),
        }
    return {"body": body, "signatures": {"coordinator": sign(body, key), "clients": {}}}


def answers(study: SurveyStudy, store: RunStore) -> dict[str, int]:
    """Answers of closed rounds, per stratum."""
    totals = store.client_totals()
    return {name: totals[name].answered for name in study.strata}


def is_survey_record(record: dict[str, Any]) -> bool:
    """Whether a record that `read_record` has read is one of a survey."""
    return "survey" in record["body"]


def verify_survey_record(record: dict[str, Any], transcript: Path | None = None) -> Checks:
    """Check a survey's record by itself and, given the run's file, recompute it from the counts alone."""
    checks, body = Checks(), record["body"]
    try:
        study = SurveyStudy.from_dict(body["survey"])
        spec = run_spec(study)
        checks.add("the study is well formed", True)
    except InputError as error:
        checks.add("the study is well formed", False, str(error))
        return checks
    check_study_and_signature(checks, record, study, "organiser")
    came = part(body, "answers")
    whole = all(type(came.get(name)) is int for name in study.strata)
    enough = whole and all(came[name] <= one.codes for name, one in study.strata.items())
    checks.add("no stratum has more answers than codes", enough)
    check_end(checks, body, spec, "organiser")
    if body.get("finished") is not True:
        checks.flagged.append(
            "the survey goes on, and the organiser chose when to release it: of its intervals only the anytime "
            "interval is valid at such a time"
        )
    late = body.get("late")
    if isinstance(late, dict) and (number := sum(one for one in late.values() if type(one) is int)):
        checks.flagged.append(
            f"late: {counted(number, 'answer')}, after the round; late answers spend their codes and are not counted"
        )
    if transcript is None:
        checks.not_checked.append("the estimate against the counts: give the run's file with --transcript")
    else:
        _check_run(checks, body, study, spec.digest, transcript)
    checks.not_checked += [
        "that the organiser's key belongs to the people named: compare its fingerprint with them",
        f"that visitors were served the page with the hash {study.page_sha256 or '(none)'}",
        "that every code went to one person of its stratum, and that the organiser used none: nobody signs a bit",
        "how many answers came too late: the gateway alone has counted them",
    ]
    return checks


def _check_run(checks: Checks, body: dict[str, Any], study: SurveyStudy, spec_digest: str, path: Path) -> None:
    with run_of_record(checks, body, study, spec_digest, path) as store:
        recomputed = None if store is None else check_recomputed(checks, body, store)
        if store is None or recomputed is None:
            return
        told = part(body, "transcript")
        checks.add("the numbers of answers are those of the counts", answers(study, store) == body.get("answers"))
        found = (store.finished is not None, store.why_ended, recomputed.coordinator.done, ended(store))
        said = (body.get("finished"), body.get("ended_by"), told.get("rounds"), told.get("until"))
        checks.add("it ended as the record says, after as many rounds", found == said)
