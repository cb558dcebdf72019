"""Close the gate on a question for something that goes by one name, where that name is not in memory at all.

"When is Iain's birthday?" comes close to every memory of Iain, and no cosine tells that none of them is about
a birthday. But a birthday is called so, or "born", wherever it is told: things that go by one name (a
password, a licence plate, a landlord) are in memory under that name or not at all. Asked for by name and
absent, they close the gate. Things with many names ("the place", "my ride") are not in the table.

Names are looked for in English: in other languages, in the gloss of the text.
"""

import re
from collections.abc import Callable, Sequence

from proxy.gloss import question_gloss
from proxy.pipeline.recall.things import Reading, Thing, asked_for, reading_for
from proxy.pipeline.roles import roles_in
from proxy.terms import plain

_ASKED_CHARS = 120  # a longer message asks for more than a name


_MONTH = r"(?:jan|ene|feb|fev|mar|apr|abr|avr|may|mai|ju[inl]|aug|ago|aou|sep|o[ck]t|nov|de[cz]|dic)"
# An amount, with its currency or without: neither a date, a year of these days, an hour nor a distance.
_AMOUNT = (
    r"[$€£¥₹]|\d ?(?:k|usd|eur|gbp|chf|euros?|pounds?|dollars?|francs?|kr|yuan|元|块|万|千)"
    rf"|(?<![\d:./-])(?!20[12]\d\b)\d{{2,}}(?![\d:/h-]|st\b|nd\b|rd\b|th\b|\.? ?(?:de |of |from )?{_MONTH}"
    r"| ?(?:km|cm|kg|am|pm|uhr|mins?|min(?:ut|ues)\w*|years?|[月日号点岁])\b)"
    r"|[一二三四五六七八九两十][百千万]|[一二三四五六七八九十]块|免费|\bfree\b"
)
# A price, an hour: what a memory holds that tells them.
_VALUES = (
    (
        re.compile(r"\bwhat time\b|\bwhat hour\b"),
        re.compile(
            r"\d[:.h]\d\d|\d ?(?:am|pm|uhr|h)\b|\d ?[点时]|[一二三四五六七八九十]点|[早中晚]上|中午|上午|下午"
            r"|\b(?:noon|midnight|midday|morning|evening|afternoon|o'clock|(?:at|about|around|past|to) \d)"
            r"|\b(?:a las?|um|gegen|a|vers) \d"
            r"|\b(?:manana|tarde|matin|soir|morgens|abends|mittags?|midi|minuit)\b"
            r"|\bhalf past|\bquarter\b|\bhalb\b|\bviertel\b|\by media\b|\bat (?:one|two|three|four|five|six"
            r"|seven|eight|nine|ten|eleven|twelve)\b|\ba las? (?!\d)\w+|\b\w+ (?:heures?|uhr)\b"
        ),
    ),
    (
        re.compile(
            r"\bhow much\b.*\b(?:cost|pay|paid|spend|spent|charge)|\b(?:cost|price|fare)\b|\bspend how much\b"
        ),
        re.compile(_AMOUNT),
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

    Of several one told is enough, since "the wifi password" may be told as the router's key; but an event
    makes the question: "the Christmas dinner" needs Christmas told, too."""
    if not asks_for_fact(text):
        return None
    said = asked_in_english(text)
    if not _WHICH.search(said) or is_advice(said):
        return None
    if _ANOTHER.search(said):
        return None  # what it asks beside may be told: "what did I pay for it, and is it under warranty?"
    # What is asked of a mother is looked for among what is told of her (see persons and attributes).
    if not (asked := asked_for(said, of_somebody=bool(roles_in(text)))):
        return None
    several, reading = _SEVERAL.search(said) is not None, reading_for(text)

    def lacks(contents: Sequence[str]) -> bool:
        told = [(thing.event, _is_told(thing, contents, said, reading)) for thing in asked]
        if several:
            return not any(is_told for _, is_told in told)
        others = [is_told for event, is_told in told if not event]
        return not all(is_told for event, is_told in told if event) or (bool(others) and not any(others))

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


def _is_told(thing: Thing, contents: Sequence[str], said: str, reading: Reading) -> bool:
    """True if one of the contents names the thing, and has its price or its hour if that is asked.

    A content is read as it stands, else in its gloss (dearer)."""
    values = [held for asks, held in _VALUES if asks.search(said)] if thing.with_value else []
    able = [c for c in contents if all(held.search(reading.folded(c)) for held in values)]
    if any(thing.told.search(reading.folded(content)) for content in able):
        return True
    return any(thing.told.search(reading.english(content)) for content in able)
