"""The library's front door: `estimate` for data of this machine, `OnlineQuantile` for a loop of your own.

Both are exported by `privatile` itself, which imports them when they are first used: they need numpy.
"""

__all__ = ["estimate", "groups", "local_run", "online"]
