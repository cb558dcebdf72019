"""Recognise a question about the world rather than about anybody's life ("How long do hamsters live?").

The rule looks at what is asked about, not at whole phrases. A subject of science or history is nobody's
own, and so is a kind of thing ("cats", "a tomato", 猫) that is the subject of a general question. A name has
to be one that everybody knows: any other may be the user's. One word that belongs to somebody's life ("the
trip", "should", 我们) and the question is searched.

There are three answers: SURE (nothing of the user's can be meant), LIKELY (memory is searched, but only
what comes very near is shown), NO.
"""

import re

from proxy.gloss import language
from proxy.pipeline import roles
from proxy.pipeline.decision.world_zh import of_chinese
from proxy.pipeline.decision.worldly import LONGEST, Worldly
from proxy.terms import fold, plain
from proxy.wordlists import words
from proxy.writing_systems import HAN

_KANA_HANGUL = re.compile("[\u3040-\u30ff\uac00-\ud7af]")
_TOKEN = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*")
_ELIDED = re.compile(r"^(?:l|d|qu|j|c|s|n)['’](?=\w{2})")
NAME = re.compile(r"(?<=[\w,;)%\"“”] )(?:[\"“]?)([A-ZÀ-Þ][\w’'-]+)")


def worldly(text: str) -> Worldly:
    """Return how sure it is that the text asks about the world. Whether it says "my" is not looked at."""
    if len(text) > LONGEST or _KANA_HANGUL.search(text):
        return Worldly.NO
    return of_chinese(text) if HAN.search(text) else _of_spaced(text)


# ---------------------------------------------------------------- scripts with spaces
MATTERS, _KINDS, KNOWN_NAMES = (words("world", name) for name in ("matters", "kinds", "known names"))
_LIVED, _OPENERS = words("world", "lived"), words("world", "openers")
_UNITS, _OF_PLACES = words("world", "units"), words("world", "of places")
# What may be said of a kind in general; not when, who or which: those ask for one of them.
_GENERAL = re.compile(
    r"^\W*(?:(?:please )?(?:explain|describe|define|tell me about|name|list)\b"
    r"|what(?:'s| is| are| do| does| can| makes| causes)\b|how (?:do|does|can|\w+ (?:do|does|can|is|are))\b"
    r"|why (?:do|does|is|are|can)\b|where (?:do|does) .*\b(?:live|come|grow|nest|sleep)\b|(?:do|does|can"
    r"|are)\b|is an?\b"
    r"|(?:los|las|el|la) \w+|(?:pueden?|son|es un\w?|como|cuanto|cuanta|cuantos|cuantas|por que"
    r"|donde viven?|que es|que son"
    r"|a que|explica)\b"
    r"|(?:konnen|durfen|kann|darf|sind|haben|sehen|ist (?:ein|eine|die|der|das)|wie|warum|wieso|wo leben"
    r"|was ist|was sind"
    r"|erklare?|bei welcher)\b"
    r"|(?:les?|la|l'|est-ce que|pourquoi|comment|combien|ou vi\w+|c'est quoi|qu'est-ce que?|explique"
    r"|a quel\w*)\b)"
)
_ASKS_IN_GERMAN = frozenset("wann wie wo wer was warum wieso wieviel welche welcher".split())  # "wann war …"
_WAS = frozenset("did was were had fue fueron hat hatte war waren wurde".split())
_SAME = re.compile(
    r"\bdifferences? between an? [\w ]{2,30} and an? |\bis an? [\w-]+ an? [\w-]+ or an? "
    r"|\bhow many \w+ .*\b(?:on|in) an? "
    r"|\bwhat happens (?:if|when) (?:you|water|ice|an?)\b|\bhow (?:do|does) an? \w+(?: \w+)? (?:work"
    r"|differ)\b"
    r"|\bdiferencia entre una? [\w ]{2,30} y una? "
    r"|\bunterschied zwischen eine[mr] [\w ]{2,30} und eine[mr] "
    r"|\b(?:coupe du monde|copa del mundo|copa mundial|fussball-wm|wm) (?:en |de |von )?\d{4}\b"
    r"|\bdifference entre une? [\w ]{2,30} et une? |\bcomo funciona una? |\bwie funktioniert eine? "
    r"|\bcomment fonctionne une? "
)
_WORK = re.compile(r"\b(?:who (?:is|was) the author of|who wrote|plot of|author of) ([\"“]?[A-Z].*)")
_WHERE_IS = re.compile(
    r"^\W*(?:where (?:is|are)|donde esta|wo liegt|ou (?:est|se trouve)|how (?:high|tall|long|big|deep) is"
    r"|wie (?:hoch|lang|gross|tief) ist|quelle est la (?:hauteur|longueur|superficie) (?:d|du|de|des))\b"
)
WORLD_NAME = re.compile(
    r"\b(?:Mount|Mt\.?|Lake|Cape|Saint|King|Queen|Emperor|Pope|President|Treaty of|Battle of|mont"
    r"|lac)\s+[A-ZÀ-Þ]\w+"
    r"|\b(?:Primera|Segunda) Guerra Mundial\b|\bRevolución [A-Za-z]\w+|\b(?:Première|Seconde"
    r"|Deuxième) Guerre mondiale\b|\bRévolution \w+"
    r"|\bBerliner Mauer\b|\bMuro de Berlín\b|\b[Mm]ur de Berlin\b"
    r"|\b(?:Erste[nr]?|Zweite[nr]?) Weltkrieg|\bWorld War (?:I|II|One|Two|1|2)\b"
    r"|\b[A-Z]\w+ (?:River|Sea|Ocean|Island|Islands|Mountains|Desert|Peninsula|Canyon|Falls|Dynasty|Empire"
    r"|Revolution"
    r"|War|Wall|Cup|Prize|Games|Tower|Bridge|dynasty|empire)\b"
)


def _of_spaced(text: str) -> Worldly:
    tokens = [_ELIDED.sub("", fold(t).replace("’", "'")) for t in _TOKEN.findall(text)]
    held = set(tokens)
    if not tokens or held & _LIVED:
        return Worldly.NO
    folded = plain(text).strip(" ¿¡")
    work = _WORK.search(text)
    if work and len(_TOKEN.findall(work[1])) > 2:
        return Worldly.SURE
    if _names_unknown(text):
        return Worldly.NO
    known = held & KNOWN_NAMES or WORLD_NAME.search(text)
    found = _by_evidence(folded, tokens, held, bool(known))
    return Worldly.NO if found and roles.names_their_thing(text) else found


def _by_evidence(folded: str, tokens: list[str], held: set[str], known: bool) -> Worldly:
    """Return how surely something in the question can only mean the world."""
    if _SAME.search(folded) or len(held & _UNITS) > 1:
        return Worldly.SURE
    happened = bool(held & _WAS)
    if held & MATTERS:
        return Worldly.LIKELY if happened and not known else Worldly.SURE
    asked = held & _OF_PLACES
    if asked == {"war"} and held & _ASKS_IN_GERMAN:
        asked = set()
    if known and (asked or _WHERE_IS.search(folded)):
        return Worldly.SURE
    at = next((i for i, t in enumerate(tokens) if t not in _OPENERS and t not in KNOWN_NAMES), -1)
    if happened or at < 0 or tokens[at] not in _KINDS or not _GENERAL.search(folded):
        return Worldly.NO
    # "Los perros" are dogs or somebody's dogs.
    if at and tokens[at - 1] in _DEFINITE and tokens[at] not in _ONLY_ONE:
        return Worldly.LIKELY if tokens[at - 1] in _PLURAL else Worldly.NO
    return Worldly.SURE


_DEFINITE = frozenset("el la los las der die das den dem le les l'".split())
_ONLY_ONE = frozenset(
    "ciel cielo corps himmel lune mond erde terre tierra sonne soleil corps cuerpo eau agua wasser".split()
)
_PLURAL = frozenset("los las les die".split())


def _names_unknown(text: str) -> bool:
    """True if a word inside the sentence has a capital and is no name that everybody knows."""
    rest = WORLD_NAME.sub(" ", text)
    names = [n for n in NAME.findall(rest) if fold(n).replace("’s", "").removesuffix("'s") not in EVERYBODYS]
    # In German every noun has one; what is asked about must then be of the tables.
    return bool(names) and language(text) != "de"


EVERYBODYS = KNOWN_NAMES | MATTERS | _KINDS | {"i"}


# ---------------------------------------------------------------- names
def names_known(text: str) -> bool:
    """True if the text names somebody or something that everybody knows."""
    return bool(WORLD_NAME.search(text)) or any(fold(t) in KNOWN_NAMES for t in roles.words_of(text))


def names_stranger(text: str) -> bool:
    """True if the text names somebody or something that not everybody knows; in German, where nouns have a
    capital, after "von", "bei" and "für" alone."""
    if language(text) != "de":
        return _names_unknown(text)
    return any(
        fold(n) not in EVERYBODYS and fold(n) not in roles.AFTER_ARTICLE for n in _OF_WHOM.findall(text)
    )


_OF_WHOM = re.compile(r"\b(?:von|bei|für) ([A-ZÄÖÜ][^\W\d_]+)")
