"""The privacy audit: runs a real client process against planted data and measures what it gives away.

audit     the four questions of an audit and their answers
ratio     exact bounds for the likelihood ratio of a report, and how many reports they need
session   the auditor as coordinator of one client process
"""

__all__ = ["audit", "ratio", "session"]
