"""Decide what a fact is about, and which earlier fact it therefore replaces.

The question is always the same: two facts with one subject, do they hold side by side ("my sister is a
doctor", "my sister is tall") or is the later one the new state ("my budget is …")?
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from proxy.text.terms import normalise

_SINCE = r"(?:currently |now |just |recently |actually )*"
# Facts of these forms have one value at a time, whatever their words.
_SLOTS = (
    (
        "home",
        rf"User (?:and their \w+ )?{_SINCE}(?:lives?|is living|is based|moved|relocated)\b.*? (?:in|to|at) ",
    ),
    ("employer", rf"User {_SINCE}(?:works?|is working|started working)\b.*? (?:at|for) [A-Z]"),
    ("employer", rf"User {_SINCE}(?:joined|started at) [A-Z]"),
    ("name", r"User's (?:first |full |last )?name is |User is called "),
    ("called", r"User wants to be called "),
    ("age", r"User is \d{1,3}(?: years old)?$"),
    (
        "answer language",
        r"User wants the assistant to (?:always )?(?:answer|reply|respond|speak|write)\b.* in [A-Z]",
    ),
    ("home", r"用户(?:现在|已经)?(?:住在|搬到|搬去)"),
    ("name", r"用户(?:的名字)?叫"),
    ("answer language", r"用户希望助手以后.*(?:中文|英文|英语|日语|法语|德语)"),
)
_SUBJECT = re.compile(
    r"(?P<subject>User's .+?) (?:is|are|was|were|will be|costs?|starts?|leaves|ends|begins|moved|has|have)\b"
    r"|(?P<subject_zh>用户的.+?)(?:是|为|改成|改为|变成|改到)"
)
# Subjects with one value at a time: a new value is a change, not a further fact.
_ATTRIBUTE = re.compile(
    r"\b(?:budget|name|age|address|favou?rite|job|role|title|employer|boss|company|city|deadline|meeting|flight"
    r"|appointment|email|number|birthday|size|weight|height|salary|rent|phone|car|editor|language|limit|goal"
    r"|plan|destination|hotel|seat|date|time|timezone|diet|hometown|colou?r)\b"
    r"|预算|名字|生日|地址|工作|公司|电话|航班|截止|目标",
    re.IGNORECASE,
)
_CHANGE = re.compile(
    r"\b(?:now|actually|no longer|any ?more|instead|changed|switched|correction|update)\b"
    r"|现在|改成|改为|变成|不再",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Known:
    """A memory that the extraction prompt lists."""

    id: str
    content: str


def subject_of(content: str) -> str:
    """Return what the fact is about, normalised; "" where its form does not tell."""
    for name, pattern in _SLOTS:
        if re.match(pattern, content):
            return name
    return normalise(_subject(content))


def knows_subject(content: str, known: Sequence[Known]) -> bool:
    """Return whether a known fact is about the same, or about the same more fully named."""
    short = normalise(_subject(content))
    return bool(short) and any(normalise(k.content).startswith(short + " ") for k in known)


def with_context(content: str, known: Sequence[Known]) -> str:
    """Return the fact under the fuller subject of the one known fact that it must mean.

    "User's budget is $12,000" after "User's budget for the Hawaii trip is …" is about that trip.
    """
    subject = _subject(content)
    if not _ATTRIBUTE.search(subject):
        return content
    short = normalise(subject)
    subjects = {normalise(s): s for k in known if (s := _subject(k.content))}
    fuller = [s for folded, s in subjects.items() if folded.startswith(short + " ")]
    if len(fuller) != 1 or short in subjects:
        return content
    return fuller[0] + content[len(subject) :]


def replaced(content: str, clause: str, known: Sequence[Known]) -> str | None:
    """Return the id of the known memory whose state this fact changes."""
    subject = subject_of(content)
    if not subject or any(normalise(m.content) == normalise(content) for m in known):
        return None
    single = bool(_ATTRIBUTE.search(subject)) or subject in {name for name, _ in _SLOTS}
    for memory in known:
        # A value in figures does not replace one in words: "my dog is Rex", "my dog is now 5".
        alike = _has_figures(content) == _has_figures(memory.content)
        if subject_of(memory.content) == subject and alike and (single or _CHANGE.search(clause)):
            return memory.id
    return None


def _subject(content: str) -> str:
    match = _SUBJECT.match(content)
    return (match["subject"] or match["subject_zh"]) if match else ""


def _has_figures(content: str) -> bool:
    return any(c.isdigit() for c in content)
