"""Run a privatile study over Flower, for those who already use it.

`client.py` is the ClientApp of a site, `server.py` the ServerApp of the coordinator, `study.py` what both read from
Flower's configuration, `simulate.py` both in Flower's simulation. Coordinator, responder and ledger are privatile's.

Flower and Ray send usage statistics and look for updates unless their environment says otherwise. They read it when
they are imported, so it is set here, before any module of this package imports them. A Flower command (flwr,
flower-superlink, flower-supernode) starts before this package is loaded: set the variables in its environment too.
"""

import os

for _variable, _value in {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}.items():
    os.environ.setdefault(_variable, _value)
