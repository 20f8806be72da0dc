"""privatile: quantiles with honest confidence intervals, from data that never leaves its owner."""

__version__ = "0.1.0"
