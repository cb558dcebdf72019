"""Recognise a question for what an encyclopedia holds ("unterschied gneis granit", "moneda de suecia").

The rule decides word by word, as in `public`, and covers the short questions without capitals, verbs and
articles that people type: every word must ask, or belong to public knowledge (`words/knowledge.txt`). One
word that does neither may belong to the user's life, and the question is left to the other rules. What
people also have at home ("bread", "a violin") counts only where such things in general are meant. Whether
the question says "my" is checked in `decide`.
"""

import re

from proxy.gloss import language
from proxy.terms import plain
from proxy.wordlists import any_of, words

_LONGEST = 90  # characters; a longer question tells a story
_WORD = re.compile(r"[^\W_]+(?:[-'][^\W_]+)*")
_ELIDED = re.compile(r"(?:l|d|qu|n|s|c|j|m|t)'(?=\w{2})")
_CONTRACTED = re.compile(r"\b(how|what|where|when|who|why)'?s\b|\b(gibt|geht)'s\b")

_ASKS, _PARTS, _THINGS, _STUFFS, _KINDS, _SPORTS = (
    words("knowledge", name) for name in ("asks", "parts", "things", "stuffs", "kinds", "sports")
)
_RELATIONS, _PLACES, _PLACE_GLUE, _PERSONS, _PERSON_GLUE = (
    words("knowledge", name) for name in ("relations", "places", "place glue", "persons", "person glue")
)
_PLACE_NAMES = words("world", "known names") | _PLACES
_KNOWN = _ASKS | _PARTS | _THINGS | _STUFFS | _KINDS | _SPORTS | _RELATIONS | _PLACE_NAMES | _PLACE_GLUE
_MEASURES, _OF_BODIES, _BETWEEN, _AROUND, _CITIES = (
    words("knowledge", name)
    for name in ("measures", "measures of a body", "between places", "around places", "cities")
)
_BY_NATURE, _COUNTED_BETWEEN = (
    words("knowledge", name) for name in ("rivers and mountains", "counted between places")
)
_FROM_TO = frozenset("between from entre zwischen von desde depuis difference diferencia".split())
_IN_ATLAS = _PLACE_NAMES | _CITIES | _BY_NATURE
_OF_ATLAS = _ASKS | _RELATIONS | _MEASURES | _OF_BODIES | _BETWEEN | _COUNTED_BETWEEN | _AROUND | _PLACE_GLUE
# Where the user is, was or goes: "how far now", "far from here".
_OF_THEM = frozenset(
    "here there now away left take drive walk get go get gets going hier da jetzt weg noch aqui alli ahora"
    " ici la-bas maintenant you they this it cost costs open closed cuando wann quand when who wer quien qui"
    " born died lived nacio murio live lives one much cost invented wrote written work works".split()
)
_HISTORY = re.compile(rf"\b{any_of('knowledge', 'history')}(?!\w)")

# Of one of them, in somebody's life: where it is, when, who has it.
_OF_ONE = frozenset("who whose when where quien quienes cuando donde wer wem wen wann wo wohin quand".split())
_WAS = frozenset("were did had fue fueron era war waren hatte wurde etait fut".split())
_TOLD = _WAS | frozenset(
    "was when cuando wann quand nacio murio born died geboren gestorben starb nee mort morte wrote painted"
    " composed invented escribio pinto compuso invento descubrio llego schrieb malte ecrit peint".split()
)
_COUNTED = frozenset(
    "much many viel viele wieviel wieviele cuanto cuanta cuantos cuantas combien nombre number".split()
)
_GENERALLY = frozenset(
    "why how por como warum wie wieso weshalb woraus wozu pourquoi comment difference differences differ"
    " diferencia diferencias diferencian unterschied unterschiede vs versus vergleich distinguer distingue"
    " composition zusammensetzung gehort".split()
)
_IS = frozenset(("what is", "que es", "q es", "was ist", "was isn", "c'est quoi", "cest quoi", "c quoi"))
_DEFINITE = frozenset(
    "the this that el la los las del al der die das den dem des zum zur im le les l au aux du".split()
)
_AT = frozenset("au im".split())
_INDEFINITE = frozenset("a an un una ein eine einen einem einer eines une".split())
_TEAMS = frozenset("team teams mannschaft equipo equipe".split())
_CAPITAL = re.compile(r"(?<=[\w,;] )(?:[ldLD]['’])?[A-ZÀ-Þ][a-zà-ÿ][\w-]*")
_NAMELESS = (_THINGS | _KINDS | _STUFFS | _PARTS) - _PLACE_NAMES


def is_knowledge(text: str) -> bool:
    """True if every word of the text asks or is of the world, and nobody's one thing can be meant."""
    if len(text) > _LONGEST:
        return False
    folded = _CONTRACTED.sub(r"\1\2", plain(text))
    rest = _HISTORY.sub(" ", folded)
    said = [_ELIDED.sub("", word) for word in _WORD.findall(rest)]
    held = frozenset(said)
    if held & _PERSONS:
        return bool(held & _TOLD) and held <= _ASKS | _PERSONS | _PERSON_GLUE | _PLACE_NAMES | _PLACE_GLUE
    if _is_of_atlas(said, held):
        return True
    if not said or not held <= _KNOWN or _is_named(text):
        return False
    if rest != folded:
        return _is_of_nobody(said, held)
    if held & _OF_ONE:
        return False
    if held & (_THINGS | _SPORTS | _KINDS | _STUFFS):
        return not (held & _WAS and held & _DEFINITE) and _is_of_nobody(said, held)
    return bool(held & _PLACE_NAMES and held & _RELATIONS)


def _is_of_atlas(said: list[str], held: frozenset[str]) -> bool:
    """True if nothing but a measure of a place is asked, or how far two places are from each other."""
    if held.isdisjoint(_IN_ATLAS) or held & _OF_THEM or not held <= _OF_ATLAS | _IN_ATLAS:
        return False
    places = sum(word in _IN_ATLAS for word in said)
    if places > 1 and (held & _BETWEEN or (held & _COUNTED_BETWEEN and held & _FROM_TO)):
        return True
    # "How tall is Florence?" may be asked of a girl, of the Teide not.
    of_nature = held & _BY_NATURE and held & _OF_BODIES
    return bool(of_nature or held & _MEASURES or (held & _PLACE_NAMES and held & _RELATIONS))


def _is_named(text: str) -> bool:
    """True if a word of the tables is written as a name ("What is Jupiter written in?")."""
    if language(text) == "de":
        return False  # every noun has a capital there
    return any(_ELIDED.sub("", plain(name)) in _NAMELESS for name in _CAPITAL.findall(text))


def _is_of_nobody(said: list[str], held: frozenset[str]) -> bool:
    """True unless what people have at home is meant as one that both sides know, or as somebody's stock."""
    stock, one = bool(held & _COUNTED), bool(held & _INDEFINITE)
    if held & _STUFFS and (stock or not held & _GENERALLY):
        return False
    for before, word in zip(["", *said], said, strict=False):
        if word in _KINDS | _TEAMS and before in _DEFINITE:
            return False
        if word in _SPORTS and before in _DEFINITE - _AT:
            return False
    if not held & _KINDS:
        return True
    if held & _WAS or (stock and not one):
        return False
    several = len(held & _KINDS) > 1
    return one or several or bool(held & _GENERALLY) or " ".join(said[:2]) in _IS
