"""Where two JSON values part."""

from __future__ import annotations

import math
from collections.abc import Iterator

# Everything must be the same but for the last bits of real numbers: numpy's vectorised functions differ there between
# processors and versions, so that a stricter comparison would fail on other honest machines.
SAME = 1e-9
# The truth of a symmetric law is 0 up to rounding, and rounding is no part of a value.
ZERO = 1e-12


def differences(kept: object, found: object, place: str = "values") -> Iterator[str]:
    """Where two JSON values part; 1 and 1.0 are not the same, nor are real numbers further apart than said above."""
    if isinstance(kept, dict) and isinstance(found, dict):
        for key in sorted(kept.keys() | found.keys()):
            if key in kept and key in found:
                yield from differences(kept[key], found[key], f"{place}[{key!r}]")
            else:
                yield f"{place}[{key!r}] is {'lost' if key in kept else 'new'}"
    elif isinstance(kept, list) and isinstance(found, list) and len(kept) == len(found):
        for i, pair in enumerate(zip(kept, found, strict=True)):
            yield from differences(*pair, f"{place}[{i}]")
    elif isinstance(kept, float) and isinstance(found, float):
        if not math.isclose(kept, found, rel_tol=SAME, abs_tol=ZERO):
            yield f"{place}: {kept!r} has become {found!r}"
    elif type(kept) is not type(found) or kept != found:
        yield f"{place}: {kept!r} has become {found!r}"
