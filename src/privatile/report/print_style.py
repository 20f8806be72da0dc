"""How figures for print look: colour-blind safe, readable in grey, text stays text, the same file every time."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from privatile.errors import InputError, require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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


def save_figure(figure: "Figure", target: Path) -> Path:
    """Write it without a date: the same numbers give the same file."""
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(target.suffix.lower())
    try:
        figure.savefig(target, metadata=metadata)
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror}. Choose a folder you may write to.") from None
    return target
