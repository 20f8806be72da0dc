"""Pages from the Jinja templates of this package: values are escaped, nothing undefined is skipped.

A page is one file. It asks no host for anything, and only scripts whose hash its policy names may run.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from statistics import median
from typing import TYPE_CHECKING, Any

from privatile import __version__
from privatile.core.words import counted
from privatile.result.number_words import epsilon_text, rank_text

if TYPE_CHECKING:
    from jinja2 import Environment

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
