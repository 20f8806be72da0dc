"""`privatile estimate --by COLUMN`: an estimate for every group, in one table."""

import sys

import click

from privatile.cli.printing import echo_facts
from privatile.errors import InputError
from privatile.planning.options import Options

NOT_SAVED = (
    "Nothing was saved: --save FOLDER keeps a file for every group, for report and compare. These records have "
    "answered."
)


def estimate_groups(
    data: object, options: Options, *, dry_run: bool, as_json: bool, dashboard: bool, explain: bool
) -> None:
    """Ask every group and print the table; or only say what it would cost and give."""
    from privatile.api.groups import prepare_groups
    from privatile.cli.estimate import say_look_alikes, say_spent
    from privatile.cli.progress import rounds_bar
    from privatile.planning.group_preview import GroupPreview, GroupWidth

    for given, option in ((dashboard, "--dashboard"), (explain, "--explain")):
        if given:
            raise InputError(f"{option} shows one run, and --by has one for every group. Give --only COLUMN=VALUE.")
    groups = prepare_groups(data, options)
    if groups.division.how_read:
        click.echo(groups.division.how_read, err=True)
    say_look_alikes(groups.division.holders())
    if groups.division.how_read:
        click.echo(groups.division.how_read, err=True)
    if groups.ungrouped:
        word = "would not be" if dry_run else "are not"
        click.echo(f"{groups.ungrouped:,} records have no {groups.named}, so they {word} asked.", err=True)
    if dry_run:
        widths = tuple(
            GroupWidth(group.name, group.records, None if group.run is None else group.run.spec, group.why)
            for group in groups.groups
        )
        share = options.overall_share or 0.0
        echo_facts(
            GroupPreview(groups.named, widths, None if groups.overall is None else groups.overall.spec, share), as_json
        )
        return
    finished = sum(run.store is not None and run.store.finished is not None for run in groups.runs)
    begun = sum(run.store is not None for run in groups.runs) - finished
    if finished or begun:
        click.echo(
            f"{finished} of {len(groups.runs)} runs are finished: their people are not asked again."
            + (f" {begun} continue where they stopped." if begun else ""),
            err=True,
        )
    with rounds_bar(f"asking {len(groups.runs)} group(s)", unit="groups") as progress:
        results = groups.complete(progress, keep=True)
    echo_facts(results, as_json)
    sys.stdout.flush()
    # Only now are the results safe: had printing failed, the same command would show them again.
    groups.discard()
    if options.spend_again:
        say_spent(groups.runs)
    if options.save is None:
        click.echo(NOT_SAVED, err=True)
    else:
        click.echo(
            f"One page and one figure of them: privatile report {options.save} -o groups.html --figure groups.svg",
            err=True,
        )
