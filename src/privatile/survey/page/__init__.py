"""What a person's browser is served, and the hash by which people check it.

The files beside this one are all there is: no framework, no build step, no other host. They are the same for every
survey of this version; what differs comes from `survey.json`. Below 10 kB compressed in all.
"""

import gzip
import hashlib
import json
from functools import cache
from importlib import resources
from typing import NamedTuple

MEDIA_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
}

LANGUAGES = {"en": "English", "de": "Deutsch", "fr": "Français"}
"""By their own names. A new one needs a line here, a file in `messages/` (the answering page) and one in `../words/`
(the public page and the cards). Where a study names another, English is shown."""


@cache
def words_of(language: str) -> dict[str, str]:
    """The words of the public page and of the cards."""
    known = language if language in LANGUAGES else "en"
    words: dict[str, str] = json.loads((resources.files("privatile.survey") / "words" / f"{known}.json").read_bytes())
    return words


FILES = {
    "": "index.html",
    "static/answer.js": "answer.js",
    "static/mechanism.js": "mechanism.js",
    "static/answer.css": "answer.css",
    **{f"static/messages/{language}.json": f"messages/{language}.json" for language in LANGUAGES},
}
"""The answering page: paths below the survey's root, and files of this package. These make its hash."""

OTHER_FILES = {"organiser": "organiser.html", "static/refresh.js": "refresh.js", "openapi.json": "openapi.json"}
"""The shell of the organiser's page, which holds no fact: its script fetches them with the organiser's token. The
script of the public page. The protocol, for programs."""


class PageFile(NamedTuple):
    """A file as it is served."""

    media_type: str
    body: bytes
    gzipped: bytes


def served(name: str) -> PageFile:
    """A file of this package as it is served."""
    body = (resources.files(__name__) / name).read_bytes()
    # No date in the compressed file: the same bytes at every start.
    return PageFile(MEDIA_TYPES[name.rpartition(".")[2]], body, gzip.compress(body, 9, mtime=0))


@cache
def page_files() -> dict[str, PageFile]:
    """All files by their paths below the survey's root; "" is the answering page itself."""
    return {path: served(name) for path, name in {**FILES, **OTHER_FILES}.items()}


@cache
def page_manifest() -> str:
    """One line per file, sorted by name, as `sha256sum` prints them.

    >>> [line.split("  ")[1] for line in page_manifest().splitlines()][:3]
    ['answer.css', 'answer.js', 'index.html']
    """
    files = sorted((name, page_files()[path].body) for path, name in FILES.items())
    return "".join(f"{hashlib.sha256(body).hexdigest()}  {name}\n" for name, body in files)


@cache
def page_sha256() -> str:
    """The page's hash: SHA-256 of `page_manifest`, so `sha256sum FILES… | sha256sum` gives it too.

    >>> len(page_sha256())
    64
    """
    return hashlib.sha256(page_manifest().encode()).hexdigest()


__all__ = ["FILES", "LANGUAGES", "PageFile", "page_files", "page_manifest", "page_sha256", "words_of"]
