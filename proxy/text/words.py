"""Words and sentences of a text, in any script.

Terms are the words that BM25 counts. Latin and other spaced scripts give folded words (no case, no accents),
lightly stemmed in English; identifiers give themselves whole and their parts; numbers lose their thousands
separators; Chinese, Japanese and Korean runs give single characters and bigrams, since they put no spaces
between words. Traditional Chinese is read as simplified, character by character, by OpenCC's table: its
phrases, which may change a text's length, do not matter for comparing.

Sentences end at punctuation and line breaks. A full stop ends one if a blank or the end of the line follows,
except before a small letter in a text with capitals ("tea, etc. and cake") and after an initial
("J. R. Smith", "z. B."), an abbreviation without a vowel ("Dr. Ohm"), a short word before a number ("tel. 5")
or the number of a day ("am 3. Mai"). One inside 3.14 or example.org ends nothing. In doubt the sentence
continues: two facts in one harm less than half a fact. Time is linear in the text.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache

# ---------------------------------------------------------------- Traditional Chinese
_HAN = re.compile("[\u3400-\u9fff]")


def simplified(text: str) -> str:
    """Return the text in simplified characters, of the same length."""
    return text.translate(_table()) if _HAN.search(text) else text


@cache
def _table() -> dict[int, str]:
    """Return OpenCC's simplified character for each traditional one; takes 8 ms, once."""
    import opencc

    convert = opencc.OpenCC("t2s").convert
    characters = [chr(code) for code in range(0x3400, 0xA000)]
    # One per line: two together could be read as a word. Twice: some have an intermediate form.
    found = convert(convert("\n".join(characters))).split("\n")
    pairs = zip(characters, found, strict=True)
    return {ord(one): other for one, other in pairs if one != other and len(other) == 1}


# ---------------------------------------------------------------- terms
CJK = (
    "\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
)
_LETTER = rf"[^\W{CJK}]"  # of a script with spaces
_TOKEN = re.compile(
    rf"(?P<cjk>[{CJK}]+)"
    r"|(?P<number>\d+(?:[.,:]\d+)*%?)(?![^\W\d_])"
    rf"|(?P<word>{_LETTER}+(?:['’._/@:+#-]+{_LETTER}+)*[+#]*)"
)
_PART = re.compile(rf"[^\W_{CJK}]+")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_ACCENTS = re.compile("[\u0300-\u036f]+")
# NFKC expands these to 18 and 8 characters, all others to at most 6: a text of them alone would become too
# long for every pattern. The short form says the same ("ﷵ").
_LIGATURES = (("\ufdfa", "\ufdf5"), ("\ufdfb", "\u062c\u0644"))
_POSSESSIVE = re.compile(r"['’]s?$")

# Words that carry no topic. Short on purpose: a missing stop word costs a little, a wrong one a memory.
STOP_WORDS = frozenset(
    "a an the and or but if of at by for with about to from in on off is are was were be been being am"
    " do does did have has had having i me my mine myself you your yours we us our ours he him his she"
    " her hers it its they them their theirs this that these those what which who whom whose when where"
    " why how can could should would will shall may might must not no nor so than then there here as"
    " into up down out over again just too very user please tell know"
    " el la los las un una de del y o en que es mi tu su se le der die das und oder ist ein eine mein"
    " ich du le les des une et ou est mon ma mes je 的 了 吗 呢 是 我 你 他 她 它 们 用 户 用户 我的".split()
)


def fold(text: str, most: int | None = None) -> str:
    """Return the text in NFKC, without case and without the accents of Latin, Greek and Cyrillic.

    `most`: characters that are read, and returned, since NFKC may make six of one ("㎯").
    """
    text = text[:most]
    if text.isascii():
        return text.lower()
    for long, short in _LIGATURES:
        text = text.replace(long, short)
    text = unicodedata.normalize("NFKC", text)[:most].casefold()
    if text.isascii():
        return text[:most]
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", text)))[:most]


def terms(text: str) -> tuple[str, ...]:
    """Return the text's terms in order, repeated as often as they occur, stop words left out."""
    found: list[str] = []
    for match in _TOKEN.finditer(simplified(fold(text))):
        token = match.group()
        if match.lastgroup == "cjk":
            found += token
            found += (token[i : i + 2] for i in range(len(token) - 1))
        elif match.lastgroup == "number":
            found.append(_THOUSANDS.sub("", token))
        else:
            found += _word(token)
    return tuple(t for t in found if t not in STOP_WORDS)


def normalise(text: str) -> str:
    """Return the form in which two wordings count as the same text: folded, one space, no final stop."""
    return " ".join(fold(text).split()).rstrip(" .!。！")


def _word(token: str) -> list[str]:
    if token.isalpha():
        return [_stem(token)]
    token = _POSSESSIVE.sub("", token)
    parts = _PART.findall(token)
    if len(parts) < 2:
        return [_stem(token)]
    return [token, *(_stem(p) for p in parts if len(p) > 1 or p.isdigit())]


def _stem(word: str) -> str:
    """Strip English plural, -ing and -ed endings so far that both sides of a comparison agree."""
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        return word
    for ending, keep in (("sses", 2), ("ies", 0), ("ing", 0), ("ed", 0), ("es", 0), ("s", 0)):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            stem = word[: len(word) - len(ending) + keep]
            if ending == "ies":
                return stem + "y"
            if ending in ("ing", "ed") and len(stem) > 3 and stem[-1] == stem[-2] and stem[-1] not in "ls":
                return stem[:-1]
            return stem.rstrip("e")
    return word.rstrip("e")


# ---------------------------------------------------------------- sentences
UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")  # Chinese, Japanese and Korean
WIDE = re.compile("[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]")  # each says as much as three Latin letters
_BEFORE = 24  # characters before a stop
_AROUND = 80  # characters on either side of a stop

# A run of stops is matched whole, or "....x" would be searched again from each of its stops.
_STOPS = re.compile(
    r"(?P<run>[.!?…؟।]++)[\"')\]”’»“«]*+"
    r"|(?P<wide>[\u3002\uff01\uff1f\uff61][\u3002\uff01\uff1f\uff61!?…]*+)[)\]”’»」』）】》]*+"
)
_BLANKS = re.compile(r"\s*+")
_OPENING = re.compile(r"[\"'„“«»‘¿¡\[*_`]*+")
_INITIAL = re.compile(r"(?<![^\W_])(?!I\Z)[^\W\d_](?:\. ?[^\W\d_]{1,2})*\Z|\.[^\W\d_]{1,2}\Z")
_WORD = re.compile(r"(?<![^\W_])[^\W\d_]{1,6}\Z")
_LONG_WORD = re.compile(r"[^\W\d_]{3}|[a-z]")
_VOWEL = re.compile("[aeiouyäöüáéíóúàèìòùâêîôûå]|[^a-z]", re.IGNORECASE)
_DAY = re.compile(r"(?:\A|\b[^\W\d_A-ZÄÖÜ]{1,3} )(?:[12]?\d|3[01])\Z")


def sentences(text: str) -> list[str]:
    """Return the sentences in order, with their marks, stripped; a line break ends one."""
    return [sentence for piece in pieces(text) if (sentence := piece.strip())]


def pieces(text: str) -> Iterator[str]:
    """Yield the sentences with the blanks after them: joined, they are the text."""
    for line in text.splitlines(keepends=True):
        at = 0
        for stops in _STOPS.finditer(line):
            if _ends(line, stops):
                end = _after_blanks(line, stops.end())
                yield line[at:end]
                at = end
        if at < len(line):
            yield line[at:]


def is_inner_stop(text: str, at: int) -> bool:
    """True if the stop at `at` ends no sentence, as in an abbreviation or in 3.14."""
    stops = _STOPS.match(text, at)
    return stops is not None and not _ends(text, stops)


def without_inner_stops(text: str) -> str:
    """Return the text without the full stops before a blank that end no sentence: "Dr Ohm"."""
    parts, at = [], 0
    for stops in _STOPS.finditer(text):
        blank = text[stops.end() : stops.end() + 1].isspace()
        if blank and stops.group() == "." and not _ends(text, stops):
            parts.append(text[at : stops.start()])
            at = stops.end()
    return "".join((*parts, text[at:]))


def is_question(sentence: str) -> bool:
    """True for a sentence that ends in a question mark, of any script."""
    return sentence.rstrip(" \"')]”’»」』）】").endswith(("?", "\uff1f", "؟"))


def _after_blanks(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    return blanks.end() if blanks else at


def _ends(text: str, stops: re.Match[str]) -> bool:
    """True if a sentence ends with these stops."""
    run, end = stops["run"], stops.end()
    if run is None:
        return True
    if end < len(text) and not text[end].isspace():
        between = text[stops.start() - 1 : stops.start()] + text[end]
        return len(UNSPACED.findall(between)) == 2 or ("…" in run and not text[end].islower())
    start = _after_blanks(text, end)
    if start == len(text) or "\n" in text[end:start] or "!" in run or "?" in run:
        return True
    marks = _OPENING.match(text, start)
    follows = text[marks.end() if marks else start :][:3]
    before = text[max(0, stops.start() - _BEFORE) : stops.start()].rpartition("\n")[2]
    if not any(map(str.isalnum, before)):
        return True
    if run == "." and _is_inner(before, follows):
        return bool(UNSPACED.match(follows)) and not before[-1].isdigit()
    return not follows[:1].islower() or _is_all_small(text, stops)


def _is_all_small(text: str, stops: re.Match[str]) -> bool:
    """True without a capital nearby: such a writer begins sentences with small letters."""
    around = text[max(0, stops.start() - _AROUND) : stops.end() + _AROUND]
    return around == around.lower()


def _is_inner(before: str, follows: str) -> bool:
    """True for a full stop that belongs to the word or the number before it."""
    if _INITIAL.search(before) or (_DAY.search(before) and _LONG_WORD.match(follows)):
        return True
    word = _WORD.search(before)
    if word is None:
        return False
    return (
        (len(word.group()) <= 4 and not _VOWEL.search(word.group()))
        or follows[:1].isdigit()
        or follows.startswith("(")
    )
