"""The next question and the next state: pure functions of a run's specification and its counts.

clients          what the coordinator knows of a client
schedule         round lengths and steps of the designs with fixed tables
plan             what the next round asks, given the state
step             counts in, the next state out; `step` is not exported here because it would hide the module `step`
transcript       how far what a file says was asked may differ from the plan's own question
averaging        the running mean and Algorithm 2's normaliser
auto             the default design; its rules are in `question_policy`, what its search believes in `search_belief`
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
