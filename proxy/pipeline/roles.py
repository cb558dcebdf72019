"""Words for those around a user who also have a name: a sister, a boss, the dog, the band.

They stand in `words/roles.txt`, a line for each role. A person may stand in several lines ("partner" and
"husband" may be the same), and a question is then about all of them.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from proxy.terms import fold, terms
from proxy.wordlists import sections

_LONGEST = 3  # words of a role
_ENDINGS = ("", "s", "es", "n", "nen")  # plurals and genitives
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")


@dataclass(frozen=True, slots=True)
class Role:
    """A role. `words`: all its names, folded. `terms`: what to look up for them."""

    words: tuple[str, ...]
    pattern: re.Pattern[str]
    terms: tuple[str, ...]

    def places(self, folded: str) -> list[tuple[int, int]]:
        """Return from where to where the (folded) text names the role."""
        # Looking for each word is quicker than the pattern, and in most texts there is none.
        if not any(word in folded for word in self.words):
            return []
        return [match.span() for match in self.pattern.finditer(folded)]


def roles_in(text: str) -> tuple[Role, ...]:
    """Return the roles that the text speaks of, in any of the five languages."""
    table = _table()
    folded = fold(text)
    words = _WORD.findall(folded)
    phrases = (" ".join(words[i : i + n]) for n in range(1, _LONGEST + 1) for i in range(len(words) - n + 1))
    found = {at for phrase in phrases for at in table.lines.get(phrase, ())}
    if not folded.isascii():
        found.update(at for word in table.unspaced.findall(folded) for at in table.lines[word])
    return tuple(table.roles[at] for at in sorted(found))


def is_role(word: str) -> bool:
    """True for a (folded) word that stands for a role, and so is no name."""
    return word in _table().lines


@dataclass(frozen=True, slots=True)
class _Table:
    roles: tuple[Role, ...]
    lines: dict[str, list[int]]  # the roles that a word stands for, by their places
    unspaced: re.Pattern[str]  # any Chinese word


@lru_cache(maxsize=1)
def _table() -> _Table:
    lines: dict[str, list[int]] = {}
    roles = []
    for at, line in enumerate(sections("roles")["roles"]):
        english, chinese, *others = line.split("|")
        spaced = [fold(w) for cell in (english, *others) for w in cell.split(",") if w]
        unspaced = [w for w in chinese.split(",") if w]
        for form in (*(word + ending for word in spaced for ending in _ENDINGS), *unspaced):
            lines.setdefault(form, []).append(at)
        roles.append(_role(spaced, unspaced))
    every = sorted((w for w in lines if w > "\u2e80"), key=len, reverse=True)
    return _Table(tuple(roles), lines, re.compile("|".join(every)))


def _role(spaced: list[str], unspaced: list[str]) -> Role:
    longest = sorted(spaced, key=len, reverse=True)
    whole = rf"(?<!\w)(?:{'|'.join(map(re.escape, longest))})(?:{'|'.join(_ENDINGS[1:])})?(?!\w)"
    pattern = re.compile("|".join([whole, *sorted(unspaced, key=len, reverse=True)]))
    return Role((*spaced, *unspaced), pattern, tuple(dict.fromkeys(terms(" ".join(spaced + unspaced)))))
