"""Find the name that a text gives to a role: "User's sister is called Marta", "Mr. Abiola, the landlord".

A capitalised word near a role is no name yet: German capitalises every noun, and a sister may be in Leeds. So
what stands between the role and the name must say so: nothing at all ("sister Marta"), a comma, or a verb of
naming right before the name ("from school is Jorinde"). Chinese names are known by 叫 or by their surname.
"""

import re
from dataclasses import dataclass

from proxy.overlap import searchable
from proxy.pipeline.roles import is_role
from proxy.terms import fold

_NEAR_CHARS = 60  # between the role and the name
_MOST_BEFORE = 4  # words between a name and the role that follows it: "is the user's older sister"
_SHORTEST = 3  # letters of a name said in part

_UPPER = "A-ZÀ-ÖØ-ÞĀ-Ž"
_NAME = re.compile(
    rf"(?<![\w'’])[{_UPPER}][\w'’-]*(?: (?:(?:de|of|the|van|von|la|del) )*[{_UPPER}][\w'’-]*)*"
)
_TITLES = (
    "mr|mrs|ms|miss|dr|prof|professor|doctor|frau|herr|mme|madame|monsieur|don|dona|sr|sra|senor|senora"
    "|the|el|la|los|las|un|una|der|die|das|den|dem|le|les|une|a|an|l"
)
_NO_NAME = frozenset(_TITLES.split("|")) | frozenset(
    "user users usuario usuaria nutzer nutzers nutzerin utilisateur utilisatrice he she his her".split()
)
_NAMING = (
    "called|named|nicknamed|titled|name is|names are|is|are|was"
    "|llamad[oa]s?|llaman?|nombre es|es|son|era"
    "|heisst|heissen|namens|genannt|name ist|ist|sind|war"
    "|s'appell\\w+|appelee?s?|nommee?s?|nom est|est|sont|etait"
)
# "la hermana de la usuaria se llama": whose sister she is stands between the role and the name.
_OWNER = re.compile(
    r"\b(?:of|de|des|du|der|von|d['’])?\s*(?:the|la|el|l['’])?\s*"
    r"\b(?:users?|usuari[oa]|nutzers?|nutzerin|utilisat(?:eur|rice))\b"
)
_LEADS_TO_NAME = re.compile(rf"(\b(?:{_NAMING})\b)?\W*(?:\b(?:{_TITLES})\b\W*)*$")
_LEADS_TO_ROLE = re.compile(r"\s*(?:[,(–-]|(?:is|was|are|es|era|ist|war|est|etait)\b)")
_AND = re.compile(r"\s*(?:,|&|,? ?\b(?:and|y|e|und|et))\s*")

_HAN = "\u3400-\u9fff"
# The hundred that four in five people bear.
_SURNAMES = (
    "王李张刘陈杨赵黄周吴徐孙胡朱高林何郭马罗梁宋郑谢韩唐冯于董萧程曹袁邓许傅沈曾彭吕苏卢蒋蔡贾丁魏薛叶阎余潘杜戴"
    "夏钟汪田任姜范方石姚谭廖邹熊金陆郝孔白崔康毛邱秦江史顾侯邵孟龙万段雷钱汤尹黎易常武乔贺赖龚文"
)
_CALLED = re.compile(rf"(?:叫做|叫作|叫|名字是)([{_HAN}]{{2,4}}?)(?=[,，。;；、的和在是今]|$)")
_SURNAMED = re.compile(rf"(?:是|[:：,，])?([{_SURNAMES}][{_HAN}]{{1,2}}|[老小阿][{_HAN}])")
_TITLED = re.compile(rf"(?:是|[:：,，])?([{_SURNAMES}](?:老师|医生|教练|先生|女士|阿姨|师傅|律师|经理|总))")
_BEFORE_TITLE = re.compile(rf"[{_SURNAMES}老小][{_HAN}]?$")


@dataclass(frozen=True, slots=True)
class Name:
    """A name as it may be said elsewhere: in full, or by one of its words. All forms are searchable text."""

    forms: tuple[str, ...]

    @property
    def pattern(self) -> re.Pattern[str]:
        """Finds the name as whole words, in searchable text."""
        return re.compile("|".join(map(_whole, self.forms)))


def names_of(content: str, start: int, end: int) -> list[Name]:
    """Return the names by which the content calls the role that stands from `start` to `end` of it."""
    if content[start:end] > "\u2e80":
        found = _unspaced(content, start, end)
    else:
        found = _after(content, end) or _before(content, start)
    return [Name(forms) for name in found if (forms := _forms(name))]


def _after(content: str, end: int) -> list[str]:
    """Return the name that follows the role, with those that "and" joins to it."""
    names: list[str] = []
    last = end
    for match in _NAME.finditer(content, end, end + 2 * _NEAR_CHARS):
        name = _bare(match.group())
        between = searchable(content[last : match.start()])
        if names:
            if not name or not _AND.fullmatch(between):
                break
        elif not name or not _leads(searchable(content[end : match.start()])):
            continue
        names.append(name)
        last = match.end()
    return names


def _leads(between: str) -> bool:
    """True if what stands between a role and a name says that it is the role's."""
    found = _LEADS_TO_NAME.search(_OWNER.sub("", between))
    # Without a verb of naming, titles are all that may stand there: not "sister met Dr. Papadaki".
    return bool(found and (found[1] or found.start() == 0))


def _before(content: str, start: int) -> list[str]:
    """Return the name before the role: "Marta, User's sister", "Marta is the user's sister"."""
    for match in reversed([*_NAME.finditer(content, max(0, start - _NEAR_CHARS), start)]):
        between = fold(content[match.end() : start])
        if (name := _bare(match.group())) and _LEADS_TO_ROLE.match(between):
            return [name] if len(between.split()) <= _MOST_BEFORE else []
    return []


def _bare(name: str) -> str:
    """Return the name without titles and without the user: "" where nothing is left."""
    words = re.sub(r"['’]s?(?!\w)", "", name).split()
    return " ".join(w for w in words if fold(w) not in _NO_NAME and not is_role(fold(w)))


def _unspaced(content: str, start: int, end: int) -> list[str]:
    after = content[end : end + _NEAR_CHARS]
    if found := _CALLED.search(after) or _TITLED.match(after) or _SURNAMED.match(after):
        return [found[1]]
    before = _BEFORE_TITLE.search(content[max(0, start - 2) : start])
    # One character is a name only with its title: 罗老师.
    return [before[0] + (content[start:end] if len(before[0]) == 1 else "")] if before else []


def _forms(name: str) -> tuple[str, ...]:
    said = searchable(name)
    if said > "\u2e80":
        # Without the surname, or without a character that may belong to the next word.
        return (said, said[:2], said[1:]) if len(said) == 3 and not _TITLED.match(said) else (said,)
    words = said.split()
    return tuple(dict.fromkeys(form for form in (said, words[0], words[-1]) if len(form) >= _SHORTEST))


def _whole(form: str) -> str:
    return re.escape(form) if form > "\u2e80" else rf"(?<!\w){re.escape(form)}(?:['’]?s)?(?!\w)"
