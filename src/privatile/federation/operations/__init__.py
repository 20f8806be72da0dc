"""Commands on a federation's run: what `privatile serve`, `join` and `federation status | stop | abort | …` do.

serve      a folder becomes a running coordinator
join       an invitation becomes a running client
hosting    what both services need around them: signals, operations page
lock       one coordinator per folder
status     how far a run is
requests   stop, abort, readmit
backup     a copy of a folder while it is in use
demo       a federation on this machine, with made-up data
units      systemd units for both services
derive     a new study from an old one, without some of its clients
"""

__all__ = ["backup", "demo", "derive", "hosting", "join", "lock", "requests", "serve", "status", "units"]
