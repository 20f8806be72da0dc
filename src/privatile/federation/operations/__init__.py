"""Commands on a federation's run: what `privatile serve`, `join`, `release` and `federation check | stop | …` do.

serve      a folder becomes a running coordinator
join       an invitation becomes a running client
status     how far a run is, and what is wrong with its folder
commands   stop, abort, end, readmit; a copy of a folder while it is in use
record     the signed record of a run: made, checked and countersigned
demo       a federation on this machine, with made-up data
"""

__all__ = ["commands", "demo", "join", "record", "serve", "status"]
