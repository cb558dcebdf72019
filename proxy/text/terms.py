"""Lexical terms of a text: the words that BM25 counts, in any script.

Latin and other spaced scripts give folded words (no case, no accents), lightly stemmed in English;
identifiers give themselves whole and their parts; numbers lose their thousands separators; Chinese,
Japanese and Korean runs give single characters and bigrams, since they put no spaces between words.
Traditional Chinese is read as simplified, character by character, by OpenCC's table: its phrases, which may
change a text's length, do not matter for comparing.
"""

import re
import unicodedata
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
