"""Is what the question asks of somebody told of that very person?

"How old is my wife?" comes close to the user's own age, "What is my son allergic to?" to the user's own
allergy. Where memory speaks of the person, and never in the same breath of such a thing, it does not
know. A person goes by a role ("my wife"), by the names that memories give together with it, or by a name.
"""

import re
from collections.abc import Iterator, Sequence

from proxy.gloss import gloss, language
from proxy.pipeline.named import Lack, asked_in_english, asks_for_fact, is_advice
from proxy.pipeline.persons import asked_roles, speaks_of
from proxy.pipeline.roles import Role, roles_in
from proxy.terms import fold

_NUMBER = (
    r"\d|[一二三四五六七八九十两]|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)\b"
)
# How a thing is asked for, and the words with which it is told: in English, or in the gloss.
_ROWS = tuple(
    (re.compile(asked), re.compile(told))
    for asked, told in (
        (r"\bhow old\b|\bwhat age\b|\bage is\b", rf"{_NUMBER}|\bborn\b|\bbirth|\bbaby"),
        (
            r"\b(?:birthday|born)\b",
            r"\bbirth|\bborn\b|\bturn|\bcelebrat|\bfeier|\bnaci|\bgeboren|生日|出生|大寿",
        ),
        (
            r"\ballerg",
            r"\ballerg|intoleran|\breact|\bcannot (?:eat|have)|\bcan't|c?oeliac|celiac|\bswell|\bepipen"
            r"|\brash|hives|itch|sneez|wheez|\bavoid|\bsick|\bill\b|without|\bsienta|\bvertrag|\bsupporte|不能(?:吃|碰)|起疹",
        ),
        (
            r"\b(?:phone|mobile|telephone|wechat|微信号|e-?mail)\b|电话|手机",
            r"phone|mobile|电话|手机|微信|@|\d{6}|\breach|\d{3,}[ -]\d{3}",
        ),
        (
            r"\bwhat (?:\w+ )?(?:medicine|medication|pills?|drug)\b",
            r"medic|pill|drug|\bmg\b|tablet|tak|prescri|insulin|swallow|inhal|drops|片|药",
        ),
        (
            r"\bblood (?:type|group|pressure)\b",
            r"blood|pressure|hypertens|\bgroup(?:e|o)? (?:a|b|ab|o)\b|型|\brh\b"
            r"|\b(?:a|b|ab|o)[ -]?(?:pos|neg|\+)",
        ),
    )
)
_NAME = re.compile(r"(?<=[\w,] )[A-Z][a-zà-ÿ]{2,}")
_NAMES_TOLD = re.compile(r"\b[A-Z][a-zà-ÿ]{2,}")
_NO_NAMES = frozenset("User The This His Her Their".split())
_HAN_NAME = re.compile("^([\u3400-\u9fff]{2,3}?)(?:在|的|对|是|今年|多大|几岁|去|属|生日)")
_HAN_NAMES_TOLD = re.compile("(?:叫|姓|是)([\u3400-\u9fff]{2,3})")
_HAN_WORD = 2  # characters of a Chinese name after a role, at least


def untold(text: str) -> Lack | None:
    """Return what says that memories speak of the person of whom the text asks something, and none of those
    tells it; None if it asks nothing of the table."""
    if not asks_for_fact(text):
        return None
    said = asked_in_english(text)
    asked = [told for asks, told in _ROWS if asks.search(said)]
    if not asked or is_advice(said):
        return None

    def lacks(contents: Sequence[str]) -> bool:
        of_them = list(_about(text, contents))
        return bool(of_them) and not any(told.search(read) for told in asked for read in map(_read, of_them))

    return lacks


def _read(content: str) -> str:
    """Return the content as it stands and in English, without the dates on which it was said."""
    return f"{fold(content)}\n{fold(gloss(content).text)}"


def _about(text: str, contents: Sequence[str]) -> Iterator[str]:
    """Yield the contents that speak of the person whom the text asks about, under any role or name."""
    told = [(content, fold(content)) for content in contents]
    names, roles = _names(text), asked_roles(text)
    named = [(content, low) for content, low in told if any(_names_them(name, low) for name in names)]
    roles = [*roles, *(role for _, low in named for role in roles_in(low))]
    if not names:
        names = {
            name
            for content, low in told
            if any(speaks_of(role, low) for role in roles)
            for name in _given(content, low, roles)
        }
    for content, low in told:
        if any(_names_them(name, low) for name in names) or any(speaks_of(role, low) for role in roles):
            yield content


def _names_them(name: str, folded: str) -> bool:
    return name in folded and (name > "\u3400" or re.search(rf"\b{re.escape(name)}\b", folded) is not None)


def _names(text: str) -> set[str]:
    """Return the names of persons that a question may hold, folded."""
    # In German every noun has its capital.
    found = {fold(name) for name in _NAME.findall(text)} if language(text) != "de" else set()
    if (han := _HAN_NAME.match(text)) and not set("我你他她们家") & set(han[1]):
        found.add(han[1])
    return found


def _given(content: str, folded: str, roles: Sequence[Role]) -> Iterator[str]:
    """Yield what may be names of the roles in a memory that speaks of them: rather too many."""
    yield from (fold(name) for name in _NAMES_TOLD.findall(content) if name not in _NO_NAMES)
    yield from _HAN_NAMES_TOLD.findall(content)
    for role in roles:
        for _, end in role.places(folded):
            after = folded[end : end + _HAN_WORD]
            if len(after) == _HAN_WORD and after > "\u3400":
                yield after
