"""What the gateway, its clients and its links agree on: a code, a round's number, an address."""

import re
from urllib.parse import urlsplit

from privatile.core.words import short
from privatile.errors import InputError
from privatile.server.web import is_loopback

CODE = re.compile(r"[A-Za-z0-9_-]{21}[AQgw]")
"""16 bytes in base64url without padding: the last character has two bits."""

LATEST_ROUND = 1 << 53
"""Beyond this JavaScript has no whole numbers."""


def survey_address(text: str) -> str:
    """The address below which a survey is served: https (on this machine also http), with a slash at the end.

    >>> survey_address("https://survey.example.org")
    'https://survey.example.org/'
    >>> survey_address("http://survey.example.org/")
    Traceback (most recent call last):
    ...
    privatile.errors.InputError: the survey's address must begin with https://, since browsers answer only over a secure
    connection; got 'http://survey.example.org/'.
    """
    parts = urlsplit(text)
    if not (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))):
        raise InputError(
            "the survey's address must begin with https://, since browsers answer only over a secure "
            f"connection; got {short(text)}."
        )
    if not parts.hostname or parts.query or parts.fragment or parts.username:
        raise InputError(
            f"the survey's address must be https://HOST/ or https://HOST/FOLDER/ and no more; got {short(text)}."
        )
    return text if text.endswith("/") else text + "/"


def link(address: str, code: str, epsilon: float) -> str:
    """The link of one person, with the privacy budget that the person was told: the page refuses to spend more.

    >>> link("https://survey.example.org/", "AAAAAAAAAAAAAAAAAAAAAA", 1.0)
    'https://survey.example.org/#c=AAAAAAAAAAAAAAAAAAAAAA&e=1'
    """
    return f"{survey_address(address)}#c={code}&e={epsilon:.12g}"
