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
from proxy.terms import fold, plain

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
    _row("shoe size|shoes? number|foot number|number of foot", "shoe|boots?\\b|sneaker|size \\d|foot"),
    _row("(?:ring|hat|dress|shirt|collar|glove) size", "size|\\d ?cm\\b"),
    _row("blood pressure", "blood pressure|hypertens|mmhg|\\d{2,3}/\\d{2}"),
    _row("how much do i weigh|my weight", "weigh|\\d ?kg\\b|kilo|pounds|lbs"),
    _row("cholesterol", "cholesterol|statin"),
    _row("(?:glasses|lens|eye) prescription|dioptres?", "glasses|lens|optic|eye|diopt|vision"),
    _row("phone number|telephone number|mobile number", "phone|mobile|number|tel"),
    _row("email address|e-mail address", "@|e-?mail"),
    _row(
        "passport number|id (?:card|number)|identity card|(?:number|numero) (?:of|from) social security"
        "|social security number",
        "passport|id\\b|identity|social security",
    ),
    _row("account number|iban", "account|iban"),
    _row("car insurance", "insurance|insured"),
    _row(
        "(?:electricity|gas|water|heating|energy) bill|electricity pay|pay (?:\\w+ ){0,3}electricity",
        "electric|power|utilit|bill|energy|gas|heating|water",
    ),
    _row("(?:home|travel|health|life|dental|pet|contents) insurance", "insur|policy|cover"),
    _row("driv(?:ing|er'?s) licen[cs]e", "licen[cs]e|driving"),
    _row(
        "(?:gate|door|alarm|locker|garage|entry|lock|safe) (?:code|combination)",
        "code|combination|alarm|keypad|pin\\b",
    ),
    _row("membership (?:number|fee|card)|library card", "member|gym|library|club"),
    _row("tax return|tax refund", "tax"),
    _row("credit limit", "credit|limit"),
    _row(
        "(?:which|what)(?: (?:kind|make) of)? car (?:do|did) (?:i|we)|what do i drive",
        "cars?\\b|driv|van\\b|truck|suv|vehicle|toyota|vw\\b|volkswagen|golf|skoda|ford|bmw|audi|tesla|honda"
        "|mazda|fiat|renault|peugeot|seat\\b|opel|volvo|kia\\b|hyundai|nissan|subaru|mercedes|citroen|dacia"
        "|mini\\b|jeep|byd\\b",
    ),
    _row(
        "which (?:university|college)|which school .*university|university .*which school|my alma mater",
        "universit|college|degree|stud(?:y|ie)|student|alumn|graduat|phd|master|bachelor|school|campus",
    ),
    _row(
        "name of (?:the|our|my|that) hotel|(?:which|what) hotel",
        "hotel|hostel|guest ?house|airbnb|inn\\b|resort|lodge|stay|apartment|room",
    ),
    _row(
        "name of (?:the|our|my|that) restaurant|(?:which|what) restaurant",
        "restaurant|bistro|cafe|dinner|lunch|supper|table|eat|pizz|tavern|diner|trattoria|food",
    ),
    _row(
        "name of (?:the|my|that) book|(?:which|what) book|book name",
        "book|novel|read|author|memoir|library",
    ),
    _row("(?:which|what) (?:film|movie)", "film|movie|cinema|watch|series|documentary"),
    _row("(?:seat|platform|coach|train) number", "seat|platform|train|coach"),
    _row("(?:at|for|over|last) (?:christmas|xmas)", "christmas|xmas|december|holiday"),
    _row("(?:at|for|over|last) easter", "easter|spring|april|holiday"),
    _row(
        "(?:favou?rite|most liked?) colou?r",
        "colou?r|blue|red\\b|green|yellow|black|white|purple|pink|orange",
    ),
    _row("(?:favou?rite|most liked?) (?:film|movie)", "film|movie|cinema|watch|director"),
    _row("(?:favou?rite|most liked?) (?:author|writer)", "author|writer|book|read|novel"),
    _row(
        "(?:favou?rite|most liked?) (?:football |soccer |sports )?team",
        "team|club|fan\\b|support|football|fc\\b",
    ),
    _row("(?:favou?rite|most liked?) (?:singer|band|song)", "sing|band|song|music|album|concert|listen"),
    _row(
        "(?:favou?rite|most liked?) (?:flower|animal|season)",
        "flower|rose|animal|season|spring|summer|autumn|winter",
    ),
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
    said = plain(question_gloss(text).text)
    if not _ANY.search(said) or not asks_for_fact(text):
        return False
    asked = [row for row in _TABLE if row.asked.search(said)]
    folded = [fold(content) for content in contents]
    return not any(_is_told(row, folded) for row in asked)


def asks_for_fact(text: str) -> bool:
    """True if the text asks what is so, and not for a way or a reason."""
    if len(text) > _ASKED_CHARS:
        return False
    said = plain(question_gloss(text).text)
    return bool(_ASKS.search(said)) and not _HOW.search(said)


def _is_told(row: Named, contents: Sequence[str]) -> bool:
    """True if one of the (folded) contents names the thing: as it stands, else in its gloss (dearer)."""
    if any(row.told.search(content) for content in contents):
        return True
    return any(row.told.search(fold(gloss(content).text)) for content in contents)
