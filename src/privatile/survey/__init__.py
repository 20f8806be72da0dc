"""A survey on the web: one person, one bit; the number never leaves the person's device.

The public names are the modules, imported one by one: most need the extra `survey`.

    study    everything public about a survey; what gateway, clients and links agree on
    folder   where everything of a survey lies; one-time codes; a new survey
    sheets   cards with QR codes, and tables for mail merge
    store    the private file: codes, and the counts of the open round; how an older copy is found
    run      the public file: questions and counts of closed rounds
    intake   questions out, answers in, many changes in one commit; a reply only after its commit
    service  a survey while it runs, and what its pages show
    gateway  the same over HTTP
    serving  the gateway's process; the end by command; where a survey stands, read from outside
    record   the signed release record, and its checks
    client   a client for programs
    page     what a person's browser is served: the page, its script and its words
"""

__all__ = [
    "client",
    "folder",
    "gateway",
    "intake",
    "page",
    "record",
    "run",
    "service",
    "serving",
    "sheets",
    "store",
    "study",
]
