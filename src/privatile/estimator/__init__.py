"""The next question and the next state: pure functions of a run's specification and its counts.

clients          what the coordinator knows of a client
schedule         round lengths and steps of the designs with fixed tables
plan             what the next round asks; counts in, the next state out; how far a recorded question may differ
search           the belief with which the designs that tune themselves find the quantile
straddle         the default design
pools            answers that wait for silent clients
open_ended       the straddle without a known end
tuned            the design for values declared continuous
settings, spec   what a result needs beside plan and state; a run's whole specification
"""

from privatile.estimator.clients import Client
from privatile.estimator.plan import Ask, Plan, RoundState, TablePlan, begin, plan_from_design, replay
from privatile.estimator.schedule import Design, parse_design
from privatile.estimator.settings import ReportSettings
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.estimator.tuned import AutoPlan

__all__ = [
    "Ask",
    "AutoPlan",
    "Client",
    "ClientSpec",
    "Design",
    "Plan",
    "ReportSettings",
    "RoundState",
    "RunSpec",
    "TablePlan",
    "begin",
    "parse_design",
    "plan_from_design",
    "replay",
]
