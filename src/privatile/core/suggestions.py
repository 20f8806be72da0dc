"""What somebody may have meant: the nearest name that is known, other tools' names, and names that are gone."""

from collections.abc import Collection
from difflib import get_close_matches

OTHER_NAMES = {
    "quantile": "q",
    "quantiles": "q",
    "level": "q",
    "levels": "q",
    "tau": "q",
    "percentile": "q",
    "eps": "epsilon",
    "budget": "epsilon",
    "privacy": "epsilon",
    "column": "value",
    "variable": "value",
    "col": "value",
    "group": "by",
    "groupby": "by",
    "bounds": "range",
    "limits": "range",
    "confidence": "confidence_level",
    "conf_level": "confidence_level",
    "ci": "confidence_level",
    "alpha": "confidence_level",
    "seed": "rng",
    "random_state": "rng",
    "sample_weight": "weight",
    "width": "until_width",
    "joint": "simultaneous",
    "out": "output",
    "site": "client",
}
"""A name of other tools -> ours, for options and keywords alike; used where ours is known."""

REMOVED = {
    "estimate --overall-share": "Run `privatile estimate` once more without --by, with --spend-again (ε adds up).",
}
"""Command, or command and option, as it was typed -> what replaces it. An option stands for its keyword and its field
in a TOML file, too. `docs/upgrades.md` shows this table."""


def removed(command: str, name: str = "") -> str:
    """That a command, or its option, keyword or field `name`, is gone, and what replaces it; empty for others.

    >>> removed("estimate", "overall_share")
    'overall_share is gone. Run `privatile estimate` once more without --by, with --spend-again (ε adds up).'
    >>> removed("estimate", "epsilon")
    ''
    """
    key = f"{command} --{name.lstrip('-').replace('_', '-')}" if name else command
    return f"{name or command} is gone. {REMOVED[key]}" if key in REMOVED else ""


def meant(given: str, known: Collection[str]) -> str | None:
    """The known name that was probably meant; words are joined with underscores.

    >>> known = ["epsilon", "max_epsilon", "q", "confidence_level"]
    >>> meant("epsilonn", known), meant("quantile", known), meant("alpha", known), meant("zebra", known)
    ('epsilon', 'q', 'confidence_level', None)
    """
    name = given.lower().replace("-", "_")
    if OTHER_NAMES.get(name) in known:
        return OTHER_NAMES[name]
    near = get_close_matches(name, known, n=1)
    begun = [one for one in known if len(name) > 2 and one.startswith(name)]
    return near[0] if near else begun[0] if len(begun) == 1 else None
