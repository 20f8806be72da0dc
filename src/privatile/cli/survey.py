"""`privatile survey`: a survey of a sensitive number on the web, one randomized bit per person."""

import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from privatile.cli.options import ask_first, chosen, named
from privatile.cli.printing import echo
from privatile.errors import InputError, require

if TYPE_CHECKING:
    from privatile.survey.folder import SurveyFolder
    from privatile.survey.study import SurveyStudy

SHORT_ROUNDS = 5
"""Answers per round that a small survey is advised to take: fewer would publish nearly single answers."""


def _folder(_context: click.Context, _parameter: click.Parameter, path: Path) -> "SurveyFolder":
    # Imported when a command is called: --help works without the extra, and at once.
    for module in ("starlette", "cryptography", "nkeys"):
        require(module, "survey")
    from privatile.survey.folder import SurveyFolder

    return SurveyFolder(path)


FOLDER = click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path), callback=_folder)


@click.group()
def survey() -> None:
    """A survey on the web: the number never leaves the person's device, one randomized bit does.

    \b
    privatile survey init pay --title "What we earn" --value "monthly salary" --unit € --epsilon 1 \\
        --range 0 20000 --codes 2000
    privatile survey serve pay
    privatile status pay
    privatile survey close pay
    privatile survey release pay -o record.json
    """


@survey.command()
@FOLDER
@click.option("--title", required=True, help="What the survey is called.")
@click.option("--value", required=True, help='What people are asked for, in words: "monthly salary before tax".')
@click.option("--unit", default="", help="Its unit: €, drinks a week, days.")
@chosen("epsilon", required=True, multiple=False, metavar="NUMBER", help="Privacy budget of a person. No default.")
@chosen("range", required=True)
@click.option("--codes", type=click.IntRange(1), metavar="N", help="How many people get a code.")
@click.option("--stratum", "strata", multiple=True, metavar="NAME=N", help="A group and its codes; repeat for each.")
@click.option(
    "--stratum-weight",
    "weights",
    multiple=True,
    metavar="NAME=SHARE",
    help="Share of a stratum; by its codes unless given.",
)
@click.option("--q", "level", type=float, default=0.5, show_default=True, metavar="LEVEL", help="0.5 is the median.")
@chosen("scale", "value_kind", "confidence_level")
@click.option("--asked-by", default="not stated", show_default=True, help="Who asks, in words.")
@click.option("--round-answers", type=int, default=0, help="Answers per round; few at first, later more, unless given.")
@click.option("--round-seconds", type=float, default=0.0, help="A round also ends after this time.")
@click.option(
    "--grace", type=float, default=5.0, show_default=True, help="Seconds a round waits for answers under way."
)
@click.option("--end-date", default="", metavar="DATE", help="The survey ends then: 2027-01-31 or 2027-01-31T18:00Z.")
@click.option("--end-answers", type=int, default=0, metavar="N", help="It ends after so many counted answers.")
@click.option("--end-width", type=float, default=0.0, metavar="WIDTH", help="It ends when the interval is so narrow.")
@click.option("--language", "languages", multiple=True, metavar="CODE", help="Languages of the page; all unless given.")
@click.option(
    "--address", default="https://localhost:8443/", show_default=True, help="Where people will find it, for the links."
)
@click.option("--sheet/--no-sheet", default=True, help="Draw QR codes, for up to 2,000 codes.")
def init(
    folder: "SurveyFolder",
    codes: int | None,
    strata: tuple[str, ...],
    weights: tuple[str, ...],
    languages: tuple[str, ...],
    sheet: bool,
    **study: Any,
) -> None:
    """Write a new survey into FOLDER: study, codes as CSV, links for a mail merge, a sheet of QR codes.

    The organiser's token is printed once and kept nowhere.
    """
    from privatile.core.kinds import numbers_by_client
    from privatile.survey.folder import initialize, new_survey, parse_strata
    from privatile.survey.page import LANGUAGES, page_sha256
    from privatile.survey.study import SurveyStudy, survey_address

    with named("stratum_weight"):
        shares = numbers_by_client(weights)[1]
    issued = parse_strata(strata, codes)
    if strangers := sorted(set(shares) - set(issued)):
        raise InputError(f"--stratum-weight names {strangers[0]!r}, which is no stratum. Strata: {', '.join(issued)}.")
    tables = {name: {"codes": number, "weight": shares.get(name, 0.0)} for name, number in issued.items()}
    if foreign := [name for name in languages if name not in LANGUAGES]:
        raise InputError(f"--language: the page does not speak {foreign[0]!r:.20}. It speaks {', '.join(LANGUAGES)}.")
    plain = {
        "survey": new_survey(),
        "languages": list(languages or LANGUAGES),
        "page_sha256": page_sha256(),
        "strata": tables,
        **{name: value for name, value in study.items() if value is not None},
    }
    made = SurveyStudy.from_dict(plain)
    if made.ends_at <= time.time():
        raise InputError(f"the survey would end on {made.end_date}, which is past. Give a later --end-date.")
    if made.end_answers > made.codes:
        raise InputError(
            f"--end-answers must be at most the number of codes, {made.codes:,}; got {made.end_answers:,}."
        )
    token = initialize(folder, made, draw_sheet=sheet)
    echo(f"study      {folder.study_file}  (hash {made.digest[:16]})")
    echo(f"page       {made.page_sha256[:16]}  <- visitors can compare this hash")
    echo(f"codes      {folder.codes_file}  ({made.codes:,}; keep it secret, delete it once they are given away)")
    echo(f"links      {folder.links_file}  (for a mail merge)")
    if folder.sheet_file.exists():
        echo(f"sheet      {folder.sheet_file}  (QR codes: print it with a browser, cut out the cards)")
    echo(f"organiser  {survey_address(made.address)}organiser#t={token}")
    echo("           ^ your own page: keep this address for yourself; it is shown only now")
    echo(f"needs      at least about {made.first_interval_after:,} answers, often more, until there is a result")
    if made.most_answers < made.first_interval_after:
        echo(_too_few(made), err=True)
    echo(f"Next: privatile survey serve {shlex.quote(str(folder.path))}")


def _too_few(study: "SurveyStudy") -> str:
    """A survey that nearly nobody can make sense of: said before anybody spends an answer on it."""
    from privatile.estimator.open_ended import MIN_ROUND_LENGTH

    text = (
        f"warning: with at most {study.most_answers:,} answers this survey will hardly have a result. At "
        f"ε = {study.epsilon:g} a first interval takes about {study.first_interval_after:,} answers, in rounds of "
        f"{study.round_answers or MIN_ROUND_LENGTH:,}. "
        "Invite more people, or choose a larger --epsilon or a narrower --range."
    )
    if study.round_answers not in range(1, SHORT_ROUNDS + 1):
        shorter = replace(study, round_answers=SHORT_ROUNDS).first_interval_after
        text += f" With --round-answers {SHORT_ROUNDS} it takes about {shorter:,}."
    return text


@survey.command()
@FOLDER
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8443, show_default=True, help="0: any free port.")
@click.option("--certificate", type=click.Path(path_type=Path), help="Your certificate (PEM), with its chain.")
@click.option("--key", type=click.Path(path_type=Path), help="Its private key (PEM).")
@click.option("--behind-proxy", is_flag=True, help="Plain HTTP on this machine, for a proxy that ends TLS.")
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="NAME",
    help="Another name than that of the address by which visitors reach it.",
)
@click.option(
    "--restored",
    is_flag=True,
    help="The folder comes from a backup: codes may have been used since, so people are warned before they answer.",
)
def serve(folder: "SurveyFolder", restored: bool, **address: Any) -> None:
    """Take answers until Ctrl-C. Stop and start it at any time: what was acknowledged is kept.

    Without a certificate it makes one for this machine, to try things out; browsers warn of it.
    """
    from privatile.report.survey_pages import SurveyPages
    from privatile.survey.page import page_files
    from privatile.survey.serving import GatewayAddress, serve_survey

    def say(line: str) -> None:
        echo(line, err=True)

    serve_survey(folder, GatewayAddress(**address), say, files=page_files(), pages=SurveyPages(), restored=restored)


@survey.command()
@FOLDER
@click.option(
    "--wait", type=float, default=30.0, show_default=True, help="Seconds to wait for the gateway beyond the grace time."
)
@click.option("--yes", is_flag=True, help="Do not ask before a survey is closed whose stated end is not reached.")
def close(folder: "SurveyFolder", wait: float, yes: bool) -> None:
    """End the survey for good: the open round still waits its grace time, then the result is final.

    Where its stated end is not reached it asks before; where there is no terminal it needs --yes.
    """
    from privatile.survey.serving import close_survey, what_closing_ends

    if not yes and (ended := what_closing_ends(folder)) is not None:
        ask_first("Close the survey for good?", ": to close it all the same, say so with --yes.", yes=yes, shown=ended)
    echo(close_survey(folder, wait))


@survey.command()
@FOLDER
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("record.json"), show_default=True)
@click.option("--unfinished", is_flag=True, help="Release a survey that goes on; the record says so.")
def release(folder: "SurveyFolder", output: Path, unfinished: bool) -> None:
    """Write the signed record: study, page hash, estimate, interval, caveats, digest of the counts.

    It holds no code. Publish it with the run's file, run.db, which holds none either: everybody can then recompute it.
    """
    from privatile.records.signing import write_record
    from privatile.survey.record import release as make

    record = make(folder, unfinished=unfinished)
    write_record(record, output)
    echo(
        f"{output}: signed by the organiser (key {folder.key().public.fingerprint}). Anybody can check it: privatile "
        f"verify {shlex.quote(str(output))} --transcript {shlex.quote(str(folder.run_file))}"
    )
