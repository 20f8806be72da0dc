"""Write production/build.txt and production/requirements.txt: tested versions with the hashes of their files.

    make hashes

`requirements.txt` is what privatile and the extras of a service (EXTRAS) need, `build.txt` what builds packages that
come as source. Wheels only, for the Pythons and systems below; a package that has no wheel is listed as source, and
built without isolation by what build.txt installed before, so that no code runs that no hash covers. The hashes come
from the index that pip uses; its address is not written down.
"""

import os
import re
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from importlib.metadata import requires
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename

ROOT = Path(__file__).parents[1]
EXTRAS = ("federation", "broker", "dashboard", "survey")
PYTHONS = ("3.11", "3.12", "3.13")
SYSTEMS = {"linux": "Linux", "darwin": "Darwin"}
"""`sys_platform` and `platform_system` of the systems that are covered."""

HEADER = """\
# {what}
# The versions of constraints.txt, for CPython {pythons} on Linux and macOS. How to install: docs/runbook.md.
# Written by: make hashes
--require-hashes
--only-binary :all:
"""
BUILD = "Builds packages that come as source."
SERVICE = "What a service needs: privatile's own requirements and its extras {extras}."


def pinned_versions(text: str) -> dict[str, str]:
    """Name to version of the lines `name==version`.

    >>> pinned_versions("# tested with\\nPyNaCl==1.6.2\\n")
    {'pynacl': '1.6.2'}
    """
    return {canonicalize_name(name): version for name, version in re.findall(r"^([\w.-]+)==([^\s\\]+)", text, re.M)}


def environments() -> Iterator[dict[str, str]]:
    """What the markers of requirements are held against, once for every Python and system that is covered."""
    for python in PYTHONS:
        for platform, system in SYSTEMS.items():
            yield {
                "python_version": python,
                "python_full_version": f"{python}.0",
                "sys_platform": platform,
                "platform_system": system,
                "os_name": "posix",
            }


def wanted(requirement: Requirement, extras: frozenset[str]) -> bool:
    """Whether the requirement applies in any of the environments, given the extras its owner was asked for."""
    marker = requirement.marker
    return marker is None or any(
        marker.evaluate({**environment, "extra": extra}) for environment in environments() for extra in extras or {""}
    )


def needed(roots: list[str]) -> set[str]:
    """The canonical names of everything that the roots require, directly or through others."""
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [Requirement(root) for root in roots]
    while waiting:
        requirement = waiting.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key not in seen:
            seen.add(key)
            further = (Requirement(text) for text in requires(requirement.name) or [])
            waiting += [one for one in further if wanted(one, key[1])]
    return {name for name, _ in seen}


def roots_of_service() -> list[str]:
    """What privatile and the extras of a service require."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [
        *project["dependencies"],
        *(line for extra in EXTRAS for line in project["optional-dependencies"][extra]),
    ]


def roots_of_build() -> list[str]:
    """What builds privatile, and what builds packages that have no wheel."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return [*project["build-system"]["requires"], "setuptools"]


class Links(HTMLParser):
    """File name to sha256, from an index's page of one package (PEP 503)."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.hashes: dict[str, str] = {}
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Read one link."""
        address = urlsplit(dict(attrs).get("href") or "")
        if tag == "a" and (found := re.fullmatch(r"sha256=([0-9a-f]{64})", address.fragment)):
            self.hashes[unquote(address.path.rpartition("/")[2])] = found[1]


def covered(file: str, version: str) -> bool:
    """Whether a file is a wheel of that version for one of the Pythons and systems.

    >>> [covered(f"numpy-2.4.6-{tags}.whl", "2.4.6") for tags in ("cp312-cp312-macosx_14_0_arm64", "py3-none-any")]
    [True, True]
    >>> [covered(f"numpy-2.4.6-{tags}.whl", "2.4.6") for tags in ("cp312-cp312-win_amd64", "cp310-cp310-linux_x86_64")]
    [False, False]
    """
    if not file.endswith(".whl"):
        return False
    _, found, _, tags = parse_wheel_filename(file)
    interpreters = {"py3", "py2.py3", *(f"cp{python.replace('.', '')}" for python in PYTHONS)}
    return str(found) == version and any(
        (tag.interpreter in interpreters and tag.abi in {"none", tag.interpreter})
        or (tag.abi == "abi3" and tag.interpreter in {f"cp3{minor}" for minor in range(2, 12)} | interpreters)
        for tag in tags
        if tag.platform == "any" or re.search("linux|macosx", tag.platform)
    )


def source_of(file: str) -> tuple[str, str] | None:
    """Name and version of a source archive.

    >>> source_of("nkeys-0.2.1.tar.gz")
    ('nkeys', '0.2.1')
    """
    if not file.endswith(".tar.gz"):
        return None
    name, version = parse_sdist_filename(file)
    return name, str(version)


def page_of(index: str, name: str) -> str:
    """The index's page about a package."""
    request = urllib.request.Request(f"{index.rstrip('/')}/{name}/", headers={"Accept": "text/html"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        page: str = answer.read().decode()
    return page


def index_of_pip() -> str:
    """The index that pip asks here: PIP_INDEX_URL, its configuration, or its default."""
    show = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    configured = subprocess.run(show, capture_output=True, text=True, check=False).stdout.strip()
    if named := os.environ.get("PIP_INDEX_URL") or configured:
        return named
    from pip._internal.models.index import PyPI

    return PyPI.simple_url


def requirement_lines(what: str, version_of: Mapping[str, str], hashes_of: Mapping[str, Mapping[str, str]]) -> str:
    """The file: one requirement with its hashes per package."""
    header, text = HEADER.format(what=what, pythons=", ".join(PYTHONS)), ""
    for name, version in sorted(version_of.items()):
        found = hashes_of[name]
        hashes = {value for file, value in found.items() if covered(file, version)}
        if not hashes:
            hashes = {value for file, value in found.items() if source_of(file) == (name, version)}
            header += f"--no-binary {name}\n"
        if not hashes:
            sys.exit(f"{name}: the index has no file of version {version}. Pin a version that it has.")
        text += " \\\n    ".join([f"{name}=={version}", *(f"--hash=sha256:{value}" for value in sorted(hashes))]) + "\n"
    return header + text


def main() -> None:
    """Write both files."""
    pins = pinned_versions((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    build, service = needed(roots_of_build()), needed(roots_of_service())
    if unpinned := sorted((build | service) - set(pins)):
        sys.exit(f"constraints.txt pins no version of {', '.join(unpinned)}. Regenerate it with: make constraints")
    index = index_of_pip()
    hashes = {name: Links(page_of(index, name)).hashes for name in sorted(build | service)}
    extras = ", ".join(EXTRAS)
    for file, what, names in (("build.txt", BUILD, build), ("requirements.txt", SERVICE, service)):
        text = requirement_lines(what.format(extras=extras), {name: pins[name] for name in names}, hashes)
        (ROOT / "production" / file).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
