"""A site of a federation: answers a study's questions from its own records, within its own limits.

    limits      what the site answers at all: the agreed study, and the limits of its own file
    responder   questions in, counts out: the responder and its ledger as the service uses them
    folder      the site's folder with key, limits and ledger
    service     connects to the broker, says hello and answers, for as long as the study lasts

`service` is not exported: it imports the broker's client library, which setting up a site does not need.
"""

from privatile.federation.site.folder import Site, enroll, find_site
from privatile.federation.site.limits import SiteLimits, check_questions, read_limits
from privatile.federation.site.responder import SiteResponder, open_responder

__all__ = [
    "Site",
    "SiteLimits",
    "SiteResponder",
    "check_questions",
    "enroll",
    "find_site",
    "open_responder",
    "read_limits",
]
