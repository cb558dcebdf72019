"""Recognise questions for the origin of a public work or invention: who wrote, painted or invented it, and
when.

The same wording fits a cathedral and the user's kitchen, so what is asked about has to be public, which its
name shows.
"""

import re

from proxy.pipeline import roles
from proxy.pipeline.decision.world import EVERYBODYS, KNOWN_NAMES, MATTERS, NAME, WORLD_NAME
from proxy.pipeline.decision.worldly import LONGEST
from proxy.terms import fold, plain
from proxy.wordlists import words

# Forms that fit a cathedral and a kitchen: what is asked about has to be of the world, seen by its name.
_AUTHOR = re.compile(
    r"(?i:\bqui[eé]n (?:escribió|escribio|pintó|pinto|compuso)|\bqui a (?:écrit|ecrit|peint|composé|compose)"
    r"|\bwho (?:painted|composed)|\bquem (?:escreveu|pintou)|\bchi ha (?:scritto|dipinto)"
    r"|\bwer (?:malte|komponierte|schrieb)|\bwer hat(?=[^?]{1,80} (?:geschrieben|gemalt|komponiert)\b))"
    r" (?P<work>[^?\n]{1,80})"
)
_DONE = re.compile(r" (?:geschrieben|gemalt|komponiert)\b.*")
_ORIGIN = re.compile(
    r"\bwho (?:discovered|invented)\b|\bwh(?:en|ere) was the \w+(?: \w+)? (?:invented|discovered)\W*$|"
    r"\bquien (?:invento|descubrio)\b|\bcuando se (?:invento|descubrio)\b"
    r"|\bwer (?:erfand|entdeckte)\b|\bwer hat [^?]{1,60} (?:erfunden|entdeckt)\b"
    r"|^wann wurden? [^?]{1,60} (?:erfunden|entdeckt)\b|\bqui a (?:invente|decouvert)\b"
    r"|^quand [^?]{1,40} ete (?:inventee?|decouverte?)s?\b|\bquem (?:inventou|descobriu)\b"
    r"|\bchi ha (?:inventato|scoperto)\b"
)
_YEAR = re.compile(r"\b(?:en que ano|in welchem jahr|en quelle annee|em que ano|in che anno)\b")
_STEMS = (
    "escrib escrev pint compus compos ecrit peint painted scritto dipint malt komponier schr invent discover"
    " descub descob erf entdeck decouv scopert ano jahr annee anno"
).split()
_WORKS, _INVENTIONS = words("world", "works"), words("world", "inventions")
_TOWARDS = frozenset("a en in nach aus au aux to from in na no nel".split())


def of_nobody(text: str) -> bool:
    """True if the text asks who wrote, painted or invented something, or in which year it was, and that can
    only be something of the world: by its title or by a word that all know."""
    folded = plain(text)
    # Looking for their stems is quicker than the patterns, and in most questions there is none.
    if len(text) > LONGEST or not any(stem in folded for stem in _STEMS):
        return False
    if work := _AUTHOR.search(text):
        german = work[0].lower().startswith("wer")
        return _is_work(_DONE.sub("", work["work"]).strip(), german)
    origin = _ORIGIN.search(folded)
    if not origin and not _YEAR.search(folded):
        return False
    rest = WORLD_NAME.sub(" ", text)
    if roles.is_lived(text) or not _all_known(rest) or roles.names_their_thing(rest):
        return False
    return rest != text or _is_evident([fold(t) for t in roles.words_of(rest)], bool(origin))


def asks_origin(folded: str) -> bool:
    """True if the folded text asks who invented or discovered something, or when."""
    return any(stem in folded for stem in _STEMS) and bool(_ORIGIN.search(folded))


def _is_evident(tokens: list[str], origin: bool) -> bool:
    """True if a word that all know is no place where, but what is asked about."""
    known = KNOWN_NAMES | MATTERS | (_INVENTIONS if origin else frozenset())
    return any(t in known and (not i or tokens[i - 1] not in _TOWARDS) for i, t in enumerate(tokens))


def _is_work(said: str, german: bool) -> bool:
    """True for a title: in quotes, with a capital article, of several words of which the first has a capital
    (not in German, where nouns have one), or known to all."""
    said = said.strip(" .!¿¡")
    if re.match(r"[\"“„«»‘']", said):
        return True
    tokens = roles.words_of(said)
    lower = [fold(t) for t in tokens]
    if len(tokens) < 4 and (" ".join(lower[-2:]) in _WORKS or (lower[-1:] and lower[-1] in _WORKS)):
        return True
    if len(tokens) < 2 or not tokens[0][0].isupper():
        return False
    if lower[0] in roles.ARTICLES:
        return not roles.of_somebody(said)
    return not german and not roles.names_their_thing(said) and not roles.is_lived(said)


def _all_known(text: str) -> bool:
    names = (fold(n).replace("’", "'").removesuffix("'s") for n in NAME.findall(text))
    return all(n in EVERYBODYS or n in _INVENTIONS or n in roles.AFTER_ARTICLE for n in names)
