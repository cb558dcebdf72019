"""Tell whose a fact is: the user's, a relative's, somebody's or something's of a name.

Two facts that begin with one name, or one relative, are compared as if they were the user's. Facts of
different people are never versions of one.
"""

import re

from proxy.background.write_gate.change_words import BEINGS, KIN
from proxy.background.write_gate.reading import Statement, has_matter, read
from proxy.terms import plain

_OWNER = re.compile("(?!用户|我)([^,，的]{2,12})的")  # whose matter a Chinese statement begins with
_SUBJECT = re.compile(
    r"(?!(?:The|An?|This|That|These|Those|There|It|He|She|They|We|My|Our|His|Her|Their|Its|On|In|At|Since|From"
    r"|To|For|By|No|All|Both|Each|Every|Some|Most|Nightly|Daily|Weekly|Monthly|Yearly|Annual|New|Old|First|Last"
    r"|Next|Current|El|La|Los|Las|Le|Les|Un|Une|Una|Mi|Su|Mon|Ma|Mes|Sa|Ses)\b)"
    r"(?:(?:Dr|Mrs?|Ms|Prof)\. )?([A-Z][\w-]+)(?=['’]s\b|,? )"
)
_SUBJECT_ZH = re.compile("[小老阿](?![时区孩板师家人院姨公婆是说友鼠虎])[\u4e00-\u9fff]")  # 小王, not 小区
# Of folded text: "my sister", "user's older sister", "tom's wife", "la hermana del usuario", "用户的妹妹".
_KIN = rf"(?!teams?\b|office\b|company\b|公司|部门|团队)(?:{BEINGS.pattern}|{KIN.pattern})"
_RELATIVE = re.compile(
    rf"(?:my|(?:the )?\w+'s|mein\w*|mi|m[ao]n?) (?:\w+ )?{_KIN}"
    rf"|(?:el|la|le|der|die) {_KIN} (?:del? |de la |de l'|des |der )(?:usuari[oa]|utilisat\w+|nutzer\w*)"
    rf"|(?:用户|我)的?(?:{_KIN})+"
)
_USERS = {  # how the user is called where a relative is spoken of so
    "^(?:用户|我)": "用户",
    "^mein|nutzer": "Der Nutzer",
    "^mi |usuari": "El usuario",
    "^m[ao]n? |utilisat": "L'utilisateur",
    "": "User",
}
_CALLED = re.compile(r" ([A-Z]\w+)(?=[' ,])|([小老阿][\u4e00-\u9fff])")
_IS_JUST = re.compile(
    r"(?:用户是|(?:User|El usuario|L'utilisateur|Der Nutzer) (?:is|was|es|est|ist) )(?!called|named)"
)
_SAME_ZH = re.compile("用户(?:现在|已经|目前)?([上读住开])")  # 孩子上大班, 孩子现在上小学
_NAMES = re.compile(r"\b(?:called|named|name(?: is|'s)|llama|appelle|hei(?:ss|ß)t)\b|叫|名字")
_DOES = re.compile(r"\b(?:lives?|works?|stud(?:y|ies))\b")  # many facts share the word: yet no mere value
_APPOSITION = re.compile(r"^(\w[\w-]+), [^,]{2,60},")  # "Lantern, the new form, is due"


def as_of_the_user(old: str, new: str) -> tuple[str, str]:
    """Return both facts told of the user where both begin with one name, or one relative, else as they are:
    that they are Sam's tells as little of what they are about as that they are the user's. A fact that gives
    nothing but a value ("Lantern is due on 3 May") is about the named thing itself, and stays as it is."""
    first, second = _SUBJECT_ZH.match(old), _SUBJECT_ZH.match(new)
    if first and second and first[0] == second[0]:
        return old.replace(first[0], "用户"), new.replace(first[0], "用户")
    if (ours := _of_one_relative(old, new)) is not None:
        is_value = _IS_JUST.match(ours[0]) is not None and not says_more(read(ours[0]))
        one, other = map(_SAME_ZH.match, ours)
        is_same = (one and other and one[1] == other[1]) or all(map(_NAMES.search, ours))
        return (old, new) if is_value or is_same else ours
    first, second = _SUBJECT.match(old), _SUBJECT.match(new)
    if first is None or second is None or first[1] != second[1]:
        return old, new
    a = read(old)
    if a.is_german or a.is_cjk or a.holder == "user" or not says_more(a):
        return old, new
    name = re.compile(rf"(?<!\w)(?:{re.escape(first[0])}|{re.escape(first[1])})(?!\w)")
    return name.sub("User", old), name.sub("User", new)


def _of_one_relative(old: str, new: str) -> tuple[str, str] | None:
    """Return both facts told of the user where both begin with the same relative, else None."""
    first, second = _relative(old), _relative(new)
    if not first or not second or first[0] != second[0] or (first[1] and second[1] and first[1] != second[1]):
        return None  # of two sisters, too
    user = next(name for of, name in _USERS.items() if re.search(of, first[0]))
    return user + first[2], user + second[2]


def _relative(text: str) -> tuple[str, str, str] | None:
    """Return the relative that the fact begins with, the name that follows, and the rest."""
    told = text.replace("œ", "oe").replace("’", "'")
    match = _RELATIVE.match(plain(told))
    if match is None:
        return None
    rest = told[match.end() :]
    called = _CALLED.match(rest)
    name = called.group() if called else ""
    return re.sub(r"^(?:my|the user's|user's) ", "", match.group()), name, rest.removeprefix(name)


def about_others(old: str, new: str) -> bool:
    """Return whether the facts are about different people: relatives, or somebody or something named."""
    a, b = read(old), read(new)
    shared = any(n in b.text for n in a.names) or any(n in a.text for n in b.names)
    unheard = any(k not in b.text for k in a.kin) or any(k not in a.text for k in b.kin)
    if unheard and not shared:
        return True
    one, other = _OWNER.match(a.text), _OWNER.match(b.text)
    if one and other and one[1] not in other[1] and other[1] not in one[1]:
        return True
    if not a.holder or not b.holder or a.holder == b.holder or "user" in (a.holder, b.holder):
        return False
    return not (set(a.holder.split()) & b.names or set(b.holder.split()) & a.names)


def says_more(a: Statement) -> bool:
    """True if the fact says more of the one that it begins with than a value."""
    matter = has_matter(read(_APPOSITION.sub(r"\1", a.text)).words - a.names)
    return matter or _DOES.search(a.text) is not None
