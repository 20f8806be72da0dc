"""How far what a run file says was asked may differ from what the design itself would ask.

What was asked is data, like the counts: question, lengths, step and stage are read from the file and the run continues
from them. The design's own next round is only compared with it, because two machines do not compute it to the last bit:
numpy's functions, BLAS and the C library round differently between processors and versions.

Continuous parts (question, step) may differ by `slack`, in standard errors of the run at that round. Discrete parts
(lengths, stage, averaged) must be equal. A decision whose deciding quantity lies within `slack` of its boundary may
fall either way: `Plan.with_boundaries_moved` gives the same plan with every boundary moved by that share.

What a coordinator that writes a false file gains from this: every question may be off by `slack` of the standard error
of its round. In the averaged rounds, where that is the error of the result, the path as recorded may leave the path as
asked by `TOLERANCE` standard errors over the whole run; the search counts in its own, larger errors. All of this used,
and always the same way, moves an estimate by less than 1e-4 standard errors (`tests/server/test_transcript.py`). Where
a decision lies within `slack` of its boundary it may be chosen. Nothing else is free but the last bits of the question
itself (`QUESTION_BITS`): a question that is 0.01 standard errors off is refused in every round.
"""

import math

from privatile.core.scale import units_inside
from privatile.estimator.plan import Ask, Plan, RoundState

TOLERANCE = 1e-5
"""Standard errors by which all questions of a run together may drift from the design's own: 5e-8 in each of 200 rounds.
Measured with `tests/server/other_machines.py` (AVX-512, AVX2 and SSE kernels of numpy, three kernels of BLAS, the C
library with and without FMA, numpy 2.0 and 2.4) machines differ by at most 2e-11 in one question of 1,000 runs."""


QUESTION_BITS = 256
"""Last bits of a question that are free besides, 6e-14 of it. Where F jumps, the search closes in on the jump until its
error is a few million of them, and a share of that is less than one: of 1,000 runs some differed by 34 between
machines."""


MANY_ROUNDS = 100
"""What counts as all rounds of a run whose end is not known. Its questions do not drift: each is computed from what was
asked and answered, never from the design's own questions before it."""


def slack(plan: Plan) -> float:
    """How far one round may be off, in standard errors and as a share of a boundary: `TOLERANCE` over all rounds."""
    return TOLERANCE / (MANY_ROUNDS if plan.open_ended else plan.rounds)


def as_sent(plan: Plan, ask: Ask | None) -> Ask | None:
    """A round with its question in units of the data, as it is sent: inside the range, whatever the rounding."""
    return None if ask is None else ask._replace(sent=units_inside(plan.scale, ask.query))


def difference(plan: Plan, state: RoundState, own: Ask, asked: Ask) -> str:
    """In words, what a recorded round asks that this plan would not; empty where they are the same up to rounding."""
    if own == asked:
        return ""
    for name, planned, found in (
        ("stage", own.stage or "none", asked.stage or "none"),
        # How many came to an open-ended round is data, like the counts.
        ("lengths", asked.lengths if plan.open_ended else own.lengths, asked.lengths),
        ("averaging", own.averaged, asked.averaged),
    ):
        if planned != found:
            return f"its {name} would be {_words(planned)}, not {_words(found)}"
    share, error = slack(plan), plan.standard_error(state, own)
    scale, off = plan.scale, abs(asked.query - own.query)
    # Last bits of the question, never of the range: a design computes it either by plain arithmetic, which is the same
    # everywhere, or as a mean over the belief, whose terms are as large as the question and the standard error.
    # Written so that NaN is refused.
    if not off <= share * error + QUESTION_BITS * math.ulp(own.query) + scale.end_rounding():
        return f"its question is {off / error if error else math.inf:.2g} standard errors from the design's own"
    if not abs(asked.step - own.step) <= share * own.step:
        return f"its step would be {own.step:.6g}, not {asked.step:.6g}"
    units = units_inside(scale, asked.query)
    if not abs(asked.sent - units) <= share * error * scale.slope(asked.query) + scale.rounding(asked.query):
        return f"its question in units would be {units:.9g}, not {asked.sent:.9g}"
    return ""


def _words(part: object) -> str:
    return ", ".join(map(str, part)) if isinstance(part, tuple) else str(part)
