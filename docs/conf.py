"""The documentation site: Sphinx, MyST and Furo; formulas become MathML, so no page asks another host for anything."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
sys.path.insert(0, str(HERE.parent / "src"))

project = "privatile"
author = "The privatile authors"
release = re.search(r'__version__ = "([^"]+)"', (HERE.parent / "src/privatile/__init__.py").read_text())[1]  # type: ignore[index]
version = release

extensions = ["myst_parser", "sphinx.ext.autodoc", "mathml"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "attrs_inline"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_ext"]
root_doc = "index"

html_theme = "furo"
html_title = "privatile"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0067a3", "color-brand-content": "#0067a3"},
    "dark_css_variables": {"color-brand-primary": "#63b9f2", "color-brand-content": "#63b9f2"},
}

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
# Links out of the documentation's own tree (the README, the examples) are for readers of the source.
myst_url_schemes = {"http": None, "https": None, "mailto": None}
suppress_warnings = ["myst.xref_missing"]


def _plain_bars(app: object, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Docstrings are plain text with formulas: |x| is an absolute value there, not a substitution."""
    lines[:] = [line.replace("|", r"\|") for line in lines]


def _known_pages(app: object, name: str, source: list[str]) -> None:
    """The contents list every page there may be; those of a part that is not here yet are left out."""
    if name == root_doc:
        source[0] = "\n".join(
            line
            for line in source[0].split("\n")
            if not re.fullmatch(r"[a-z]+(/[a-z]+)?", line) or (HERE / f"{line}.md").is_file()
        )


def setup(app: Any) -> None:
    """Hooks of this site."""
    app.connect("source-read", _known_pages)
    app.connect("autodoc-process-docstring", _plain_bars)
