"""End a survey by command: through the gateway where one runs, by itself where none does."""

import asyncio
import shlex
import time

from privatile.errors import StoreError
from privatile.federation.run.lock import lock_folder, running_process
from privatile.server.open_rounds import Phase
from privatile.survey.folder import SurveyFolder
from privatile.survey.service import SurveyService
from privatile.survey.store import SurveyStore


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
