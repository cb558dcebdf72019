"""Check that what a question asks about a person is told of that very person in memory.

"How old is my wife?" comes close to the user's own age. Where memory speaks of the person, but never of
such a thing in the same breath, it does not hold the answer. Which things are checked, and how they are
told, is in `words/things.txt`; allergies are told in any words ("ended up in hospital after a peanut") and
are never checked. A person is recognised by a role ("my wife"), by the names that memories give together
with it, or by a name.
"""

import re
from collections.abc import Callable, Iterator, Sequence, Set

from proxy.gloss import language
from proxy.pipeline.recall.named import Lack, asked_in_english, asks_for_fact, is_advice
from proxy.pipeline.recall.persons import asked_roles, speaks_of
from proxy.pipeline.recall.things import Reading, asked_of_person, reading_for
from proxy.pipeline.roles import Role, roles_in
from proxy.terms import fold

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
    asked = asked_of_person(said)
    if not asked or is_advice(said):
        return None
    reading = reading_for(text)

    def lacks(contents: Sequence[str]) -> bool:
        of_them = _about(text, contents, reading)
        return bool(of_them) and not any(
            thing.told.search(read(content))
            for read in (reading.folded, reading.english)
            for thing in asked
            for content in of_them
        )

    return lacks


def _about(text: str, contents: Sequence[str], reading: Reading) -> list[str]:
    """Return the contents that speak of the person whom the text asks about, under any role or name."""
    told = [(content, reading.folded(content)) for content in contents]
    names, roles = _names(text), asked_roles(text)
    named = _any_of(names)
    by_name = [low for _, low in told if named(low)]
    roles = list(dict.fromkeys([*roles, *(role for low in by_name for role in roles_in(low))]))
    by_role = {content for content, low in told if any(speaks_of(role, low) for role in roles)}
    if not names:
        named = _any_of(
            {name for content, low in told if content in by_role for name in _given(content, low, roles)}
        )
    return [content for content, low in told if content in by_role or named(low)]


def _any_of(names: Set[str]) -> Callable[[str], bool]:
    """Return what says of a (folded) text whether it has one of the names: one pattern, they are many."""
    if not names:
        return lambda folded: False
    spaced = "|".join(re.escape(name) for name in names if name < "\u3400")
    unspaced = "|".join(re.escape(name) for name in names if name > "\u3400")
    pattern = re.compile("|".join(filter(None, (rf"\b(?:{spaced})\b" if spaced else "", unspaced))))
    return lambda folded: pattern.search(folded) is not None


def _names(text: str) -> set[str]:
    """Return the names of persons that a question may hold, folded."""
    # In German every noun has its capital.
    found = {fold(name) for name in _NAME.findall(text)} if language(text) != "de" else set()
    if (han := _HAN_NAME.match(text)) and not set("我你他她们家") & set(han[1]):
        found.add(han[1])
    return found


def _given(content: str, folded: str, roles: Sequence[Role]) -> Iterator[str]:
    """Yield what may be names of the roles in a memory that speaks of them: rather too many."""
    yield from (fold(name) for name in _NAMES_TOLD.findall(content[: len(folded)]) if name not in _NO_NAMES)
    yield from _HAN_NAMES_TOLD.findall(folded)
    for role in roles:
        for _, end in role.places(folded):
            after = folded[end : end + _HAN_WORD]
            if len(after) == _HAN_WORD and after > "\u3400":
                yield after
