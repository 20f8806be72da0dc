"""The frame of all pages, whose values are escaped, and the style of figures for print.

A page is one file. It asks no host for anything, and only scripts whose hash its policy names may run. Figures are safe
for color-blind readers and readable in grey; text stays text, and the same numbers give the same file.
"""

import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import resources
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from privatile import __version__
from privatile.core.text import counted
from privatile.errors import InputError, require
from privatile.result.shown import epsilon_text, rank_text

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.figure import Figure


CITATION = (
    "Leheng Cai, Qirui Hu and Shuyuan Wu. Federated Learning of Quantile Inference under Local Differential Privacy. "
    "arXiv:2509.21800."
)


@cache
def static(name: str, package: str = "privatile.report") -> str:
    """A file of a package's `static` folder."""
    return (resources.files(package) / "static" / name).read_text(encoding="utf-8")


@cache
def _environment(package: str) -> "Environment":
    """Templates of a package, which may extend and import those of `report`."""
    # Imported here: most commands make no page, and importing privatile must stay fast.
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("privatile.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {
        "separators": (",", ":"), "ensure_ascii": False, "allow_nan": False,
    }  # fmt: skip
    environment.filters |= {
        "number": format, "epsilon": epsilon_text, "rank": rank_text, "median": median, "counted": counted,
    }  # fmt: skip
    environment.globals |= {"version": __version__, "citation": CITATION}
    return environment


def render(template: str, package: str = "privatile.report", **values: Any) -> str:
    """A template of a package with these values.

    >>> "<title>a &lt; b</title>" in render("document.html.j2", title="a < b")
    True
    """
    return _environment(package).get_template(template).render(values)


def render_page(
    template: str,
    title: str,
    facts: Mapping[str, Any],
    scripts: Sequence[str],
    package: str = "privatile.report",
    **values: Any,
) -> str:
    """A whole page as one file; `facts` is its data for programs, `scripts` are names of static files."""
    code = [static(name) for name in scripts]
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in code]
    policy = "; ".join(
        [
            "default-src 'none'",
            "img-src data:",
            "style-src 'unsafe-inline'",
            "script-src " + (" ".join(f"'sha256-{value}'" for value in hashes) or "'none'"),
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    style = static("theme.css") + static("uplot/uPlot.min.css")
    return render(template, package, title=title, facts=facts, scripts=code, policy=policy, style=style, **values)


BLUE, VERMILION, GREEN, PURPLE, ORANGE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#7F7F7F"
"""Okabe and Ito's colours: told apart by every common kind of colour vision."""

Dash = Literal["-", "--", ":", "-."] | tuple[float, Sequence[float]]
LINES: tuple[tuple[str, str, Dash], ...] = (
    (BLUE, "o", "-"), (VERMILION, "s", "--"), (GREEN, "^", ":"), (PURPLE, "D", "-."), (ORANGE, "v", (0, (1, 2))),
)  # fmt: skip
"""Colour, marker and dash of the first, second, … method: any one of the three tells them apart."""

FIGURE_FORMATS = (".svg", ".pdf", ".png")


@contextmanager
def print_style() -> Iterator[None]:
    """Our settings while the block, or the function, lasts: no display needed, text stays text, no date in the file."""
    require("matplotlib", "report")
    import matplotlib

    with matplotlib.rc_context(
        {
            "font.size": 9.0,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.alpha": 0.25,
            "svg.fonttype": "none",
            "svg.hashsalt": "privatile",
            "pdf.fonttype": 42,
            "savefig.dpi": 200,
            "text.parse_math": False,
        }
    ):
        yield


def write_figure(path: str | Path, draw: "Callable[[], Figure]") -> Path:
    """Draw to a .svg, .pdf or .png file; a name that is no figure's is refused before any work."""
    if (target := Path(path)).suffix.lower() not in FIGURE_FORMATS:
        raise InputError(f"a figure must end in {', '.join(FIGURE_FORMATS)}; got {target.name!r}.")
    with print_style():
        return save_figure(draw(), target)


def write_report(path: str | Path, page: Callable[[], str], draw: "Callable[[], Figure]") -> Path:
    """Write a page for .html; a figure for .svg, .pdf and .png. Any other name is refused before any work."""
    target = Path(path)
    if target.suffix.lower() in FIGURE_FORMATS:
        return write_figure(target, draw)
    if target.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"a page must end in .html, a figure in {', '.join(FIGURE_FORMATS)}; got {target.name!r}.")
    target.write_text(page(), encoding="utf-8")
    return target


def save_figure(figure: "Figure", target: Path) -> Path:
    """Write it without a date: the same numbers give the same file."""
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(target.suffix.lower())
    try:
        figure.savefig(target, metadata=metadata)
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror}. Choose a folder you may write to.") from None
    return target
