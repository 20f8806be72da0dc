"""`privatile watch`: a run at a glance, in the terminal."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privatile.cli.options import json_flag
from privatile.cli.printing import echo_facts
from privatile.core.words import clock_time, counted, duration, event_line, printable
from privatile.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

SHOWN_CLIENTS = 12
SHOWN_EVENTS = 5
WIDE = 50
BARS = "▁▂▃▄▅▆▇█"
COLOURS = {"finished": "green", "running": "cyan", "stopped": "yellow", "no news": "yellow", "waiting": "yellow"}
"""Of a badge; every other one is red."""
AT_REST = {
    "stopped": "No process continues this run. The command that began it (`estimate`, `serve`) continues from here.",
    "no news": "No round for a while, and from here it cannot be known whether a process still continues the run.",
    "aborted": "The run was ended for good; what was answered stays spent.",
}


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--once", is_flag=True, help="Show the run as it is now and end.")
@click.option("--every", type=float, default=1.0, metavar="SECONDS", help="Between two reads of the file (1).")
@json_flag("With --once: the results so far")
def watch(run: Path, once: bool, every: float, as_json: bool) -> None:
    """Where a run is: estimate, interval, rounds, clients, alarms. Reads the run's file; changes nothing.

    RUN is a run's file (`estimate --save RUN.DB`) or a federation's folder. Ends with the run, or with Ctrl-C.

    \b
    privatile watch run.db
    privatile watch federation/ --once
    """
    from rich.console import Console
    from rich.live import Live

    from privatile.dashboard.live import LiveRun, find_run
    from privatile.server.run_file import RunStore
    from privatile.server.run_tables import missing_run

    if as_json and not once:
        raise InputError("--json goes with --once: one document, for the run as it is now.")
    if not 0.01 <= every <= 3600.0:
        raise InputError(f"--every takes 0.01 to 3600 seconds; got {every:g}.")
    live = LiveRun(find_run(run))
    if once:
        live.refresh()
        if live.state["waiting"]:
            if (path := find_run(run)).is_file():
                RunStore.open(path, read_only=True).close()  # says what is wrong with a file that is no run's
            raise missing_run(path)
        if as_json:
            from privatile.report.view import read_results

            echo_facts(read_results(find_run(run)), as_json)
            return
        Console(highlight=False).print(picture(live.state))
        return
    with Live(picture(live.state), console=Console(highlight=False), auto_refresh=False) as screen:
        while not live.finished:
            live.refresh()
            screen.update(picture({**live.state, "now": time.time()}), refresh=True)
            if not live.finished:
                time.sleep(every)


def picture(state: dict[str, Any]) -> "RenderableType":
    """One state as a panel. Every text from outside is shown as text: neither markup nor control codes survive."""
    from rich.console import Group
    from rich.text import Text

    if state["waiting"]:
        return Text(f"waiting for {printable(state['waits_for'])} …", style="yellow")
    colour = COLOURS.get(state["badge"]["kind"], "bold red")
    seen = f", as {printable(state['organization'])} sees it" if state["organization"] else ""
    parts: list[RenderableType] = [
        Text.assemble(
            (f" {printable(state['badge']['text'])} ", f"reverse {colour}"), f"  {printable(state['run'])}{seen}"
        )
    ]
    parts += [Text(f"! {printable(alarm['text'])}", "bold red") for alarm in state["alarms"][:SHOWN_EVENTS]]
    if state["status"] in AT_REST:
        parts.append(Text(AT_REST[state["status"]], "yellow"))
    for level in state["levels"]:
        parts.append(
            Text(printable(level["estimand"] or f"The {level['level']:g} quantile of {state['value']}"), "dim")
        )
        parts.append(_answer(state, level))
    done, planned = state["done"], state["planned"]
    rate = (
        "" if state["last_round_at"] is None else f", the last one {time_of_day(state['last_round_at'], state['now'])}"
    )
    if state["rate"]:
        rate = f", {state['rate']:.3g} per second"
        rate += f", {duration((planned - done) / state['rate'])} left" if planned else ""
    # Of an open-ended run nobody knows how many there will be.
    rounds = f"{done:,} of {counted(planned, 'round')}" if planned else counted(done, "round")
    if planned:
        filled = round(WIDE * done / planned)
        parts.append(Text.assemble(("━" * filled, colour), ("━" * (WIDE - filled), "dim")))
    parts.append(Text(f"{rounds}{rate}; answers of {counted(state['records'], 'record')}"))
    parts += _clients(state, going=state["status"] in ("running", "paused"))
    if state["status"] == "finished":
        said = [caveat for level in state["levels"] for caveat in level["caveats"]]
        for head, status, style in (("Before you use it", "worry", "yellow"), ("Also", "note", "dim")):
            texts = dict.fromkeys(caveat["text"] for caveat in said if caveat["status"] == status)
            parts += [Text(f"{head}: {printable(text)}", style) for text in texts]
    for event in state["events"][:SHOWN_EVENTS]:
        line = event_line(event["at"], event["kind"], event["client"], event["round"], event["text"], now=state["now"])
        parts.append(Text(f"! {line}", "red"))
    return Group(*parts)


def _clients(state: dict[str, Any], going: bool) -> "list[RenderableType]":
    """How many clients answered, and a table of the first ones."""
    from rich.table import Table
    from rich.text import Text

    clients, now = state["clients"], state["now"]
    words = {} if going else {"alive": "answered", "waiting": "not heard"}
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for head in ("client", "state"):
        table.add_column(head, overflow="ellipsis", max_width=40)
    for head in (state["sign_of_life"], "missed", "ε spent"):
        table.add_column(head, justify="right")
    for client in clients["listed"][:SHOWN_CLIENTS]:
        name, last = client["state"], client["last_answer"]
        missed = client["silent_rounds"]
        word = f"silent, {counted(missed, 'round')}" if name == "silent" and missed else words.get(name, name)
        last = client["heard"] or last
        ago = "never" if last is None else f"{duration(now - last)} ago" if going else time_of_day(last, now)
        spent = "0" if not client["asked"] else "∞" if client["epsilon"] is None else f"{client['epsilon']:.4g}"
        style = {"alive": "green", "waiting": "yellow"}.get(name, "bold red")
        table.add_row(Text(printable(client["name"])), Text(word, style), ago, f"{client['missed']:,}", spent)
    were = "alive" if going else "answered in the last round"
    hidden = clients["all"] - SHOWN_CLIENTS
    more = [Text(f"and {hidden:,} more", "dim")] if hidden > 0 else []
    return [Text(f"{clients['counts']['alive']} of {clients['all']} clients {were}"), table, *more]


def _answer(state: dict[str, Any], level: dict[str, Any]) -> "RenderableType":
    from rich.text import Text

    anytime, other = level["anytime"], level["other"]
    if level["estimate"] is None:
        return Text("  no interval yet: burn-in", "yellow")
    texts, interval = level["texts"], level[level["shown"]]
    name = (
        ""
        if level["always"]
        else "anytime"
        if interval is anytime
        else "fixed-time"
        if state["status"] != "finished"
        else ""
    )
    condition = f", {interval['condition']}" if interval["condition"] else ""
    if level["values_left"]:
        condition = f", if every value is {level['declared']}"
    parts: list[str | tuple[str, str]] = [
        (f"  {texts['estimate']}", "bold"),
        f"   {100 * state['confidence_level']:g}% {name + ' ' if name else ''}interval ",
        f"{texts['interval']}{condition}   ",
        (sparkline([value for value in level["path"]["estimate"] if value is not None]), "cyan"),
    ]
    if other is not None:
        parts.append((f"\n  beside it {texts['other']}, {other['condition']}", "dim"))
    elif level["values_left"]:
        parts.append((f"\n  if it is not so {level['undeclared']}", "dim"))
    elif level["contradiction"]:
        parts.append((f"\n  {level['contradiction']}", "yellow"))
    return Text.assemble(*parts)


def time_of_day(at: float, now: float) -> str:
    """A time of day; with its date where it was not today."""
    return f"at {clock_time(at, now)}"


def sparkline(values: list[float]) -> str:
    """A path in one line.

    >>> sparkline([1, 2, 3, 4, 5, 6, 7, 8])
    '▁▂▃▄▅▆▇█'
    """
    values = values[len(values) // 4 :: max(1, len(values) * 3 // 4 // 24)] if len(values) > 24 else values
    if not values:
        return ""
    low, high = min(values), max(values)
    return "".join(BARS[round((value - low) / (high - low) * 7) if high > low else 3] for value in values)
