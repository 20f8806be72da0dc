"""A study in Flower's simulation runtime, with all clients on this machine.

    python -m privatile_flower.simulate study.toml north=north.csv south=south.csv --value salary --store run.db

The ledgers are real and are kept beside the store (NAME-ledger.db): a record that answers here has answered.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from flwr.app import Context
from flwr.simulation import run_simulation

from privatile.client.randomizer import OperatingSystemCoins
from privatile.federation.study import load_study
from privatile_flower.client import MakeCoins, study_client_app
from privatile_flower.server import study_server_app
from privatile_flower.study import Settings


def main(
    arguments: Sequence[str] | None = None, make_coins: MakeCoins = lambda client, ledger: OperatingSystemCoins()
) -> None:
    """Run it; coins other than the operating system's are for tests."""
    parser = argparse.ArgumentParser(description="A privatile study in Flower's simulation runtime.")
    parser.add_argument("study", type=Path, help="the study file")
    parser.add_argument("sources", nargs="+", metavar="NAME=FILE", help="each client's data")
    parser.add_argument("--value", required=True, metavar="COLUMN", help="the column that is asked about")
    parser.add_argument("--store", type=Path, required=True, help="the file that keeps the run")
    options = parser.parse_args(arguments)
    run: Settings = {"study": str(options.study.resolve()), "store": str(options.store.resolve())}
    nodes = [node_settings(run, options.value, *source.split("=", 1)) for source in options.sources]

    def settings(context: Context) -> Settings:
        return nodes[int(context.node_config["partition-id"])]

    run_simulation(
        study_server_app(lambda context: run),
        study_client_app(make_coins, settings=settings),
        num_supernodes=len(nodes),
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 1}},
    )


def node_settings(run: Settings, value: str, name: str, source: str) -> Settings:
    """What a site would write into its node config; here the study's own epsilon is the limit."""
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
