"""How memories are told, on which depends how much speaks for an answer where there is one.

An extractor tells of "the user", in one sentence, and most of all in English, which the models read best.
What was really said ("I", or a name and a colon in front) has its fact in the midst of other things: there
every score is lower, and with the bar of an extractor's sentences one answer in five was hidden.
"""

import re
from collections.abc import Sequence
from typing import Literal

Manner = Literal["english", "glossed", "said"]
MANNERS: tuple[Manner, ...] = ("english", "glossed", "said")
_THE_USER = re.compile(
    r"\busers?\b|用[户戶]|使用者|\busuari[oa]|\butilisat(?:eur|rice)|\b(?:be)?nutzer", re.IGNORECASE
)

_CHARS = (
    300  # of a memory tell: an extractor names the user at once, and twelve long ones took 5 ms of the loop
)


def manner_of(contents: Sequence[str], *, glossed: bool) -> Manner:
    """Return how the memories are told: what was said where none of them speaks of the user. `glossed`: see
    ports.Answerability."""
    if not any(_THE_USER.search(content[:_CHARS]) for content in contents):
        return "said"
    return "glossed" if glossed else "english"
