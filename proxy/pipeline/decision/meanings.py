"""Recognise questions for definitions and differences: what a word means, what a thing is, how two kinds
differ ("was heißt legato", "difference between jam and jelly").

The rule accepts a word that is asked for as such, and a kind of thing, with an indefinite article or none.
What people label for themselves ("plan A and plan B", "the red tags": `words/meanings.txt`, [labelled]),
and what has a name or a definite article, is theirs, so memory is searched.
"""

import re

from proxy.pipeline.decision.world import names_stranger
from proxy.pipeline.decision.world_zh import zh_lived
from proxy.pipeline.roles import AFTER_ARTICLE, is_lived, is_of_life, names_their_thing, of_somebody
from proxy.terms import plain
from proxy.wordlists import any_of, words
from proxy.writing_systems import HAN

_LONGEST = 110  # characters; a longer question tells a story
_LONGEST_SIDE = 4  # words of each of two that are compared
_WORD = re.compile(r"[^\W_]+(?:[-'][^\W_]+)*")
_LABELLED, _CLAUSES = words("meanings", "labelled"), words("meanings", "clauses")
_ARTICLES = frozenset("the el la los las der die das den dem le les".split())
_SMALL = frozenset("a an un una eine ein einen einem einer une des de d and y und et of in".split())

# ---------------------------------------------------------------- what a word means
_MEANING = re.compile(
    r"(?i:\bqué significan?|\bque significan?|\bqu[eé] quiere decir|\bwas bedeutet|\bwas hei(?:ß|ss)t"
    r"|\b[cç]a veut dire quoi|\bque (?:signifie|veut dire)|\bo que significa"
    r"|\b(?:che )?cosa significa|\bwhat do(?:es)?) (?P<term>[^?\n]{1,60})"
)
_MEANING_BEHIND = re.compile(
    r"(?i:^\W*+(?P<term>[^?\n,:]{2,40}?),? (?:meaning|[cç]a veut dire quoi|[cç]a signifie quoi"
    r"|qu[eé] significa"
    r"|qu[eé] quiere decir|was (?:hei(?:ß|ss)t|bedeutet) das)\W*$)"
)
# "the word serendipity", "de facto", GDP, "ubiquitous"; in other languages than English a name is no word.
_TERM = re.compile(
    r"(?i:the (?:word|term|abbreviation|acronym|phrase|prefix|symbol|idiom|latin|expression) "
    r"|l[ae] (?:palabra|expresión|sigla) |el (?:acrónimo|término|símbolo) "
    r"|das wort |der (?:begriff|ausdruck) |die abkürzung "
    r"|le (?:mot|terme|sigle) |l['’](?:expression|acronyme|abréviation) )?(?!de |des |du |von )"
    r"(?:[\"“”„«»‘’'].{1,40}[\"“”«»’']|[A-ZÀ-Þ]{2,}[A-ZÀ-Þ\d./-]*(?: \d+)?"
    r"|[^\WA-ZÀ-Þ\d_]+(?:[ -][^\WA-ZÀ-Þ\d_]+)?)"
    r"(?: (?:in|en|auf|em) [A-ZÀ-Þ]?\w+)?",
)
_MEAN = ("signif", "bedeutet", "heisst", "veut dire", "quiere decir", "mean", "stand")
_MEANS = re.compile(r" (?:mean|means|stand for)\b(?P<tail>.*)")


def asks_meaning(text: str, folded: str) -> re.Match[str] | None:
    """Return where the (spaced) text asks what something means."""
    # Looking for the verbs is quicker than the pattern.
    if not any(verb in folded for verb in _MEAN):
        return None
    return _MEANING.search(text) or _MEANING_BEHIND.search(text[:_LONGEST])


def is_meaning(text: str, asked: re.Match[str]) -> bool:
    """True if what the text asks the meaning of is a word, and none that somebody gave one."""
    return not (names_their_thing(text, meant=True) or of_somebody(text)) and _is_term(asked["term"])


def _is_term(said: str) -> bool:
    means = _MEANS.search(said)
    term = said[: means.start()] if means else said
    tail = means["tail"].strip(" .!") if means else ""
    in_language = not tail or bool(re.fullmatch(r"in (?:[A-Z]\w+|slang|english|texting|law|math\w*)", tail))
    return in_language and bool(_TERM.fullmatch(term.strip(" .!"))) and not is_of_life(term)


# ---------------------------------------------------------------- how two kinds differ
_DIFFERENCE = re.compile(
    r"\W*+(?:"
    r"(?:what(?:'s| is| are|s)? |tell me |explain |is there |remind me )?(?:the |an? |any )?(?:main "
    r"|real |actual )?"
    r"differences? (?:is |are |is there )?(?:between|btw|b/w) (?P<en>.{2,40}?) (?:and|&|vs\.?"
    r"|or) (?P<en_b>.{2,40})"
    r"|how (?:is|are|does|do) (?P<en_how>.{2,40}?) (?:differ(?:ent)?) (?:from|to) (?P<en_how_b>.{2,40})"
    r"|(?:(?:cual|que) (?:es|hay|son|tiene)? ?|en que consiste |explica(?:me)? |dime )?(?:la "
    r"|las )?diferencias? (?:hay |existe )?"
    r"entre (?P<es>.{2,40}?) (?:y|e|o) (?P<es_b>.{2,40})"
    r"|en que se diferencian? (?P<es_how>.{2,40}?) (?:de|del|y|e) (?P<es_how_b>.{2,40})"
    r"|(?:(?:was|wo|worin) (?:ist|liegt|besteht|sind) (?:eigentlich |denn |genau )?"
    r"|erklar mir )?(?:der |die |den )?unterschiede? "
    r"(?:ist )?zwischen (?P<de>.{2,40}?) (?:und|u\.?|&) (?P<de_b>.{2,40})"
    r"|(?:was|wie|worin) unterscheide[tn]?(?: sich)? (?P<de_how>.{2,40}?) (?:und|von) (?P<de_how_b>.{2,40})"
    r"|(?:c'est quoi |quelles? (?:est|sont) |quelle |(?:y a|il y a|ya) (?:quoi comme|une) )?(?:la "
    r"|les )?differences? "
    r"(?:il y a |y a-t-il |y a )?entre (?P<fr>.{2,40}?) (?:et|ou) (?P<fr_b>.{2,40})"
    r")[ ?!.]*"
)
_UPPER = re.compile(r"\b[A-Z]{3,}\b")
_ELIDED = re.compile(r"\b([ld])'(?=\w{2})")
_ZH_DIFFERENCE = re.compile(
    r"(?:请问|請問|问下|想问下?)?(?P<a>[^\s，,。？?]{1,10}?)(?:和|跟|与|與"
    r"|同)(?P<b>[^\s，,。？?]{1,10}?)(?:之间|之間|到底|究竟)?(?:的|有|是|什么|什麼|啥|何|哪些)*"
    r"(?:区别|區別|不同|差别|差別|差异|差異|不一样|不一樣|差在哪里?|差在哪裡?|怎么(?:区分|分辨|分别"
    r"|辨别|分)|怎麼(?:區分|分辨|分))"
    r"(?:是什么|是什麼|在哪里?|在哪|是啥|有哪些)?[呀啊呢的]?\W*"
)
_ZH_WORKS = re.compile(
    "[^我咱俺你您他她它这那家店厂们的，,。]{1,6}(?:是怎么|怎么)(?:工作|运作|形成|产生|制成|制作"
    "|发电)的?[呀啊呢]?\\W*"
)
_ZH_THEIRS = re.compile(
    rf"[我咱俺你您他她它这這那哪谁誰]|[a-zA-Z](?![a-zA-Z])|\d|{any_of('meanings', 'zh labelled')}"
)


def is_difference(text: str) -> bool:
    """True if the text asks how one kind differs from another, and neither is anybody's."""
    if len(text) > _LONGEST:
        return False
    if HAN.search(text):
        if _ZH_WORKS.fullmatch(text.strip()):
            return not zh_lived(text)
        compared = _ZH_DIFFERENCE.fullmatch(text.strip())
        return compared is not None and not (
            _ZH_THEIRS.search(compared["a"] + compared["b"]) or zh_lived(text)
        )
    folded = plain(text)
    if "iff" not in folded and "tersch" not in folded and "diferen" not in folded:
        return False
    found = _DIFFERENCE.fullmatch(folded)
    if not found or is_lived(text) or names_stranger(_UPPER.sub(" ", text)):
        return False
    return all(map(_is_kind, filter(None, found.groups())))


def _is_kind(side: str) -> bool:
    """True for a kind of things, with a small article or none; with a definite one, only of the world's."""
    said = _WORD.findall(_ELIDED.sub(r"\1 ", side))
    while said and said[0] in _SMALL:
        said = said[1:]
    if said and (said[0] in _ARTICLES or said[0] == "l"):
        return len(said) == 2 and said[1] in AFTER_ARTICLE
    if not said or len(said) > _LONGEST_SIDE or any(len(word) < 2 or word[0].isdigit() for word in said):
        return False
    return frozenset(said).isdisjoint(_CLAUSES) and frozenset(said).isdisjoint(_LABELLED)


# ---------------------------------------------------------------- what one of a kind is
_OF_ONE = re.compile(
    r"\W*+(?:"
    r"(?:y |oye )?que es un[ao]? (?P<es>\w+(?: \w+){0,2})"
    r"|(?:und |na )?was (?:ist|isn|sind) (?:eigentlich |denn |genau |bitte )*(?:ein"
    r"|eine) (?P<de>\w+(?: \w+){0,1})"
    r"|(?:c'est quoi |qu'est-ce que c'est |qu'est-ce qu')une? (?P<fr>\w+(?: \w+){0,2})"
    r"|como funciona una? (?P<es_works>\w+(?: \w+){0,2})"
    r"|wie funktioniert (?:eigentlich )?eine? (?P<de_works>\w+)"
    r"|comment (?:ca )?(?:marche|fonctionne) une? (?P<fr_works>\w+(?: \w+){0,2})"
    r"|cuanto (?:vive|pesa|mide|duerme) una? (?P<es_much>\w+(?: \w+){0,2})"
    r"|wie (?:lange lebt|schwer (?:ist|wird)|viel wiegt|gross wird|alt wird) eine? (?P<de_much>\w+)"
    r"|combien (?:de temps vit|pese|mesure) une? (?P<fr_much>\w+(?: \w+){0,2})"
    r")[ ?!.]*"
)
_ONES = ("un", "ein", "isn")


def is_of_one(text: str) -> bool:
    """True if the text asks what one of a kind is or how it works ("qu'est-ce qu'une tontine")."""
    if len(text) > _LONGEST:
        return False
    folded = plain(text)
    if not any(word in folded for word in _ONES):
        return False
    found = _OF_ONE.fullmatch(folded)
    if not found or is_lived(text) or names_their_thing(text) or names_stranger(text):
        return False
    thing = next(filter(None, found.groups()), "").split()
    return frozenset(thing).isdisjoint(_CLAUSES) and frozenset(thing).isdisjoint(_LABELLED)


def is_of_words(text: str) -> bool:
    """True if the text asks for a difference, or what one of a kind is."""
    return is_difference(text) or is_of_one(text)
