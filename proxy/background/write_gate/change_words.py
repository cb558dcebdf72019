"""Words by which a statement itself says that something changed, in five languages: `words/change.txt`.

Patterns match folded text (see `terms.fold`): no case, no accents. The words only open the question; what
must be shared with the old fact is decided in `claims`.
"""

import re
from enum import StrEnum

from proxy.wordlists import whole_words


class Cue(StrEnum):
    """What a clause says about the fact that held before."""

    MOVED = "moved"  # it has another value, which follows
    ENDED = "ended"  # it holds no more
    NOW = "now"  # this holds now: something else may have held before
    DENIED = "denied"  # a plain negation
    INSTEAD = "instead"  # names what it takes the place of, after the cue
    GONE = "gone"  # somebody or something named is no longer there


def _said(section: str) -> re.Pattern[str]:
    return re.compile(whole_words("change", section))


PATTERNS: dict[Cue, re.Pattern[str]] = {cue: _said(cue) for cue in Cue}
# The new fact holds beside the old one, and says so.
BESIDE = _said("beside")
# What is meant to be: it comes true, changes or comes to nothing.
PLANNED = _said("planned")
# Why, or on what occasion: what follows is not what the statement is about.
REASON = _said("reason")
KIN = _said("kin")
BEINGS = _said("beings")
