"""A study over Flower's simulation runtime, all clients on this machine:

python apps/flower/simulate.py study.toml north=north.csv south=south.csv --value salary --store run.db

Ledgers are kept beside the store, NAME-ledger.db each: a record that has answered here has answered.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from privatile_flower.study import MakeCoins, Settings, study_client_app, study_server_app

from privatile.client.coins import OperatingSystemCoins
from privatile.federation.study.study import load_study

QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
"""Flower and Ray report home unless told not to."""


def main(
    arguments: Sequence[str] | None = None, make_coins: MakeCoins = lambda client, ledger: OperatingSystemCoins()
) -> None:
    """Run it; coins other than the operating system's are for tests."""
    parser = argparse.ArgumentParser(description="A privatile study over Flower's simulation runtime.")
    parser.add_argument("study", type=Path, help="the study file")
    parser.add_argument("sources", nargs="+", metavar="NAME=FILE", help="each client's data")
    parser.add_argument("--value", required=True, metavar="COLUMN", help="the column that is asked about")
    parser.add_argument("--store", type=Path, required=True, help="the file that keeps the run")
    options = parser.parse_args(arguments)
    run: Settings = {"study": str(options.study.resolve()), "store": str(options.store.resolve())}
    nodes = [node(run, options.value, *source.split("=", 1)) for source in options.sources]

    def settings(context: Any) -> Settings:
        return nodes[int(context.node_config["partition-id"])]

    os.environ.update(QUIET)
    from flwr.simulation import run_simulation  # type: ignore[import-not-found]

    run_simulation(
        study_server_app(lambda context: run),
        study_client_app(make_coins, settings=settings),
        num_supernodes=len(nodes),
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 1}},
    )


def node(run: Settings, value: str, name: str, source: str) -> Settings:
    """What a site would write into its node config; here the study's own budget is the limit."""
    return {
        "client": name,
        "study": run["study"],
        "source": str(Path(source).resolve()),
        "value": value,
        "ledger": str(Path(run["store"]).with_name(f"{name}-ledger.db")),
        "max-epsilon": load_study(Path(run["study"])).clients[name].epsilon,
    }


if __name__ == "__main__":
    main()
