"""A site of a federation: answers a study's questions from its own records, within its own limits.

limits      what the site answers at all: the agreed study, and the limits of its own file
responder   questions in, counts out, durable first
core        what the site replies to every message, without connection, clock or task
service     drives the core: connects, says hello and answers, for as long as the study lasts
folder      the site's folder with key, limits and ledger
"""

__all__ = ["core", "folder", "limits", "responder", "service"]
