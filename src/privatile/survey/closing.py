"""End a survey by command: through the gateway where one runs, by itself where none does."""

import asyncio
import shlex
import time

from privatile.core.words import counted
from privatile.errors import StoreError
from privatile.federation.run.lock import lock_folder
from privatile.server.folder import running_process
from privatile.server.open_rounds import Phase, end_reached
from privatile.survey.folder import SurveyFolder
from privatile.survey.record import has_result, nothing_to_release
from privatile.survey.service import SurveyService, round_rule
from privatile.survey.store import SurveyStore


def what_closing_ends(folder: SurveyFolder) -> str | None:
    """What would end for good, in words; none where the survey is closed, or its stated end is reached."""
    study = folder.study()
    with SurveyStore.open(folder.store_file, study.digest, len(study.strata), read_only=True) as store:
        state = store.round()
    if state.phase is Phase.CLOSED or state.ending or end_reached(round_rule(study), state, time.time()):
        return None
    ends = [study.end_date] if study.end_date else []
    ends += [f"{study.end_answers:,} counted answers"] if study.end_answers else []
    ends += [f"an interval of width {study.end_width:g}"] if study.end_width else []
    stated = f"the survey's end is {' or '.join(ends)}" if ends else "the survey has no stated end"
    return f"{counted(state.counted_before + state.came, 'answer')}; {stated}; closing is for good."


def close_survey(folder: SurveyFolder, wait: float = 30.0) -> str:
    """End the survey after the open round; what to tell people.

    With a gateway running the round drains as usual, at most `wait` seconds beyond its grace time.
    """
    study = folder.study()
    with SurveyStore.open(folder.store_file, study.digest, len(study.strata), read_only=True) as store:
        if store.round().phase is Phase.CLOSED:
            return "The survey was closed already."
        folder.close_request.touch()
        if running_process(folder.pid_file) is None:
            try:
                with lock_folder(folder.pid_file, "gateway"):
                    asyncio.run(_close_alone(folder))
            except StoreError:
                # Asked for again once the files are in order: the next gateway should not close by surprise.
                folder.close_request.unlink(missing_ok=True)
                raise
        give_up = time.monotonic() + study.grace + wait
        while store.round().phase is not Phase.CLOSED:
            if time.monotonic() > give_up:
                raise StoreError(
                    f"the gateway has not closed the survey within {study.grace + wait:.0f} s; it will as soon as it "
                    "can. Look at it with `privatile survey status`."
                )
            time.sleep(0.1)
    path = shlex.quote(str(folder.path))
    if not folder.run_file.exists() or not has_result(folder):
        why = nothing_to_release(study)
        return f"The survey is closed. {why[0].upper()}{why[1:]} What came: privatile survey status {path}"
    return (
        f"The survey is closed. Its result: privatile survey status {path}. Publish it: privatile survey release {path}"
    )


async def _close_alone(folder: SurveyFolder) -> None:
    """Close without a gateway: nobody can answer meanwhile, so nobody is waited for."""
    service = SurveyService.of(folder)
    await service.start(follow=False)
    try:
        service.intake.awaited = set()
        await service.look()
    finally:
        await service.stop()
