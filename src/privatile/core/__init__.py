"""What every package shares: randomized response, the messages Question and Answer, scales, tables read from outside.

It is all that `privatile.client`, the privacy boundary, may import. `mechanism` and `arrays` need numpy and `decoding`
needs msgspec; they are imported as modules, so that a command that prints its help loads neither.
"""

from privatile.core.messages import Answer, Missing, Position, Question
from privatile.core.scale import Scale, make_scale
from privatile.core.text import duration

__all__ = ["Answer", "Missing", "Position", "Question", "Scale", "duration", "make_scale"]
