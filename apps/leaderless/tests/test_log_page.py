"""What crosses the log of a federation without a coordinator is what docs/wire.md lists."""

import re
from typing import get_args

import msgspec

from privatile_leaderless.entries import AnyEntry
from privatile_leaderless.folder import MAKING, READING, peer_permissions
from tests.federation.kit import REPOSITORY


def section() -> str:
    text = (REPOSITORY / "docs" / "wire.md").read_text(encoding="utf-8")
    return text.partition("## A log instead of a coordinator")[2].partition("\n## ")[0]


def rows(text: str, columns: int) -> list[tuple[str, ...]]:
    return [
        tuple(cell.strip() for cell in line.strip("|").split("|"))
        for line in text.splitlines()
        if line.startswith("| `") and line.count("|") == columns + 1
    ]


def told(text: str) -> dict[str, set[str]]:
    """Fields by kind."""
    found = {}
    for kind, fields, _ in rows(text, 3):
        if not kind.startswith(("`privatile.", "`LOG.", "`_INBOX")):
            found[kind.strip("`")] = set(re.findall(r"`(\w+)`", fields))
    return found


def made() -> dict[str, set[str]]:
    return {
        str(kind.__struct_config__.tag): set(kind.__struct_fields__) - {"study", "run"}
        for kind in get_args(AnyEntry)
        if issubclass(kind, msgspec.Struct)
    }


def test_every_entry_is_on_the_page_with_its_fields() -> None:
    assert told(section()) == made()
    altered = section().replace("`lost`, ", "", 1)
    assert told(altered) != made()  # the control


def test_every_subject_of_a_peer_is_on_the_page_and_no_other() -> None:
    lines = {
        subject.strip("`"): (publish, subscribe)
        for subject, publish, subscribe in rows(section(), 3)
        if subject.startswith(("`privatile.", "`LOG.", "`_INBOX"))
    }
    makers, everybody = (peer_permissions("ID", "NAME", verbs) for verbs in ((MAKING, *READING), READING))
    publish, subscribe = makers
    assert {subject.replace(".EPOCH.", ".*.") for subject, to in lines.items() if to[0] != "broker"} == set(publish)
    only = {subject for subject, to in lines.items() if to[0] == "peers that run a server"}
    assert only == set(publish) - set(everybody[0])
    assert {subject for subject, to in lines.items() if to[1] == "NAME"} == set(subscribe)
