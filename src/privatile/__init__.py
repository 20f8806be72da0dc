"""privatile: quantiles with honest confidence intervals, from data that never leaves its owner."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privatile.api.estimate import estimate
    from privatile.api.online import OnlineQuantile
    from privatile.core.mechanism import RandomizedResponse
    from privatile.core.messages import Answer, Question
    from privatile.laws.critical import critical_value
    from privatile.result.result import ConfidenceInterval, QuantileResult, Results

__version__ = "0.1.0"

_HOMES = {
    "Answer": "core.messages",
    "ConfidenceInterval": "result.result",
    "OnlineQuantile": "api.online",
    "QuantileResult": "result.result",
    "Question": "core.messages",
    "RandomizedResponse": "core.mechanism",
    "Results": "result.result",
    "critical_value": "laws.critical",
    "estimate": "api.estimate",
}

__all__ = [
    "Answer",
    "ConfidenceInterval",
    "OnlineQuantile",
    "QuantileResult",
    "Question",
    "RandomizedResponse",
    "Results",
    "__version__",
    "critical_value",
    "estimate",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    # Names are imported when first used: the command's --help must not pay for numpy.
    if name not in _HOMES:
        raise AttributeError(f"module 'privatile' has no attribute {name!r}")
    return getattr(importlib.import_module(f"privatile.{_HOMES[name]}"), name)
