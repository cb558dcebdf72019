"""Words for those around a user who also have a name: a sister, a boss, the dog, the band.

They stand in `words/roles.txt`, a line for each role. A person may stand in several lines ("partner" and
"husband" may be the same), and a question is then about all of them.

Besides, how a text shows that something in it is somebody's: an owner, a definite article before what
the world has more than one of ("el tatuaje"), a word of somebody's life.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from proxy.gloss import language
from proxy.terms import fold, terms
from proxy.wordlists import sections, words
from proxy.writing_systems import HAN

_LONGEST = 3  # words of a role
_ENDINGS = ("", "s", "es", "n", "nen")  # plurals and genitives
_LANGUAGES = ("en", "zh", "es", "de", "fr")  # the columns of the table
_INDEFINITE = frozenset("a an one un una uno une um uma ein eine einer eines einem einen".split())
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
    said = _WORD.findall(folded)
    phrases = (" ".join(said[i : i + n]) for n in range(1, _LONGEST + 1) for i in range(len(said) - n + 1))
    found = {at for phrase in phrases for at in table.lines.get(phrase, ())}
    if not folded.isascii():
        found.update(at for word in table.unspaced.findall(folded) for at in table.lines[word])
    return tuple(table.roles[at] for at in sorted(found))


def speaks_of_role(text: str, spoken: str, but: frozenset[str] = frozenset()) -> bool:
    """True if the text, in that language, speaks of somebody or something in a role as of one that both sides
    know: "Papa", "la profesora", "the firm". Not of "a teacher", and not by a (folded) word among `but`."""
    folded = fold(text)
    if spoken == "zh":
        return any(m[0] not in but for m in _table().unspaced.finditer(folded))
    names = _table().names[spoken]
    before = ""
    for word in _WORD.findall(folded):
        if word in names and word not in but and before not in _INDEFINITE:
            return True
        before = word
    return False


def is_role(word: str) -> bool:
    """True for a (folded) word that stands for a role, and so is no name."""
    return word in _table().lines


@dataclass(frozen=True, slots=True)
class _Table:
    roles: tuple[Role, ...]
    lines: dict[str, list[int]]  # the roles that a word stands for, by their places
    unspaced: re.Pattern[str]  # any Chinese word
    names: dict[str, frozenset[str]]  # by language: all words of its column


@lru_cache(maxsize=1)
def _table() -> _Table:
    lines: dict[str, list[int]] = {}
    roles = []
    names: dict[str, set[str]] = {name: set() for name in _LANGUAGES}
    for at, line in enumerate(sections("roles")["roles"]):
        english, chinese, *others = line.split("|")
        spaced = [fold(w) for cell in (english, *others) for w in cell.split(",") if w]
        unspaced = [w for w in chinese.split(",") if w]
        for form in (*(word + ending for word in spaced for ending in _ENDINGS), *unspaced):
            lines.setdefault(form, []).append(at)
        for name, cell in zip(_LANGUAGES, line.split("|"), strict=True):
            names[name].update(fold(w) + ending for w in cell.split(",") if w for ending in _ENDINGS)
        roles.append(_role(spaced, unspaced))
    every = sorted((w for w in lines if w > "\u2e80"), key=len, reverse=True)
    columns = {name: frozenset(found) for name, found in names.items()}
    return _Table(tuple(roles), lines, re.compile("|".join(every)), columns)


def _role(spaced: list[str], unspaced: list[str]) -> Role:
    longest = sorted(spaced, key=len, reverse=True)
    whole = rf"(?<!\w)(?:{'|'.join(map(re.escape, longest))})(?:{'|'.join(_ENDINGS[1:])})?(?!\w)"
    pattern = re.compile("|".join([whole, *sorted(unspaced, key=len, reverse=True)]))
    return Role((*spaced, *unspaced), pattern, tuple(dict.fromkeys(terms(" ".join(spaced + unspaced)))))


# ---------------------------------------------------------------- whose it is
ARTICLES = frozenset(
    "el la los las al del le les l au aux der die das den dem im am vom zum zur ins beim il lo gli"
    " o os".split()
)
_ARTICLES_OF_ONE = {"fr": frozenset({"du"}), "de": frozenset({"des"})}
_MAYBE_ARTICLES = ARTICLES.union(*_ARTICLES_OF_ONE.values())
# Articles of one language that are other words in English or German.
_NO_ARTICLE = {"en": frozenset("die den am o os lo le".split()), "de": frozenset("o os la lo le al".split())}
_KINDS = words("world", "kinds")
AFTER_ARTICLE = _KINDS.union(
    *(words("world", name) for name in ("matters", "known names", "of places", "definite", "units"))
)
_MADE = words("world", "works") | words("world", "inventions")
_ELISION = re.compile(r"\b([LlDd])['’](?=\w{2})")
_SPELT = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*")
_SMALL = frozenset("of in at from for and is are on to por de en a y et und in".split())
# Of the roles, those that every question about animals speaks of; and words that are not only roles.
_ROLES_OF_ALL = _KINDS | frozenset(
    "kind server client band group club team mother boy girl child man woman".split()
)
_POSSESSED = re.compile(r"\b(\w{1,40})['’]s (?=[a-z])")
_NO_OWNER = frozenset("what who where when how why it that there let he she here which".split())


def of_somebody(text: str) -> bool:
    """True if the text speaks of a person by a role, without "a", or of what a name owns ("Tom's tattoo")."""
    owners = {fold(owner) for owner in _POSSESSED.findall(text)}
    if owners - _NO_OWNER - AFTER_ARTICLE:
        return True
    spoken = "zh" if HAN.search(text) else language(text) or "en"
    return speaks_of_role(text, spoken, _ROLES_OF_ALL)


def names_their_thing(text: str, *, meant: bool = False) -> bool:
    """True if a definite article stands before a word that is not known to be of the world ("el tatuaje",
    "ins Ferienhaus"). In English, `names_known_thing` tells. `meant`: words as such are spoken of."""
    tokens = words_of(text)
    lower = [fold(t) for t in tokens]
    if not _MAYBE_ARTICLES & set(lower):
        return False
    spoken = language(text) or "en"
    articles = (ARTICLES | _ARTICLES_OF_ONE.get(spoken, frozenset())) - _NO_ARTICLE.get(spoken, frozenset())
    for i, token in enumerate(lower[:-1]):
        if token not in articles:
            continue
        if tokens[i][0].isupper() and (i or meant):
            continue
        noun = tokens[i + 1]
        if not _is_known_noun(lower[i + 1 : i + 3], noun[0].isupper() and spoken != "de"):
            return True
    return False


def _is_known_noun(following: list[str], capital: bool) -> bool:
    """True if the one or two words after an article say something of the world."""
    return capital or following[0] in _SMALL or any(w in AFTER_ARTICLE or w in _MADE for w in following)


def words_of(text: str) -> list[str]:
    """Return the words, elided articles by themselves."""
    return _SPELT.findall(_ELISION.sub(r"\1 ", text))


_LIVED = words("world", "lived")
_THEIRS = frozenset(
    "su sus sa son ses leur leurs seu sua seus suas ihr ihre ihren sein seine seinen suo".split()
)


def is_of_life(text: str) -> bool:
    """True if the (spaced) text holds a word of somebody's life."""
    return any(fold(t) in _LIVED for t in words_of(text))


def is_lived(text: str) -> bool:
    """True if the text holds a word of somebody's life, a relative or another's possessive."""
    held = {fold(t) for t in words_of(text)}
    return bool(held & _LIVED or held & _THEIRS) or of_somebody(text)
