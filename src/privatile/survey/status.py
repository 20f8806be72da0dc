"""Where a survey stands, read from outside while the gateway writes."""

import time
from dataclasses import dataclass
from typing import Any

from privatile.core.words import counted, duration
from privatile.server.alarms import Alarm
from privatile.server.coordinator import Coordinator
from privatile.server.folder import running_process
from privatile.server.open_rounds import Phase
from privatile.server.run_file import RunStore
from privatile.survey.facts import live_facts, organiser_facts
from privatile.survey.folder import SurveyFolder
from privatile.survey.run import Standing, standing
from privatile.survey.service import round_rule
from privatile.survey.store import SurveyStore

SHOWN_STRATA = 20


@dataclass(frozen=True)
class SurveyStatus:
    """A survey from outside; nothing in it tells who answered what."""

    facts: dict[str, Any]
    """As on the organiser's page."""
    process: int | None
    """The gateway's process; none where none runs."""
    since: float
    """Seconds that the open round has been in its phase."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {**self.facts, "process": self.process}

    def to_text(self) -> str:
        """A few lines for people."""
        facts, now = self.facts, self.facts["open_round"]
        running = f", process {self.process}" if self.process else ", no gateway running"
        lines = [
            f"survey       {facts['title']}",
            f"state        {facts['state']}{running}" + (f", ended by {facts['ended']}" if facts["ended"] else ""),
            f"answers      {facts['answers']:,} counted in {counted(facts['rounds'], 'closed round')}, "
            f"{facts['late']:,} late",
        ]
        if facts["state"] != "closed":
            lines.append(
                f"open round   {now['number']:,}, {now['state']} for {duration(self.since)}: {now['answers']:,} of "
                f"{now['planned']:,} planned answers"
            )
        if facts["restored"]:
            lines.append(
                f"restored     {counted(facts['restored'], 'time')} from a backup: later answers are lost, and "
                "everybody since then was warned"
            )
        lines += [f"ALARM        {text}" for text in facts["alarms"]]
        if facts["sentence"]:
            lines.append(f"{'so far' if facts['state'] != 'closed' else 'result':<12} {facts['sentence']}")
        elif facts["state"] != "closed":
            least, most = facts["first_interval_after"], facts["most_answers"]
            few = f"; this survey can have {most:,} at most" if most < least else ""
            lines.append(f"so far       no interval yet: it takes at least about {least:,} answers{few}")
        lines += [f"note         {text}" for text in facts["caveats"]]
        for one in facts["strata"][:SHOWN_STRATA]:
            lines.append(
                f"stratum      {one['name']}, weight {one['weight']:.4g}: {one['spent']:,} of {one['codes']:,} codes "
                f"spent, {one['handed']:,} with a question and no answer"
            )
        if len(facts["strata"]) > SHOWN_STRATA:
            lines.append(f"stratum      and {len(facts['strata']) - SHOWN_STRATA:,} more")
        return "\n".join(lines)


def read_standing(folder: SurveyFolder) -> Standing:
    """What the closed rounds say."""
    if not folder.run_file.exists() or RunStore.is_blank(folder.run_file):
        return Standing(0, None, None)
    with RunStore.open(folder.run_file, read_only=True) as store:
        return standing(Coordinator(store))


def read_status(folder: SurveyFolder) -> SurveyStatus:
    """Read both files of a survey."""
    study = folder.study()
    process = running_process(folder.pid_file)
    found = read_standing(folder)
    with SurveyStore.open(folder.store_file, study.digest, len(study.strata), read_only=True) as store:
        state, totals, late, opened = store.round(), store.totals(), store.late(), store.created()
        restored = store.restored()
    alarms = []
    if process is None and state.phase is not Phase.CLOSED:
        text = "no gateway takes answers; start it with `privatile survey serve`"
        alarms.append(Alarm("stopped", None, state.since, text))
    live = live_facts(study, state, found, late, opened)
    facts = organiser_facts(study, live, state, totals, round_rule(study).planned(state), alarms, restored)
    return SurveyStatus(facts, process, time.time() - state.since)
