"""Is what the question asks for known by one name, and is that name in memory at all?

"When is Iain's birthday?" comes close to every memory of Iain, and no cosine tells that none of them is about
a birthday. But a birthday is called so, or "born", wherever it is told: things that go by one name (a
password, a licence plate, a landlord) are in memory under that name or not at all. Asked for by name and
absent, they close the gate. Things with many names ("the place", "my ride") are not in the table.

Names are looked for in English: in other languages, in the gloss of the text.
"""

import re
from collections.abc import Callable, Sequence

from proxy.gloss import gloss, question_gloss
from proxy.pipeline.things import Thing, asked_for
from proxy.terms import fold, plain

_ASKED_CHARS = 120  # a longer message asks for more than a name


# A price, an hour: what a memory holds that tells them.
_VALUES = (
    (
        re.compile(r"\bwhat time\b|\bwhat hour\b"),
        re.compile(
            r"\d[:.]\d\d|\d ?(?:am|pm|uhr|h)\b|\d ?[点时]|[一二三四五六七八九十]点|[早中晚]上|中午|上午|下午"
            r"|\b(?:noon|midnight|morning|evening|afternoon|o'clock|at \d)"
            r"|\b(?:a las|um|a) \d|\b(?:manana|tarde|matin|soir|morgens|abends)\b"
        ),
    ),
    (
        re.compile(
            r"\bhow much\b.*\b(?:cost|pay|paid|spend|spent|charge)|\b(?:cost|price|fare)\b|\bspend how much\b"
        ),
        re.compile(
            r"[$€£¥₹]|\d ?(?:k|usd|eur|gbp|chf|euros?|pounds?|dollars?|francs?|kr|yuan|元|块|万|千)"
            r"|[一二三四五六七八九两十][百千万]|[一二三四五六七八九十]块"
        ),
    ),
)
_SEVERAL = re.compile(r"\b(?:and|or)\b")
_ASKS = re.compile(
    r"\?\W*$|\b(?:what(?:'s)?|which|when(?:'s)?|who(?:'s)?|where(?:'s)?|how (?:much|many|old))\b"
)
_WHICH = re.compile(
    r"\b(?:what|which|when|who|whose|where|how (?:much|many|old|long|far|often|tall|big|high|heavy|name"
    r"|was|is))\b|\bname\b"
)
# Whether one may, and what would be best, may follow from what is known of other things.
_ADVICE = re.compile(
    r"\b(?:should|could|would|might|ideas?|suggest\w*|recommend\w*|best|can (?:i|we)|may (?:i|we)"
    r"|deb(?:o|eria\w*)|puedo|podria\w*|soll\w*|kann|konn(?:t|te|ten|en)|durf\w*|dois|devrai\w*|pourrai\w*"
    r"|peux|puis-je)\b|该|可以|能不能|推荐|推薦|建议|建議|送.{0,6}(?:什么|什麼|啥)"
)
# A way of doing something is no thing with a name.
_HOW = re.compile(r"\bhow (?:do|can|should|would|to)\b|\bwhy\b|\bstep")


# A second question in the message; those that can be taken apart (see several) are judged one by one.
_ANOTHER = re.compile(
    r"\b(?:and|or|but)\b[^?]{0,12}?\b(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would|what|when"
    r"|where|who|which|how|why)\b"
)


Lack = Callable[[Sequence[str]], bool]
"""Says of the contents of memories whether what a question asks for is not among them."""


def missing(text: str) -> Lack | None:
    """Return what says that none of the contents names the thing that the text asks for by its name; None if
    it asks for none.

    "The Christmas dinner" needs both told; of several that are asked side by side one is enough."""
    if not asks_for_fact(text):
        return None
    said = asked_in_english(text)
    if not _WHICH.search(said) or is_advice(said):
        return None
    if _ANOTHER.search(said):
        return None  # what it asks beside may be told: "what did I pay for it, and is it under warranty?"
    if not (asked := asked_for(said)):
        return None
    enough = any if _SEVERAL.search(said) else all

    def lacks(contents: Sequence[str]) -> bool:
        folded = [fold(content) for content in contents]
        return not enough(_is_told(thing, folded, said) for thing in asked)

    return lacks


def asked_in_english(text: str) -> str:
    """Return the question in English, and as it stands where that is something else."""
    own, said = plain(text), plain(question_gloss(text).text)
    return said if own == said else f"{said}\n{own}"


def is_advice(said: str) -> bool:
    """True if the (folded) text, or what it is in English, asks what would be good, or allowed."""
    return _ADVICE.search(said) is not None


def asks_for_fact(text: str) -> bool:
    """True if the text asks what is so, and not for a way or a reason."""
    if len(text) > _ASKED_CHARS:
        return False
    said = plain(question_gloss(text).text)
    return bool(_ASKS.search(said)) and not _HOW.search(said)


def _is_told(thing: Thing, contents: Sequence[str], said: str) -> bool:
    """True if one of the (folded) contents names the thing, and has its price or its hour if that is asked.

    A content is read as it stands, else in its gloss (dearer)."""
    values = [held for asks, held in _VALUES if asks.search(said)] if thing.with_value else []
    able = [content for content in contents if all(held.search(content) for held in values)]
    if any(thing.told.search(content) for content in able):
        return True
    return any(thing.told.search(fold(gloss(content).text)) for content in able)
