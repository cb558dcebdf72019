"""How memories are told, on which depends how much speaks for an answer where there is one.

An extractor tells of "the user", in one sentence, and most of all in English, which the models read best. Of
notes on people by their names, whom a question may take for each other, a little less is asked. What was
really said ("I", or a name and a colon in front) has its fact in the midst of other things: there every score
is lower, and with the bar of an extractor's sentences one answer in five was hidden.
"""

import re
from collections.abc import Sequence
from typing import Literal

Manner = Literal["english", "glossed", "said", "named"]
MANNERS: tuple[Manner, ...] = ("english", "glossed", "said", "named")
_THE_USER = re.compile(
    r"\busers?\b|用[户戶]|使用者|\busuari[oa]|\butilisat(?:eur|rice)|\b(?:be)?nutzer", re.IGNORECASE
)
# A label, or the first person; "US" and the Spanish month are neither.
_SPEAKS = re.compile(
    r"^\W*[^\W\d_][^:：\n]{0,30}[:：]"
    r"|\b(?:[Ii]|[Mm]e|[Mm]y|[Mm]ine|[Ww]e|[Oo]ur|us|[Yy]o|[Mm]is?|[Nn]os|[Nn]osotr[oa]s|[Ii]ch|[Mm]ein\w*"
    r"|[Mm]ir|[Mm]ich|[Ww]ir|[Uu]ns\w*|[Jj]e|[Jj]['’]\w+|[Mm]on|[Mm]a|[Mm]oi|[Nn]ous)\b|[我咱俺]"
)
# Of a memory tell: an extractor names the user at once, and twelve long ones took 5 ms of the loop.
_CHARS = 300


def manner_of(contents: Sequence[str], *, glossed: bool) -> Manner:
    """Return how the memories are told: what was said where somebody speaks, and none of them of the user; by
    name where they are English, and nobody speaks. `glossed`: see ports.Answerability."""
    heads = [content[:_CHARS] for content in contents]
    of_user = any(map(_THE_USER.search, heads))
    if not of_user and any(map(_SPEAKS.search, heads)):
        return "said"
    if glossed:
        return "glossed"
    return "english" if of_user else "named"
