"""A site of a federation: answers a study's questions from its own records, within its own limits.

limits      what the site answers at all: the agreed study, and the limits of its own file
responder   questions in, counts out: the responder and its ledger as the service uses them
folder      the site's folder with key, limits and ledger
service     connects to the broker, says hello and answers, for as long as the study lasts
"""

__all__ = ["folder", "limits", "responder", "service"]
