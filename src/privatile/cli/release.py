"""`privatile release`: the signed record of a federation's run."""

import shlex
from pathlib import Path

import click

from privatile.cli.printing import echo


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("record.json"), show_default=True)
@click.option("--unfinished", is_flag=True, help="Release a run that has not finished; the record says so.")
def release(folder: Path, output: Path, unfinished: bool) -> None:
    """Write the signed record of DIR's run: study, budgets, estimate, interval, caveats, transcript digest."""
    from privatile.federation.record.document import release as make
    from privatile.federation.record.document import write_record
    from privatile.federation.run.folders import open_organizer

    record = make(open_organizer(folder), unfinished=unfinished)
    write_record(record, output)
    for result in record["body"]["results"]:
        for caveat in result["caveats"]:
            if caveat["code"] == "unfinished":
                echo(f"Before you use it: {caveat['text']}", err=True)
    echo(
        f"{output}: signed by the coordinator. Sites may add theirs, each with its own invitation (and the --site DIR "
        f"that it joined with, if any), given this file and the run's: privatile verify {shlex.quote(str(output))} "
        f"--transcript {shlex.quote(str(folder / 'run.db'))} --countersign --invitation INVITATION.json"
    )
