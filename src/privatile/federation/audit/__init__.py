"""The privacy audit: runs a real client process against planted data and measures what it gives away.

audit       holds the sittings of an audit and gathers what they show
plan        what is asked: planted files whose truths are known, sittings and their questions
checks      what is compared with honest coins, and the findings in words
statistics  counts to normal scores, exact tests of them, exact bounds for the likelihood ratio of a report
session     the auditor as coordinator of client processes
"""

__all__ = ["audit", "checks", "plan", "session", "statistics"]
