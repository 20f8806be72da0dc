"""The privacy audit: runs a real client process against planted data and measures what it gives away.

audit      holds the sittings of an audit and gathers what they show
plan       what is asked: sittings and their questions
planted    the files: records whose truths are known
scores     counts to normal scores, and exact tests of them
table      all questions side by side, and groups of them
checks     the checks: what is compared with honest coins
judgement  counts to findings in words
ratio      exact bounds for the likelihood ratio of a report, and how many reports they need
session    the auditor as coordinator of client processes
processes  how a process is started
quiet      whether a planted value is in anything that a process wrote or sent
"""

__all__ = [
    "audit",
    "checks",
    "judgement",
    "plan",
    "planted",
    "processes",
    "quiet",
    "ratio",
    "scores",
    "session",
    "table",
]
