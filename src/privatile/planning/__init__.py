"""Before anyone is asked: the options of an estimate, the preview of a run, and plans without data."""

from privatile.planning.options import Options, read_options, read_weights
from privatile.planning.plan import RunPlan, plan_run
from privatile.planning.preview import Preview

__all__ = ["Options", "Preview", "RunPlan", "plan_run", "read_options", "read_weights"]
