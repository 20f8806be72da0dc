"""Pictures of the pages as people see them, for the documentation and the README: `make screenshots`.

A made-up federation of five sites, one of which falls silent; the browser is the one the tests use. The file
made-from.txt says what the pictures were made from, so that a test can tell when they are out of date.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
import tempfile
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

import privatile
from privatile.core.mechanism import RandomizedResponse
from privatile.estimator.spec import ClientSpec, RunSpec
from privatile.report.dashboard.app import dashboard_page
from privatile.report.dashboard.serving import run_dashboard
from privatile.report.experiment import experiment_page
from privatile.run.coordinator import Coordinator
from privatile.run.run_file import RunStore
from privatile.simulation.experiment import parse_experiment
from privatile.simulation.runner import ExperimentStore, run_experiment

SITES = {"north": 41_000, "south": 38_000, "east": 52_000, "west": 57_000, "capital": 74_000}
SPREAD = 0.6


def finished_report(folder: Path) -> Path:
    """The report of a finished run."""
    rng = np.random.default_rng(2026)
    people = {name: median * np.exp(SPREAD * rng.standard_normal(20_000)) for name, median in SITES.items()}
    result = privatile.estimate(
        people, q=0.5, epsilon=1, range=(1_000, 1_000_000), scale="log", value="income", simulate=True, rng=5
    )
    return result.report(folder / "report.html")


def groups_report(folder: Path) -> Path:
    """The page of the same people by site, and of a site that is too small."""
    rng = np.random.default_rng(2026)
    sizes = {**dict.fromkeys(SITES, 20_000), "abroad": 150}
    people = np.empty(sum(sizes.values()), dtype=[("income", float), ("region", "U9")])
    people["region"] = np.repeat(list(sizes), list(sizes.values()))
    medians = np.array([SITES.get(region, 50_000) for region in people["region"]])
    people["income"] = medians * np.exp(SPREAD * rng.standard_normal(len(people)))
    groups = privatile.estimate(
        people, value="income", by="region", epsilon=1, range=(1_000, 1_000_000), scale="log", simulate=True, rng=5
    )
    return groups.report(folder / "groups.html")


EXPERIMENT = """
title = "Do cohorts of ten do as well as single records?"
replications = 512
seed = 1

[populations]
same = "normal"
regions = { family = "normal", location = [0, 0, 0, 0, 0, 1, 1, 1, 1, 1] }

[methods]
single = { lengths = 1 }
ten = { lengths = 10, burn_in = 0.1, step_scale = 40.0, step_offset = 20.0 }

[[grid]]
population = ["same", "regions"]
level = [0.5]
truth_rate = [0.25, 0.9]
method = ["single", "ten"]
records = [500, 2000, 8000]
"""


def experiment_report(folder: Path) -> Path:
    """The page of a small Monte Carlo experiment."""
    experiment = parse_experiment(EXPERIMENT)
    with ExperimentStore.open_for(folder / "experiment.db", experiment) as store:
        run_experiment(experiment, store)
    page = folder / "experiment.html"
    page.write_text(experiment_page(folder / "experiment.db"), encoding="utf-8")
    return page


def half_a_run(path: Path) -> None:
    """A run that is going on: the capital has been silent for some rounds."""
    coin = RandomizedResponse.from_epsilon(1.0)
    clients = tuple(ClientSpec(name, coin.threshold, 1 / len(SITES), 60_000) for name in SITES)
    spec = RunSpec("income", (0.5,), clients, "log", 1_000.0, 1_000_000.0, rounds=1000, simulated=True)
    coordinator = Coordinator(RunStore.create(path, "run-5eb1c0ffee", spec))
    rng = np.random.default_rng(5)
    laws = [NormalDist(float(np.log(median)), SPREAD) for median in SITES.values()]
    while (asked := coordinator.rounds()) is not None and coordinator.done < 760:
        coordinator.accept(
            [
                [
                    None
                    if k == 4 and coordinator.done > 730
                    else int(
                        rng.binomial(
                            question.length,
                            0.5 + coin.truth_rate * (0.5 - law.cdf(float(np.log(question.query)))),
                        )
                    )
                    for k, (law, question) in enumerate(zip(laws, each.questions, strict=True))
                ]
                for each in asked
            ]
        )


PATIENCE = 180_000
"""Milliseconds to wait for a page, also on a busy machine."""

SOURCE = Path(privatile.__file__).parent
LOOKS = {
    "look of the report": ("report/static/theme.css", "report/static/chart.js", "report/static/report.js"),
    "look of the dashboard": ("report/dashboard/static/dashboard.css", "report/dashboard/static/dashboard.js"),
}


def words(page: str) -> str:
    """What a page says and how it is built, without numbers, drawings, styles, scripts and data."""
    for element in ("style", "script", "svg"):
        page = re.sub(rf"<{element}\b.*?</{element}>", "", page, flags=re.S)
    page = re.sub(r'content="[^"]*"|run-\w+|specification \w+', "", page)
    return re.sub(r"[-+]?\d[\d.,]*", "#", page)


def made_from(report: Path) -> str:
    """A line per part of what the pictures show: its digest and its name."""
    parts = {
        "words of the report": words(report.read_text(encoding="utf-8")),
        "words of the dashboard": words(dashboard_page()),
        "this script": re.sub(r"\s+", " ", Path(__file__).read_text(encoding="utf-8")),
    }
    parts |= {
        name: "".join((SOURCE / file).read_text(encoding="utf-8") for file in files) for name, files in LOOKS.items()
    }
    return "".join(f"{hashlib.sha256(text.encode()).hexdigest()[:16]}  {name}\n" for name, text in parts.items())


def take(
    browser: Any,
    url: str,
    path: Path,
    *,
    width: int = 1100,
    height: int | None = 880,
    dark: bool = False,
    shows: str = "figure[data-ready]",
) -> None:
    """One picture; without a height, of the whole page."""
    context = browser.new_context(
        viewport={"width": width, "height": height or 900}, color_scheme="dark" if dark else "light"
    )
    page = context.new_page()
    page.goto(url, timeout=PATIENCE)
    page.locator(shows).first.wait_for(timeout=PATIENCE)
    page.screenshot(path=path, full_page=height is None)
    context.close()
    if height is None:
        in_few_colours(path)


def in_few_colours(path: Path) -> None:
    """Write a picture again with 256 colours: a whole page is less than half as large, and looks the same."""
    from PIL import Image

    with Image.open(path) as picture:
        few = picture.convert("RGB").quantize(256, kmeans=3, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


def main(target: Path) -> None:
    """All pictures."""
    from playwright.sync_api import sync_playwright

    target.mkdir(parents=True, exist_ok=True)
    chromium = shutil.which("chromium") or sys.exit("chromium is missing; `make browser` installs it")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        made = finished_report(folder)
        report = made.as_uri()
        take(browser, report, target / "report.png")
        take(browser, report, target / "report-whole.png", height=None)
        take(browser, report, target / "report-dark.png", dark=True)
        take(browser, experiment_report(folder).as_uri(), target / "experiment.png", height=1000, shows="svg.panel")
        groups = groups_report(folder).as_uri()
        take(browser, groups, target / "groups.png", height=540, shows="table.groups")
        half_a_run(folder / "run.db")
        with run_dashboard(folder / "run.db") as dashboard:
            take(browser, dashboard.url, target / "dashboard.png")
            take(browser, dashboard.url, target / "dashboard-phone.png", width=390, height=800, dark=True)
        browser.close()
        (target / "made-from.txt").write_text(made_from(made), encoding="utf-8")
    for picture in sorted(target.glob("*.png")):
        print(f"{picture}  {picture.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "_static" / "screens")
