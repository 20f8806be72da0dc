"""`privatile estimate --by COLUMN`: an estimate for every group, in one table."""

import sys
from typing import TYPE_CHECKING

from privatile.cli.printing import echo, echo_facts
from privatile.core.words import counted
from privatile.errors import InputError
from privatile.planning.options import Options

if TYPE_CHECKING:
    from privatile.api.groups import GroupRuns
    from privatile.planning.group_preview import GroupPreview

NOT_SAVED = (
    "Nothing was saved: --save FOLDER keeps a file for every group, for report and compare. These records have "
    "answered."
)


def estimate_groups(
    data: object, options: Options, *, dry_run: bool, yes: bool, as_json: bool, dashboard: bool, explain: bool
) -> None:
    """Ask every group and print the table; or only say what it would cost and give."""
    from privatile.api.groups import prepare_groups
    from privatile.cli.asking import confirm, say_spent
    from privatile.cli.estimate import say_look_alikes, say_missing
    from privatile.cli.progress import rounds_bar

    for given, option in ((dashboard, "--dashboard"), (explain, "--explain")):
        if given:
            raise InputError(f"{option} shows one run, and --by has one for every group. Give --only COLUMN=VALUE.")
    groups = prepare_groups(data, options)
    if groups.division.how_read:
        echo(groups.division.how_read, err=True)
    say_missing(groups.division.columns.values(), options)
    say_look_alikes(groups.division.holders())
    if groups.ungrouped:
        word = "would not be asked" if dry_run else "not asked"
        echo(f"{counted(groups.ungrouped, 'record')} without {groups.named}: {word}.", err=True)
    if dry_run:
        echo_facts(_previewed(groups), as_json)
        return
    finished = sum(run.store is not None and run.store.finished is not None for run in groups.runs)
    begun = sum(run.store is not None for run in groups.runs) - finished
    if finished or begun:
        echo(
            f"Finished: {finished:,} of {len(groups.runs):,} runs; their people are not asked again."
            + (f" Going on where they stopped: {begun:,}." if begun else ""),
            err=True,
        )
    else:
        confirm(lambda: _previewed(groups), yes=yes)
    with rounds_bar(f"asking {len(groups.runs)} group(s)", unit="groups") as progress:
        results = groups.complete(progress, keep=True)
    echo_facts(results, as_json)
    sys.stdout.flush()
    # Only now are the results safe: had printing failed, the same command would show them again.
    groups.discard()
    if options.spend_again:
        say_spent(groups.runs)
    if options.save is None:
        echo(NOT_SAVED, err=True)
    else:
        echo(
            f"One page and one figure of them: privatile report {options.save} -o groups.html --figure groups.svg",
            err=True,
        )


def _previewed(groups: "GroupRuns") -> "GroupPreview":
    """What the runs would cost and give, with what their ledger knows by now."""
    from privatile.cli.asking import account_of
    from privatile.planning.group_preview import GroupPreview, GroupWidth

    widths = tuple(
        GroupWidth(group.name, group.records, None if group.run is None else group.run.spec, group.why)
        for group in groups.groups
    )
    account = account_of(groups.runs, groups.ledger)
    return GroupPreview(groups.named, widths, account)
