"""A survey on the web: one person, one bit; the number never leaves the person's device.

The public names are the modules, imported one by one: most need the extra `survey`.

    page       what a person's browser is served: the page, its script and its words
    study      the study file: everything public about a survey
    protocol   what gateway, clients and links agree on: a code, a round's number, an address
    codes      one-time codes and the files that give them away
    folder     where everything of a survey lies; a new survey
    store      the private file: codes, and the counts of the open round
    code_table the codes in memory, found by their hashes
    intake     many changes in one commit; a reply only after its commit
    questions  who gets the question, and who waits for the next
    mark       how an older copy of the files is found
    run        the public file: questions and counts of closed rounds
    service    a survey while it runs
    gateway    the same over HTTP
    serving    the gateway's process: address, TLS, signals
    closing    the end by command
    facts      what pages show
    record     the signed release record, and its checks
    status     where a survey stands, read from outside
    sheets     cards with QR codes, and a table for mail merge
    client     a client for programs; answer_file is what it remembers
"""

__all__ = [
    "answer_file",
    "client",
    "closing",
    "code_table",
    "codes",
    "facts",
    "folder",
    "gateway",
    "intake",
    "mark",
    "page",
    "protocol",
    "questions",
    "record",
    "run",
    "service",
    "serving",
    "sheets",
    "status",
    "store",
    "study",
]
