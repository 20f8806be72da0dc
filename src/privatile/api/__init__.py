"""The library's front door: `estimate` for data of this machine, `OnlineQuantile` for a loop of your own.

Both are exported by `privatile` itself, which imports them when they are first used. They are not exported here:
the command needs only `folders` from this package for some of its options, and must not import numpy for that.
"""

__all__ = ["estimate", "folders", "local_run", "online"]
