"""Before anyone is asked: the options of an estimate, the preview of a run, and plans without data."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privatile.planning.options import Options, read_options
    from privatile.planning.plan import RunPlan, plan_run
    from privatile.planning.preview import Preview, preview

_HOMES = {
    "Options": "options",
    "Preview": "preview",
    "RunPlan": "plan",
    "plan_run": "plan",
    "preview": "preview",
    "read_options": "options",
}

__all__ = ["Options", "Preview", "RunPlan", "plan_run", "preview", "read_options"]


def __getattr__(name: str) -> Any:
    # Imported when first used: the help of a command reads the options, and must not pay for numpy.
    if name not in _HOMES:
        raise AttributeError(f"module 'privatile.planning' has no attribute {name!r}")
    return getattr(importlib.import_module(f"privatile.planning.{_HOMES[name]}"), name)
