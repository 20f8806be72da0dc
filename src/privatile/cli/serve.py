"""`privatile serve`: run a federation's coordinator."""

import sys
from pathlib import Path
from typing import Any

import click

from privatile.cli.dashboard_options import DashboardOptions, dashboard_options
from privatile.cli.printing import echo
from privatile.cli.service_options import operations_arguments, service_options, write_unit


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--broker", "brokers", multiple=True, metavar="URL", help="tls://host:port of your own broker.")
@click.option(
    "--replicas", type=click.IntRange(1), default=1, show_default=True, help="Copies that a broker cluster keeps."
)
@service_options
@dashboard_options
@click.option("--exit-when-paused", is_flag=True, help="Exit with code 3 instead of waiting when the run pauses.")
@click.option("--verbose", is_flag=True, help="Log every round.")
def serve(
    folder: Path,
    json_logs: bool,
    verbose: bool,
    dashboard: DashboardOptions,
    install_unit: Path | None,
    **options: Any,
) -> None:
    """Run the coordinator of DIR, with an embedded broker unless --broker. Stop and start it at any time."""
    from privatile.federation.monitoring import start_logging
    from privatile.federation.run.folders import open_organizer
    from privatile.federation.run.serve import ServeOptions, serve_run

    directory = open_organizer(folder)
    if install_unit is not None:
        from privatile.federation.run.units import systemd_unit

        arguments = ["serve", str(folder.absolute()), "--json-logs", "--replicas", str(options["replicas"])]
        arguments += [text for url in options["brokers"] for text in ("--broker", url)]
        arguments += operations_arguments(*(options[name] for name in ("ops_port", "ops_host", "ops_names")))
        unit = systemd_unit(f"coordinator of {folder.name}", arguments, [folder])
        write_unit(install_unit, directory.study().identity, unit)
        return
    start_logging(as_json=json_logs, verbose=verbose)
    with dashboard.running(directory.store_file):
        end = serve_run(directory, ServeOptions(**options), lambda line: echo(line, err=True))
        if end == "finished":
            from privatile.federation.run.status import run_results

            shown = "\n\n".join(str(result) for result in run_results(directory))
            echo(shown or "The run is over and has no interval: too few have answered.")
        else:
            more = " `privatile serve` continues it." if end == "stopped" else ""
            echo(f"The run is {end}.{more}", err=True)
        sys.stdout.flush()
        dashboard.linger(at_a_terminal=False)
