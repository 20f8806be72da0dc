"""Which program wrote a file: its version, and a digest that tells two builds of one version apart."""

import functools
import hashlib
from importlib.resources import files
from pathlib import Path

from privatile import __version__


@functools.cache
def program() -> str:
    """A digest that identifies this program: the version alone does not tell two builds apart."""
    return hash_sources(Path(str(files("privatile"))))


def hash_sources(root: Path) -> str:
    """SHA-256 of the version and of all Python files below `root`, with their names."""
    digest = hashlib.sha256(__version__.encode())
    for source in sorted(root.rglob("*.py")):
        name = source.relative_to(root).as_posix()
        digest.update(name.encode() + b"\0" + source.read_text(encoding="utf-8").encode() + b"\0")
    return digest.hexdigest()


def named(version: object, build: object) -> str:
    """A program in words: its version, and the beginning of its build's digest.

    >>> named("0.1.0", "0123456789abcdef")
    'privatile 0.1.0 (build 0123456789ab)'
    """
    return f"privatile {str(version)[:40]} (build {str(build)[:12]})"
