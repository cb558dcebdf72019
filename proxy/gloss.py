"""Gloss texts of other languages in English, word by word, for an embedding model that reads English alone.

all-MiniLM-L6-v2 takes "我对青霉素过敏" for a row of unknown signs, and Spanish or German for noise. Said word
by word in English ("I antibiotic penicillin allergy") the same model finds it from "is there a medicine I
must not take?", whatever language that is asked in. No grammar is needed: the model averages words anyway.
A gloss is only ever embedded, never stored or shown.

The words stand in `lexicon/*.txt`, a line for each meaning: english|zh|es|de|fr, alternatives separated by
commas. Chinese takes the longest word that fits, from the left. In the other languages a word of the table
also stands for its longer forms ("alquil": alquiler, alquilamos), but those of `*.forms.txt` are forms
themselves; German compounds are taken apart, participles lose their "ge" ("angemeldet"), and Spanish verbs
the pronouns put to them ("abrirme").
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from proxy.chinese import simplified
from proxy.terms import ENGLISH_STOP_WORDS, fold

SPACED = ("es", "de", "fr")
_LANGUAGES = ("zh", *SPACED)
_FOLDER = Path(__file__).with_name("lexicon")

_HAN = re.compile("[\u3400-\u9fff]+")
_KANA = re.compile("[\u3040-\u30ff]")
# French elides ("l'eau"): an apostrophe ends a word.
_TOKEN = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*['’]?|\d[\d.,:]*|[^\w\s]|_+")
# Characters that carry grammar and no matter.
_PARTICLES = frozenset("的了吗呢吧啊着过来地得个呀嘛哦呗么儿")
_PUNCTUATION = str.maketrans("，。？！；：（）“”、《》", ",.?!;:()'',''")
_PHRASE_WORDS = 4
_LEAST_SHARE = 0.3  # of a text's words: the table's language
_SHORTEST_STEM = 3
_LONGEST_ENDING = 4
# What may follow three letters; and what a Spanish word, being whole, that ends in a vowel. Without,
# "venta" (sale) is a form of "ven" (come), "juguete" (toy) of "jugué" (I played).
_SHORT_ENDINGS = {
    "es": re.compile("[aeo]s?|ó|s|[aei]n|[aei]r|i[oa]"),
    "de": re.compile(".{1,2}"),
    "fr": re.compile("e?s|x|e|e[erz]|ir"),
}
_AFTER_VOWEL = {"a": ("s", "n"), "e": ("s", "n"), "o": ("s",)}
_HAN_WEIGHT = 3  # letters that a Chinese character is worth
_MOST_PARTS = 3  # of a compound
_LONGEST_COMPOUND = 40
_QUESTION_CHARS = 600  # longer ones are not remembered
_PREFIXES = (
    "ab an auf aus bei ein fest heim her hin los mit nach um vor weg weiter zu zuruck zusammen".split()
)
# Where "ge" and "zu" stand inside a verb.
_INFIX = re.compile(rf"({'|'.join(_PREFIXES)})(?:ge|zu)(\w{{3,}})")
# What a short word of grammar means. It has no longer forms but with what is swallowed: "Wien" is none of
# "wie", "Dortheim" none of "dort", but "fürs" is one of "für". And it begins no compound, unless it is a
# verb's prefix, which then says nothing of its own ("ausprobieren", try).
_GRAMMAR = frozenset(
    "a and are around as at but by for from he her here him how i in is it me my near of on or she than that"
    " the there they this to top us was we what when where who why with you".split()
)
_SHORT_GRAMMAR = 4
_SWALLOWED = ("s", "m")
_PRONOUN = re.compile(r"(\w{2,}(?:[aei]r|ndo))(me|te|se|nos|l[aeo]s?)")
# "Umzug-s-termin": what joins the parts of a compound.
_JOINTS = ("", "s", "n", "e", "en", "es", "er")


@dataclass(frozen=True, slots=True)
class Gloss:
    """A text in English words, and the share of it that is not Chinese unknown to the lexicon, in letters."""

    text: str
    known: float = 1.0


def gloss(text: str) -> Gloss:
    """Return the text with what is Chinese, Spanish, German or French in it said in English words.

    English comes back unchanged, and so do languages that the lexicon does not have. Names stay as they are,
    in Chinese they are left out: the model could only take them for each other.
    """
    if text.isascii() or not _HAN.search(text):
        found = language(text)
        return Gloss(_spaced(text, found) if found else text)
    # Kana: Japanese has other words in the same signs.
    return Gloss(text) if _KANA.search(text) else _unspaced(simplified(text))


def question_gloss(text: str) -> Gloss:
    """Return the gloss of what a user asks, remembered while the rules of the read path look at it in turn.

    For questions alone: what is remembered outlives a forget.
    """
    return _lately(text) if len(text) <= _QUESTION_CHARS else gloss(text)


@lru_cache(maxsize=16)
def _lately(text: str) -> Gloss:
    return gloss(text)


def language(text: str) -> str | None:
    """Return the language of the table whose words the text has most of, None for English and others."""
    if text.isascii():
        found = (token.rstrip("'") for token in _TOKEN.findall(text.lower()) if token[0].isalpha())
    else:
        found = (_bare(token) for token in _TOKEN.findall(text) if token[0].isalpha())
    words = [word for word in found if word not in _SHARED]
    lexicon = _lexicon()
    counts = {name: sum(map(lexicon.words[name].__contains__, words)) for name in SPACED}
    best = max(counts, key=counts.__getitem__)
    # English wins a draw, such as a text of names alone; one word that looks foreign proves nothing.
    enough = max(sum(map(lexicon.english.__contains__, words)) + 1, _LEAST_SHARE * len(words))
    return best if counts[best] >= enough else None


# ---------------------------------------------------------------- the table
@dataclass(frozen=True, slots=True)
class _Lexicon:
    words: dict[str, dict[str, str]]  # by language, then by folded word: its English
    forms: frozenset[str]  # that no longer word is a form of
    english: frozenset[str]
    lengths: dict[str, tuple[int, ...]]  # of the Chinese words that begin with a character


@lru_cache(maxsize=1)
def _lexicon() -> _Lexicon:
    """Return the table of all files. Of a word that several of them have, the one whose name sorts first
    tells the meaning: the digits in their names are their precedence."""
    words: dict[str, dict[str, str]] = {name: {} for name in _LANGUAGES}
    forms: set[str] = set()
    english = set(ENGLISH_STOP_WORDS)
    for meaning, row, are_forms in _rows():
        english.update(re.findall(r"[a-z]{3,}", fold(meaning)))
        for name, word in row:
            if are_forms and word not in words[name]:
                forms.add(word)
            words[name].setdefault(word, meaning)
    lengths: dict[str, set[int]] = {}
    for word in words["zh"]:
        lengths.setdefault(word[0], set()).add(len(word))
    sizes = {begins: tuple(sorted(found)) for begins, found in lengths.items()}
    return _Lexicon(words, frozenset(forms), frozenset(english), sizes)


def _rows() -> Iterator[tuple[str, list[tuple[str, str]], bool]]:
    """Yield the rows of all files: a meaning, its words (language, folded), whether the file is of forms."""
    for file in sorted(_FOLDER.glob("*.txt")):
        are_forms = file.match("*.forms.txt")
        for line in file.read_text("utf-8").splitlines():
            meaning, _, row = line.partition("|")
            cells = zip(_LANGUAGES, fold(row).split("|"), strict=True)
            named = [(name, word.strip()) for name, cell in cells for word in cell.split(",")]
            # An apostrophe ends a word: "d'accord" is a phrase of two.
            yield meaning, [(name, word.replace("'", " ")) for name, word in named if word], are_forms


# Words of several languages say nothing about which one it is.
_SHARED = frozenset("a an am as in is me no on or so to die man son des plan se le".split())


# ---------------------------------------------------------------- with spaces
def _spaced(text: str, name: str) -> str:
    tokens = _TOKEN.findall(text)
    return " ".join(_glossed(tokens, [_third_person(t, _bare(t)) for t in tokens], name))


def _third_person(token: str, bare: str) -> str:
    """Return the bare word, but with its accent where "compró" would be taken for "compro", I buy."""
    return f"{bare[:-1]}ó" if token.endswith("ó") and bare in _lexicon().forms else bare


def _bare(token: str) -> str:
    return fold(token).replace("œ", "oe").rstrip("'’")


def _glossed(tokens: list[str], folded: list[str], name: str) -> Iterator[str]:
    known = _lexicon().words[name]
    at = 0
    while at < len(tokens):
        for size in range(min(_PHRASE_WORDS, len(tokens) - at), 1, -1):
            phrase = known.get(" ".join(folded[at : at + size]))
            if phrase is not None:
                yield phrase
                at += size
                break
        else:
            yield (_word(folded[at], name) or tokens[at]) if tokens[at][0].isalpha() else tokens[at]
            at += 1


@lru_cache(maxsize=8192)
def _word(word: str, name: str) -> str | None:
    found = _form(word, name)
    if found is None and "-" in word:
        halves = [_word(half, name) or half for half in word.split("-")]
        return " ".join(halves)
    if found is None and name == "de":
        return _participle(word) or _compound(word)
    if found is None and name == "es":
        return _with_pronoun(word)
    return found


def _form(word: str, name: str) -> str | None:
    """Return the meaning of the word, or of the longest word that it is a form of."""
    known = _lexicon().words[name]
    if word in known:
        return known[word]
    for size in range(len(word) - 1, max(len(word) - _LONGEST_ENDING, _SHORTEST_STEM) - 1, -1):
        if word[:size] in known and _is_ending(word[size:], word[:size], name):
            return known[word[:size]]
    return None


def _is_ending(rest: str, stem: str, name: str) -> bool:
    """True if the stem's word may have a form that ends so."""
    if len(stem) <= _SHORT_GRAMMAR and _is_grammar(_lexicon().words[name][stem]):
        return rest in _SWALLOWED
    if len(stem) == _SHORTEST_STEM:
        return _SHORT_ENDINGS[name].fullmatch(rest) is not None
    if name == "es" and stem[-1] in _AFTER_VOWEL:
        return rest in _AFTER_VOWEL[stem[-1]]
    return stem not in _lexicon().forms


def _is_grammar(meaning: str) -> bool:
    return _GRAMMAR.issuperset(meaning.casefold().split())


def _with_pronoun(word: str) -> str | None:
    """Return the meaning of the Spanish verb that a pronoun was put to, and of that: "abrirme", open me."""
    parts = _PRONOUN.fullmatch(word)
    verb = _form(parts[1], "es") if parts else None
    return f"{verb} {_form(parts[2], 'es') or ''}".rstrip() if parts and verb else None


def _participle(word: str) -> str | None:
    """Return the meaning of the German verb whose "ge" or "zu" stands before or inside it: "angemeldet"."""
    if bare := re.fullmatch(r"ge(\w{4,})", word):
        return _form(bare[1], "de")
    inside = _INFIX.fullmatch(word)
    return _form(inside[1] + inside[2], "de") if inside else None


def _compound(word: str, parts: int = _MOST_PARTS) -> str | None:
    """Return the meanings of the parts of a German compound, the longest known beginning first."""
    if len(word) > _LONGEST_COMPOUND:
        return None  # no word: encoded data, which would be cut at every letter
    known = _lexicon().words["de"]
    for size in range(len(word) - 3, 2, -1):
        first = next((known[h] for j in _JOINTS if (h := word[:size].removesuffix(j)) in known), None)
        # Of three letters only a whole word: shorter ones are found in anything.
        if first and (size > 3 or word[:size] in known) and not _is_grammar(first):
            second = _form(word[size:], "de") or (_compound(word[size:], parts - 1) if parts > 2 else None)
            if second:
                return f"{first} {second}"
    prefix = next((p for p in _PREFIXES if word.startswith(p) and len(word) - len(p) > _SHORT_GRAMMAR), None)
    return _form(word[len(prefix) :], "de") if prefix else None


# ---------------------------------------------------------------- without
def _unspaced(text: str) -> Gloss:
    total = known = 0
    pieces: list[str] = []
    end = 0
    for run in _HAN.finditer(text):
        words, found = _run(run.group())
        pieces += [text[end : run.start()], " ".join(words)]
        end = run.end()
        total += sum(c not in _PARTICLES for c in run.group())
        known += found
    rest = sum(c.isalnum() and not _HAN.match(c) for c in text)
    said = " ".join([*pieces, text[end:]]).translate(_PUNCTUATION)
    share = (rest + _HAN_WEIGHT * known) / (rest + _HAN_WEIGHT * total) if rest + total else 1.0
    return Gloss(" ".join(said.split()), share)


def _run(run: str) -> tuple[list[str], int]:
    """Return the meanings of a run of Chinese, and how many of its characters they stand for."""
    known = _lexicon().words["zh"]
    words = [word for word in _cut(run) if word in known]
    return [known[word] for word in words], sum(c not in _PARTICLES for word in words for c in word)


def _cut(run: str) -> list[str]:
    """Return the run in words of the lexicon, and single characters where there is none, so that the squares
    of the words' lengths have the greatest sum: 生日|是|什么时候, where the longest from the left would leave
    是什么|时候."""
    lexicon = _lexicon()
    known, lengths = lexicon.words["zh"], lexicon.lengths
    # Of the run up to each place: the greatest sum, and where its last word begins.
    best, begins = [0] + [-1] * len(run), [0] * (len(run) + 1)
    for start, sign in enumerate(run):
        here = best[start]
        if here >= best[start + 1]:
            best[start + 1], begins[start + 1] = here, start
        for size in lengths.get(sign, ()):
            end = start + size
            if end <= len(run) and here + size * size > best[end] and run[start:end] in known:
                best[end], begins[end] = here + size * size, start
    words: list[str] = []
    end = len(run)
    while end:
        words.append(run[begins[end] : end])
        end = begins[end]
    return words[::-1]
