"""Is what the question asks for known by one name, and is that name in memory at all?

"When is Iain's birthday?" comes close to every memory of Iain, and no cosine tells that none of them is about
a birthday. But a birthday is called so, or "born", wherever it is told: things that go by one name (a
password, a licence plate, a landlord) are in memory under that name or not at all. Asked for by name and
absent, they close the gate. Things with many names ("the place", "my ride") are not in the table.

Names are looked for in English: in other languages, in the gloss of the text.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from proxy.gloss import gloss, question_gloss
from proxy.terms import fold

_ASKED_CHARS = 120  # a longer message asks for more than a name


@dataclass(frozen=True, slots=True)
class Named:
    """A thing with one name: how it is asked for, and the words under which memory would hold it."""

    asked: re.Pattern[str]
    told: re.Pattern[str]


def _row(asked: str, told: str = "") -> Named:
    return Named(re.compile(rf"\b(?:{asked})\b"), re.compile(rf"\b(?:{told or asked})"))


_TABLE = (
    _row(
        "password|passcode|pass phrase|pin code|pin", "password|passcode|passphrase|pin\\b|credential|vault"
    ),
    _row("birthday|date of birth", "birthday|born|birth|turns? \\d|turned \\d"),
    _row("wedding anniversary|anniversary", "anniversary|married|wedding"),
    _row("landlord|landlady", "landlord|landlady|letting|rent|lease"),
    _row("licen[cs]e plate|number plate|registration number", "plate|registration"),
    _row("blood (?:type|group)", "blood"),
    _row("blood thinner|anticoagulant", "thinner|coagul|warfarin|blood"),
    _row("shoe size|shoes? number|foot number|number of foot", "shoe|size|foot"),
    _row("phone number|telephone number|mobile number", "phone|mobile|number|tel"),
    _row("email address|e-mail address", "@|e-?mail"),
    _row(
        "passport number|id number|(?:number|numero) of social security|social security number",
        "passport|\\bid\\b|social security",
    ),
    _row("account number|iban", "account|iban"),
    _row("car insurance", "insurance|insured"),
    _row("electricity bill", "electric|power|utilit|bill"),
    _row("monthly rent|rent do (?:i|we) pay|pay .*\\brent|rent", "rent|lease|landlord"),
    _row("dentist", "dentist|dental|tooth|teeth"),
    _row("surname|last name|maiden name", "surname|last name|maiden|name"),
    _row("middle name", "middle name|second name"),
    _row("how tall|height", "tall|height|\\d ?cm\\b|\\d\\.\\d+ ?m\\b"),
    _row("flight number", "flight"),
    _row("booking (?:reference|number|code)|reservation number", "booking|reservation|reference"),
    _row("policy number|insurance number|tax (?:number|id)", "policy|insurance|tax"),
    _row("wi-?fi", "wi-?fi|router|network"),
    _row("vet", "\\bvet|clinic|animal"),
    _row("mortgage", "mortgage|loan"),
    _row("eye colou?r", "eye"),
    _row("zodiac sign|star sign", "zodiac|star sign|birthday|born"),
)
_ANY = re.compile("|".join(row.asked.pattern for row in _TABLE))
_ASKS = re.compile(
    r"\?\W*$|\b(?:what(?:'s)?|which|when(?:'s)?|who(?:'s)?|where(?:'s)?|how (?:much|many|old))\b"
)
# A way of doing something is no thing with a name.
_HOW = re.compile(r"\bhow (?:do|can|should|would|to)\b|\bwhy\b|\bstep")


def is_missing(text: str, contents: Iterable[str]) -> bool:
    """True if the text asks for a thing of the table by its name, and none of the contents names it.

    Asked for several, it is enough that one is told."""
    if len(text) > _ASKED_CHARS:
        return False
    said = fold(question_gloss(text).text).replace("’", "'")
    if not _ASKS.search(said) or _HOW.search(said):
        return False
    if not _ANY.search(said):
        return False
    asked = [row for row in _TABLE if row.asked.search(said)]
    folded = [fold(content) for content in contents]
    return not any(_is_told(row, folded) for row in asked)


def _is_told(row: Named, contents: Sequence[str]) -> bool:
    """True if one of the (folded) contents names the thing: as it stands, else in its gloss (dearer)."""
    if any(row.told.search(content) for content in contents):
        return True
    return any(row.told.search(fold(gloss(content).text)) for content in contents)
