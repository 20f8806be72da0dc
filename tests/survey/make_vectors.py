"""Write what surveys in other languages than Python share with it: constants, and vectors that they are held against.

    python -m tests.survey.make_vectors

src/privatile/survey/vectors.json says what a device answers, and how it reads a typed number. Its answers come from the
mechanism in Python, one coin at a time. In the page's scripts and in openapi.json the constants are written anew.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from privatile.core.kinds import WEAK_EPSILON
from privatile.core.mechanism import COINS, RandomizedResponse
from privatile.survey.gateway import MAX_BODY, REFUSALS
from privatile.survey.page import LANGUAGES
from privatile.survey.study import CODE, UNSTATED

PATH = Path(__file__).parents[2] / "src" / "privatile" / "survey" / "vectors.json"

EPSILONS = (0.1, 0.5, 1.0, 2.0, WEAK_EPSILON)

COMPARISONS = [
    ("3200", "2750.5", True),
    ("2750.5", "2750.5", False),  # equal is not above
    ("2750.4999999", "2750.5", False),
    ("0.30000000000000004", "0.3", True),  # the next double
    ("0.1", "0.1000000000000000055511151231257827", False),  # the same double
    ("9007199254740993", "9007199254740992", False),  # doubles end here: both are 2^53
    ("9007199254740994", "9007199254740992", True),
    ("-5", "-4.5", False),
    ("-4", "-4.5", True),
    ("0", "-0.0", False),
    ("1e21", "1e+20", True),
    ("5e-324", "0", True),
]
"""A value, a query, and whether the value is above it as doubles are compared."""

TYPED: list[tuple[str, float | str]] = [
    ("1234", 1234), (" 1234 ", 1234), ("+12", 12), ("-12,5", -12.5), ("−12.5", -12.5), ("0", 0), ("007", 7),
    ("1234.5", 1234.5), ("1234,5", 1234.5), ("1,5", 1.5), ("12.34", 12.34), ("1234.567", 1234.567), ("0.125", 0.125),
    ("0,125", 0.125), ("1.2340", 1.234), ("1,234.5", 1234.5), ("1.234,5", 1234.5), ("1 234,5", 1234.5),
    ("1\u202f234\u202f567,25", 1234567.25), ("1\u00a0234", 1234), ("1'234.50", 1234.5), ("1’234’567", 1234567),
    ("1.234.567", 1234567), ("1,234,567", 1234567), ("12,345,678.9", 12345678.9), ("12.345.678,9", 12345678.9),
    ("1,234", "ambiguous"), ("1.234", "ambiguous"), ("12.345", "ambiguous"), ("-123,456", "ambiguous"),
    ("", "empty"), ("   ", "empty"), ("abc", "form"), ("12 €", "form"), ("1e5", "form"), ("0x10", "form"),
    ("1.2.3", "form"), ("1,23,456", "form"), ("1.234.5", "form"), ("1,234,5", "form"), ("12 34", "form"),
    ("1.234,567.8", "form"), ("--5", "form"), ("5-", "form"), ("5.", "form"), (".5", "form"), ("1'23", "form"),
    ("Infinity", "form"), ("NaN", "form"), ("٣", "form"), ("1" * 41, "form"), ("1234567.1234567", 1234567.1234567),
]  # fmt: skip
"""What a person types, and the number that is read or why none is."""


def coins_of(threshold: int) -> list[int]:
    """The coins at which something changes, and a few others."""
    rng = np.random.default_rng(threshold % 2**32)
    others = rng.integers(0, COINS - 1, size=3, dtype=np.uint64, endpoint=True)
    return [0, threshold - 1, threshold, COINS - 1, COINS // 2, *map(int, others)]


def vectors() -> dict[str, Any]:
    """The whole file."""
    answers = []
    for epsilon in EPSILONS:
        mechanism = RandomizedResponse.from_epsilon(epsilon)
        for number, coin in enumerate(coins_of(mechanism.threshold)):
            for value, query, above in COMPARISONS[number % 3 :: 3]:
                truth = np.array([float(value) > float(query)])
                assert truth[0] == above, (value, query)
                (answer,) = mechanism.respond(truth, np.array([coin], dtype=np.uint64)).tolist()
                answers.append(
                    {
                        "epsilon": epsilon,
                        "threshold": str(mechanism.threshold),
                        "value": value,
                        "query": query,
                        "coin": str(coin),
                        "answer": answer,
                    }
                )
    strongest, weakest = COINS // 2 + 1, RandomizedResponse.from_epsilon(WEAK_EPSILON).threshold
    thresholds = [
        {"threshold": str(number), "accepted": accepted}
        for number, accepted in (
            (0, False), (COINS // 2, False), (strongest, True), (weakest, True), (weakest + 1, False), (COINS, False),
            (COINS + strongest, False), (-strongest, False),
        )
    ]  # fmt: skip
    typed = [
        {"typed": text, **({"error": read} if isinstance(read, str) else {"value": float(read)})}
        for text, read in TYPED
    ]
    return {"answers": answers, "thresholds": thresholds, "typed": typed}


def text() -> str:
    """The file's text: one case per line."""
    parts = []
    for name, cases in vectors().items():
        lines = ",\n".join("    " + json.dumps(case, ensure_ascii=False) for case in cases)
        parts.append(f'  "{name}": [\n{lines}\n  ]')
    return "{\n" + ",\n".join(parts) + "\n}\n"


WEAKEST = RandomizedResponse.from_epsilon(WEAK_EPSILON).threshold
GENERATED = {
    "mechanism.js": [
        (r"const WEAKEST = \d+n; // epsilon [\d.]+:", f"const WEAKEST = {WEAKEST}n; // epsilon {WEAK_EPSILON:g}:"),
    ],
    "answer.js": [
        (r"const LANGUAGES = .*;", f"const LANGUAGES = {json.dumps(list(LANGUAGES))};"),
        (r'const UNSTATED = ".*";', f"const UNSTATED = {json.dumps(UNSTATED)};"),
        (r"const CODE = .*;", f"const CODE = /^{CODE.pattern}$/;"),
    ],
    "openapi.json": [
        (r'(?<="pattern": )"\S+(?=",\n +"description": "128 random bits)', f'"^{CODE.pattern}$'),
        (r"the body is longer than \d+ bytes", f"the body is longer than {MAX_BODY} bytes"),
        (r"N > \d+ \(ε = [\d.]+\)", f"N > {WEAKEST} (ε = {WEAK_EPSILON:g})"),
        (r'(?<="maximum": )\d+(?=\n +\},\n +"asked_by")', f"{WEAK_EPSILON:g}"),
        (
            r'(?<="enum": \[)[^\]]*"unknown"[^\]]*(?=\])',
            ",".join(f"\n{14 * ' '}{json.dumps(reason)}" for reason in REFUSALS) + f"\n{12 * ' '}",
        ),
    ],
}
"""Files of the page, with what stands in them and what should."""


def generated(name: str) -> str:
    """The text of a file of the page, its constants those of Python."""
    text = (PATH.parent / "page" / name).read_text(encoding="utf-8")
    for pattern, constant in GENERATED[name]:
        text, found = re.subn(pattern, lambda _, constant=constant: constant, text)  # type: ignore[misc]
        assert found, f"{name} lacks {pattern}"
    return text


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
    for name in GENERATED:
        (PATH.parent / "page" / name).write_text(generated(name), encoding="utf-8")
