"""One fact, parsed for `compare`: its words, numbers and names, and what it gives a value to."""

import re
from dataclasses import dataclass
from functools import lru_cache

from proxy.background.write_gate.slots import HABIT
from proxy.embedtext import without_note
from proxy.sentences import without_inner_stops
from proxy.terms import fold, plain, stems, terms
from proxy.writing_systems import IDEOGRAPH

_STRONG_CHANGE = re.compile(
    r"\b(?:no longer|not any ?more|anymore|stopped|quit|switched|instead of|replaced?|changed"
    r"|moved (?:to|from)|was moved|rescheduled|postponed|brought forward|cancell?ed|called off|sold|dropped"
    r"|raised|lowered"
    r"|cut to|rose to|increased|reduced|renamed|(?<!the )(?<!my )(?<!'s )(?<!on )left(?! (?:and|knee|hand|arm"
    r"|eye|ear|leg|foot|side|shoulder|wrist|hip|ankle))|gave up|broke up|decided not"
    r"|did not happen|took place)\b"
    r"|不再|改为|改成|改到|改在|改用|换成|换到|换了|搬到|搬去|取消|推迟|提前到"
    r"|下线|涨到|降到|戒|拒掉|卖掉|停用|调到"
    r"|\b(?:ya no|en lugar de|cambio a|nicht mehr|statt|umgezogen|gewechselt|ne \w+ plus|desormais)\b"
)
_WEAK_CHANGE = re.compile(r"\b(?:now|currently|new|ahora|jetzt|maintenant)\b|现在|目前|如今|新的")
_NEGATION = re.compile(
    r"\b(?:no|not|never|without|cannot|nicht|kein\w*|nunca|jamais|pas)\b|n't\b|不|没|無|别"
)
_NUMBER = re.compile(
    r"\d+(?:[.,:/-]\d+)*"
    r"|\b(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b|\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b"
    r"|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|twelve|first|second|third|fourth|fifth|half)\b"
    r"|[周星期]{1,2}[一二三四五六日天]|[零一二两三四五六七八九十百千万亿半]++(?=[点岁月日号元块美年次杯个只条台分小时公]|$)"
)
_NAME = re.compile(r"(?<![.!?]\s)(?<=[\w,'\")]\s)[A-Z][\w&+.-]*|\b\w*[a-z][A-Z]\w*|\b[A-Za-z]+-?\d[\w.-]*")
_SUBJECT = re.compile(
    r"^(?:The )?(?!User\b|The\b|Users\b)([A-Z][\w-]+)(?:'s|’s| is| was| has| lives| works| likes| uses)\b"
)
# Of these a person has several at once: another value is another fact.
_SEVERAL = re.compile(
    r"\b(?:friends?|colleagues?|sons?|daughters?|child(?:ren)?|kids?|brothers?|sisters?|cousins?"
    r"|nephews?|nieces?"
    r"|uncles?|aunts?|cats?|dogs?|pets?|hobb(?:y|ies)|allerg\w+|languages?|goals?|interests?|skills?|clients?"
    r"|customers?|neighbou?rs?|problems?|books?|exams?|meetings?|appointments?|likes?|loves?|enjoys?"
    r"|dislikes?|hates?|speaks?|plays?|visited|owns?|knows?|finished|bought|met|watched|takes?|avoids?"
    r"|collects?"
    r"|has (?:an?|two|three)|uses?|reads?|learns?|learning|studying|went|attended)\b"
    r"|朋友|同事|儿子|女儿|孩子|兄|弟|姐|妹|猫|狗|宠物|爱好|过敏|喜欢|讨厌|会说|会拉|会弹"
    r"|去了|读完|买了|看了|养|考试|会议"
)
_EVENT = re.compile(
    r"\b(?:visited|went|attended|bought|met|watched|finished|flew|ran|completed|won|lost|presented|gave)\b"
    r"|去了|买了|看了|读完|参加了|完成了|跑了"
)
_CJK_DATE = re.compile(r"\d+ ?[年月日号]|[零一二两三四五六七八九十]++[年月日号]|[今去明后前]年")
# Nobody one works for: when, why, for whom it is convenient.
_NO_EMPLOYER = (
    r"(?! (?:me|us|you|him|them|everyone|everybody|both|all|free|fun|now|home|nights?|noon|lunch|least|times"
    r"|once|(?:my|our|her|his|their)self|(?:a|my) living|(?:the|my) (?:weekends?|moment|best|own)|weekends?"
    r"|\d+|years|months|weeks|hours|ages|long)\b)"
)
# An employer among several has days or hours of its own.
_AT_TIMES = re.compile(
    r"\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days"
    r"|(?:on|every) (?:mon|tues|wednes|thurs|fri|satur|sun)day"
    r"|mornings|afternoons|evenings|weekends|part-time)\b"
)
# What a person has one of: another value replaces.
_ONE = (
    r"(?P<live>\b(?:lives?|living|resides?|is based|moved|relocated|home is)\b (?:in|to|at)\b"
    r"|\b(?:vive|reside) en\b|\bse (?:mudo|traslado) a\b|\b(?:wohnt|lebt) in\b"
    r"|\bist [\w ]{0,20}nach \w+ umgezogen\b"
    r"|\b(?:habite|vit a|a demenage a)\b|住在|搬到|搬去)",
    r"(?P<rise>\b(?:wakes?|gets?) up\b(?: at)?|起床)",
    r"(?P<bed>\b(?:goes|go) to (?:bed|sleep)\b)",
    r"(?P<age>\byears old\b|\bturned \d\d\b|岁)",
    rf"(?P<employer>\b(?:works? (?:at|for)\b{_NO_EMPLOYER}|(?:is|am|'m) employed (?:at|by)\b|joined\b)"
    r"|\barbeitet (?:jetzt |nun )?bei\b(?! (?:regen|nacht|tag|licht|musik|offen\w*|mir|ihm|ihr|uns|sich)\b)"
    r"|\btravaille (?:maintenant |desormais )?chez\b(?! (?:moi|lui|elle|nous|eux|elles|soi)\b)"
    r"|就职于|供职于)",
    r"(?P<boss>\breports? to\b)",
    r"(?P<status>\b(?:single|engaged|married|divorced|widowed)\b|单身|结婚|离婚|订婚|已婚)",
    r"(?P<called>\b(?:wants? to be|prefers? to be|goes by|is) called\b)",
)
_ONE_OF = re.compile("|".join(_ONE))
_COPULA = re.compile(
    r"\b(?:is|are|was|were|will be)\b|(?:现在|目前|如今)?(?:改为|改成|改到|换成|换到|涨到|降到|是|为|叫)"
)
_VALUE = re.compile(
    r"(?:\b(?:is|are|was|were|will be|called|named)\b|改为|改成|改到|换成|换到|涨到|降到|是|为|叫)"
    r"(?: (?:now|currently|called|named|due|scheduled|in|on|for|at|from))* ?"
    r"(?:(?P<number>[£$€¥]?\d|\b(?:January|February|March|April|May|June|July|August|September|October"
    r"|November|December|every|half)\b)|(?P<name>[A-Z][\w-]+)|(?P<kind>an? )"
    r"|(?P<cjk>[\u4e00-\u9fff])|(?P<other>.))"
)
# "Olga is the user's boss"
_TURNED = re.compile(r"^[^,;']{2,40} (?:is|are) (?:the )?user's ([\w -]{3,40})\.?$")
_OWNED = re.compile(r"'s\b|的|\b(?:my|our) |^the \w+")
_PLAN = re.compile(
    r"\b(?:plans?|planning|wants?|hopes?|considering|might|(?<!\d )may(?! \d)|used to|until|visited)\b"
    r"|计划|打算|想|曾经"
)


@dataclass(frozen=True, slots=True)
class Fact:
    text: str  # folded, without the note of its date
    words: frozenset[str]
    numbers: frozenset[str]
    names: frozenset[str]
    negations: int
    several: bool
    event: bool  # something that happened: on another date it happened again
    changed: int  # 0 no cue, 1 weak, 2 strong
    attribute: tuple[str, ...]  # what has one value at a time, () if nothing was recognised
    cjk: bool
    value: str  # the shape of the value that it gets


@lru_cache(maxsize=256)
def read_fact(text: str) -> Fact:
    said = without_note(text)
    folded = plain(said)
    named = without_inner_stops(said)
    names = {m.group() for m in _NAME.finditer(named)} | {m.group(1) for m in _SUBJECT.finditer(said)}
    numbers = frozenset(m.group().replace(",", "")[:12].lower() for m in _NUMBER.finditer(folded))
    return Fact(
        text=folded,
        words=frozenset(t for t in terms(_STRONG_CHANGE.sub(" ", folded)) if _root(t) not in _GLUE),
        numbers=numbers,
        names=frozenset(fold(n) for n in names if not _NUMBER.fullmatch(fold(n)) and fold(n) != "user"),
        negations=len(_NEGATION.findall(folded)),
        several=bool(_SEVERAL.search(folded)),
        event=bool(_EVENT.search(folded)),
        changed=2 if _STRONG_CHANGE.search(folded) else 1 if _WEAK_CHANGE.search(folded) else 0,
        attribute=_attribute(folded),
        cjk=bool(IDEOGRAPH.search(folded)),
        value=_shape(said),
    )


# Words that carry a fact's form, not its matter; pieces of contractions among them.
_GLUE = stems(
    "name call now curren set own every day each t s doesn doesn't don don't isn isn't"
    " won won't can't"
    " 现 在 现在 目 前 目前 已 经 已经 叫"
)


def _root(term: str) -> str:
    """Return what "allergic" and "allergy" share: the first six letters."""
    return term[:6] if term.isascii() and term.isalpha() else term


def _attribute(folded: str) -> tuple[str, ...]:
    """Return what the fact gives a value to, if a person has one such thing at a time: its subject and
    the attribute's words in order; () otherwise."""
    if _PLAN.search(folded):
        return ()
    if one := _ONE_OF.search(folded):
        if one.lastgroup == "employer" and (_AT_TIMES.search(folded) or HABIT.search(folded)):
            return ()
        return (str(one.lastgroup), *_key(folded[: one.start()]))
    if turned := _TURNED.search(folded):
        return ("is", *_key(turned.group(1)))
    copula = _COPULA.search(folded)
    if copula is None or _SEVERAL.search(folded[: copula.start()]):
        return ()
    before = folded[: copula.start()]
    key = _key(before) if _OWNED.search(before) else ()
    return ("is", *key) if key else ()


def _shape(said: str) -> str:
    """Return what kind of word the value is: what follows the copula, or stands before it."""
    if _TURNED.search(fold(said)):
        return "name"
    match = _VALUE.search(said)
    return str(match.lastgroup) if match else "other"


def _key(text: str) -> tuple[str, ...]:
    """Return the words of an attribute in one order: "Lantern's launch" is "the launch of Lantern"."""
    return tuple(
        sorted({t for t in map(_root, terms(_NUMBER.sub(" ", _CJK_DATE.sub(" ", text)))) if t not in _GLUE})
    )
