"""A survey on the web: one person, one bit; the number never leaves the person's device.

`page` holds what a person's browser is served: the page, its script and its words.
"""

from privatile.survey import page

__all__ = ["page"]
