"""Things of everyday life that go by one name, with the words under which a memory would hold them.

A row: how a question asks for the thing, and the words of which a memory that tells it has one. The second is
the wider: it has to hold every wording of an answer, since a memory that is not recognised is one that is
not shown. Both are English, or Chinese where the lexicon has no word; they are looked for in a text as it
stands and in its gloss.
"""

import re
from dataclasses import dataclass
from functools import cache

from proxy.pipeline.everyday import ROWS


@dataclass(frozen=True, slots=True)
class Thing:
    """A thing with one name: how it is asked for, and the words under which memory would hold it.

    `with_value`: its price or its hour stands in the memory that names it, where it is told at all."""

    asked: re.Pattern[str]
    told_by: str
    with_value: bool = False

    @property
    def told(self) -> re.Pattern[str]:
        """The words of a memory that tells it: compiled at the first question, since most are never asked."""
        return _compiled(self.told_by)


def _row(asked: str, told: str = "", with_value: bool = False) -> Thing:
    bound = "" if _HAN.search(asked) else r"\b"  # Chinese words have no bounds
    asks = re.compile(rf"{bound}(?:{asked}){bound}")
    return Thing(asks, rf"{_STARTS}(?:{told or asked})", with_value)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


_HAN = re.compile("[\u3400-\u9fff]")
_STARTS = r"(?:\b|(?<=[\u3400-\u9fff]))"


_CAR = (
    "cars?\\b|drives? (?:an?|his|her|their|my) |vans?\\b|trucks?\\b|suv\\b|vehicle|toyota|vw\\b"
    "|volkswagen|golf\\b|skoda"
    "|ford\\b|bmw|audi\\b|tesla|honda|mazda|fiat\\b|renault|peugeot|seat (?:ibiza|leon)|opel|volvo"
    "|kia\\b|hyundai"
    "|nissan|subaru|mercedes|citroen|dacia|mini\\b|jeep|byd\\b|polestar|lexus|porsche|estate\\b|hatchback"
)
_COLOURS = (
    "colou?r|blue|red\\b|green|yellow|black|white|purple|pink|orange|gr[ae]y|brown|beige|navy|teal|turquoise"
    "|silver|gold|cream|ivory|violet|burgundy|paint"
)

_TABLE = (
    _row(
        "password|passcode|pass phrase|pin code|pin", "password|passcode|passphrase|pin\\b|credential|vault"
    ),
    _row("birthday|date of birth", "birthday|born|birth|turns? \\d|turned \\d|celebrat|feier|baby"),
    _row("wedding anniversary|anniversary", "anniversary|married|wedding"),
    _row("landlord|landlady", "landlord|landlady|letting|rent|lease"),
    _row("licen[cs]e plate|number plate|registration number", "plate|registration"),
    _row("blood (?:type|group)", "blood"),
    _row("blood thinner|anticoagulant", "thinner|coagul|warfarin|blood"),
    _row("shoe size|shoes? number|foot number|number of foot", "shoe|boots?\\b|sneaker|size \\d|foot"),
    _row("(?:ring|hat|dress|shirt|collar|glove) size", "size|\\d+ ?cm\\b"),
    _row("blood pressure", "blood pressure|hypertens|mmhg|\\d{2,3}/\\d{2}"),
    _row("how much do i weigh|my weight", "weigh|\\d+ ?kg\\b|kilo|pounds|lbs"),
    _row("cholesterol", "cholesterol|statin"),
    _row("(?:glasses|lens|eye) prescription|dioptres?", "glasses|lens|optic|eye|diopt|vision"),
    _row(
        "phone (?:call )?number|telephone number|mobile (?:phone )?number|(?:my|our|\\w's|boss) phone call is"
        "|手机号|电话号码",
        "phone|mobile|telefon|telephon|tel\\b|whatsapp|call(?:s|ed)? (?:on|at)|\\+\\d|0\\d{4,}|1[3-9]\\d{9}"
        "|\\d{3}[ -]\\d{4}",
    ),
    _row("email address|e-mail address", "@|e-?mail"),
    _row(
        "passport number|id (?:card|number)|identity card|(?:number|numero) (?:of|from) social security"
        "|social security number",
        "passport|id\\b|identity|social security",
    ),
    _row("account number|iban", "account|iban"),
    _row("car insurance", "insurance|insured"),
    _row(
        "electric(?:ity)? (?:bill|fee|pay)|electricity (?:\\w+ )?how much|pay (?:\\w+ ){0,3}electricity",
        "electricity|power (?:bill|cost|compan)|utilit|bills\\b|energy|kwh",
    ),
    _row("(?:gas|water|heating|energy) bill", "gas\\b|water|heating|energy|utilit|bill"),
    _row(
        "tax (?:bracket|class)",
        "tax",
    ),
    _row("(?:home|travel|health|life|dental|pet|contents) insurance", "insur|policy|cover"),
    _row(
        "driv(?:ing|er'?s?|e) (?:\\w+ )?licen[cs]e|carne de conducir|driving card",
        "driv(?:ing|er'?s?|e) (?:\\w+ )?(?:licen[cs]e|test|school|lesson)|motorcycle|motorbike"
        "|carnet? de conducir",
    ),
    _row(
        "(?:gate|door|alarm|locker|garage|entry|lock|safe) (?:code|combination)",
        "code|combination|alarm|keypad|pin\\b",
    ),
    _row("membership (?:number|fee|card)|library card", "member|gym|library|club"),
    _row("tax return|tax refund", "tax"),
    _row("credit limit", "credit|limit"),
    _row("(?:which|what)(?: (?:kind|make) of)? car (?:do|did) (?:i|we)|what do i drive", _CAR),
    _row(
        "name of (?:the|our|my|that) hotel|(?:which|what)(?: home)? hotel",
        "hotel|hostel|guest ?house|airbnb|inn\\b|resort|lodge|stay|apartment|room",
    ),
    _row(
        "name of (?:the|our|my|that) restaurant|(?:which|what) restaurant",
        "restaurant|bistro|cafe|dinner|lunch|supper|tables? (?:at|for)|eats?\\b|eating|ate\\b|pizz"
        "|tavern|diner\\b|trattoria|food",
    ),
    _row(
        "name of (?:the|my|that) book|(?:which|what) book|book name",
        "book|novel|read|author|memoir|library",
    ),
    _row("(?:which|what) (?:film|movie)", "film|movie|cinema|watch|series|documentary"),
    _row("(?:seat|platform|coach|train) number", "seat|platform|train|coach"),
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
    _row("how tall|height", "tall|height|\\d+ ?cm\\b|\\d\\.\\d+ ?m\\b"),
    _row("flight number", "flight"),
    _row("booking (?:reference|number|code)|reservation number", "booking|reservation|reference"),
    _row("policy number|insurance number|tax (?:number|id)", "policy|insurance|tax"),
    _row("wi-?fi", "wi-?fi|router|network"),
    _row("vet", "\\bvet|clinic|animal"),
    _row("mortgage", "mortgage|loan"),
    _row("eye colou?r", "eye"),
    _row("zodiac sign|star sign", "zodiac|star sign|birthday|born"),
    # ------------------------------------------------------------ ways of going
    _row(
        "flights?|plane|airline|airport",
        "fl(?:y|ight|ew|own|ies)|land(?:s|ed|ing)\\b|plane|飞|航班|机票|vuel|vola|vol\\b|flieg|flug"
        "|air(?:line|port|ways)|depart|trip|travel|ticket|holiday|vacation",
        with_value=True,
    ),
    _row(
        "(?:my|our|the|which|what) train|train (?:to|from|for|at|leave|depart|what time|ticket)",
        "trains?\\b|rail|station|journey|trip|travel|ticket|eurostar|\\bice\\b|tgv",
        with_value=True,
    ),
    _row("ferry", "ferr(?:y|ies)|boat|ship|crossing|sail", with_value=True),
    _row("(?:my|our|the) (?:bus|coach) (?:to|from|leave)", "bus|coach|shuttle", with_value=True),
    _row("passport", "passport"),
    _row("(?:my|our|the) visa", "visa"),
    _row("(?:my|our|the|home|family) cars?|(?:car|home) is (?:which|what)", _CAR),
    # ------------------------------------------------------------ days that are kept
    _row("christmas|xmas", "christmas|xmas|december|\\d{4}-12|advent"),
    _row("easter", "easter|april|march"),
    _row("mid-autumn festival", "mid-autumn|september|october|moon|\\d{4}-(?:09|10)"),
    _row("national day", "national day|october|\\d{4}-(?:09|10)|holiday"),
    _row("dragon boat festival", "dragon boat|june|may\\b|\\d{4}-0[56]"),
    _row(
        "new year'?s? eve|new year'?s? day|silvester", "new year|december|january|silvester|\\d{4}-(?:12|01)"
    ),
    _row("halloween", "halloween|october|costume"),
    _row("thanksgiving", "thanksgiving|november|turkey"),
    _row("valentine'?s(?: day)?", "valentine|february"),
    _row("mother's day|father's day", "mother's day|father's day|may\\b|june"),
    _row(
        "weddings?|get married|got married|married|marry|honeymoon",
        "wedding|marri|marry|wed\\b|bride|groom|anniversary|engaged|honeymoon|ceremony",
    ),
    _row("funeral", "funeral|died|death|buri|cremat"),
    _row("raffle|lottery|jackpot", "raffle|lotter|jackpot|tombola|won\\b|prize"),
    _row(
        "(?:birthday|christmas|wedding|farewell|leaving) (?:gift|present)|(?:what|which) (?:gift|present)"
        "|what did (?:\\w+ ){1,4}(?:give|gave) (?:me|us)",
        "gift|present|gave|giv|buy|bought|birthday|got\\b|receiv",
    ),
    # ------------------------------------------------------------ learning and work
    _row(
        "where did (?:\\w+ ){1,3}study|what did (?:\\w+ ){1,3}(?:study|major in)|university|college"
        "|my degree",
        "stud(?:y|i[eu])|universit|uni\\b|college|degree (?:in|at|from|of)|diploma|graduat|phd"
        "|master'?s|bachelor|alumn|academy|conservat"
        "|institute|campus|faculty|cursus|major",
    ),
    _row(
        "(?:which|what) (?:primary |secondary |high )?school|where (?:\\w+ )?school|kindergarten|nursery",
        "school|kindergarten|nursery|grade|class|academy|pupil|preschool|daycare|creche|lyc|schul"
        "|escuel|coleg"
        "|ecole|ysgol|crèche|kita\\b",
    ),
    _row(
        "salary|wages?|my (?:\\w+ )?income|bonus|how much (?:do|will|did) (?:i|we) earn|earn (?:a"
        "|per) (?:month|year)"
        "|payslip",
        "salar|earn|wage|income|bonus|pay|paid|raise|compens|gross|net\\b|fee\\b|rate\\b|per (?:month"
        "|year)|offer",
    ),
    _row("tuition", "tuition|fee|study|school|course|pay"),
    _row("pension", "pension|retire"),
    # ------------------------------------------------------------ health
    _row("antidepressants?", "antidepress|depress|sertraline|citalopram|fluoxetine|\\d+ ?mg\\b|tablet"),
    _row("painkillers?", "pain|ibuprofen|paracetamol|aspirin|\\d+ ?mg\\b|tablet"),
    _row("sleeping (?:pills?|tablets?)", "sleep|melatonin|zopiclone|\\d+ ?mg\\b"),
    _row("vaccin(?:e|es|ated|ation)|(?:flu|tetanus) (?:shot|jab)", "vaccin|jab|shot|booster|immuni|inject"),
    _row("diabetes|diabetic", "diabet|insulin|blood sugar|metformin"),
    _row("asthma|inhaler", "asthma|inhaler|salbutamol"),
    _row("surgery|operation", "surg|operat|implant|replace|remov|hospital|transplant|procedure|\\bop\\b"),
    _row(
        "(?:which|what) (?:\\w+ )?(?:medicine|medication|drug|pill|tablet)s?",
        "medic|drug|pill|tablet|capsule|\\d+ ?mg\\b|prescri|allerg"
        "|tak(?:es?|en|ing)\\b|dose|drops|cream|insulin|inhaler",
    ),
    _row("heart rate|pulse", "heart|pulse|bpm"),
    # ------------------------------------------------------------ house and money
    _row("(?:which|what) bank|bank account|bank card|loan", "bank|loan|mortgage|credit|account|card|lend"),
    _row("warranty|guarantee", "warrant|guarantee"),
    _row("solicitor|notary", "solicitor|notar|lawyer|legal|attorney|convey"),
    _row("council tax|property tax", "tax"),
    _row("wechat|微信号", "wechat|微信号|微信是|微信:"),
    _row(
        "(?:home|postal|street) address|address of", "address|street|road|avenue|lives?\\b|flat|house|moved"
    ),
    _row("social security card|identity number", "social security|identity|\\bid\\b"),
    # ------------------------------------------------------------ pastimes
    _row(
        "(?:which|what) (?:gym|fitness)|gym (?:am|do|membership)|(?:my|our) gym|fitness (?:studio|club"
        "|centre)",
        "gym|fitness|workout|crossfit|pilates|club|sports? cent|climb|weights",
    ),
    _row(
        "what did (?:i|we) (?:eat|order|have for)|(?:i|we) (?:\\w+ ){0,3}eat (?:\\w+ ){0,2}meal|hotpot",
        "eat|ate\\b|cook|meal|dinner|lunch|breakfast|food|dish|restaurant|ordered|menu|hotpot|course|cuisine",
    ),
    _row("what did i wear|what was i wearing", "wear|wore|dress|suit|outfit|clothes|shoes|costume"),
    _row("what colou?r|which colou?r", _COLOURS),
    _row("host family|au pair", "host|au pair"),
)


_ANY = re.compile("|".join(thing.asked.pattern for thing in _TABLE))


def asked_for(said: str) -> list[Thing]:
    """Return the things that the (folded, English) question names."""
    words = _WORD.findall(said)
    phrases = (
        " ".join(words[at : at + length])
        for at in range(len(words))
        if words[at - 1] not in _INDEFINITE or at == 0
        for length in range(1, _LONGEST + 1)
    )
    found = [_everyday(at) for at in dict.fromkeys(_BY_NAME[p] for p in phrases if p in _BY_NAME)]
    return [*(thing for thing in _TABLE if thing.asked.search(said)), *found] if _ANY.search(said) else found


@cache
def _everyday(at: int) -> Thing:
    asked, told = ROWS.splitlines()[at].split("=")
    return _row(asked, f"{asked}|{told}")


# A table of literal names is looked up: as a pattern it would cost half a millisecond a question.
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_INDEFINITE = frozenset({"a", "an", "any"})
_BY_NAME = {
    name + ending: at
    for at, line in enumerate(ROWS.splitlines())
    for name in line.split("=")[0].split("|")
    for ending in ("", "s", "es")
}
_LONGEST = max(name.count(" ") for name in _BY_NAME) + 1
