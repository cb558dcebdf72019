"""Words, sentences and names of a text, in any script.

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

Names say who and what a memory is about. They are known by their form, without a list of names: a text in
quotes, or a run of words that begin with a capital, except at the start of a sentence. A word there may be a
name: it is `unsure`, and counts once another memory has it in a sure place. Words of the calendar ("Monday",
"März") are none. In languages that capitalise every noun, things are names too. Scripts without capitals have
only quoted names, unless the extraction model names them: a tag "person:Anna" (or place, project, thing) says
what a name is, and "person:Anna=Annie" that both names are of one person.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from proxy.text.dates import names_calendar

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
        elif token.isalpha():
            found.append(_stem(token))
        else:
            token = _POSSESSIVE.sub("", token)
            parts = _PART.findall(token)
            if len(parts) > 1:
                found += (token, *(_stem(p) for p in parts if len(p) > 1 or p.isdigit()))
            else:
                found.append(_stem(token))
    return tuple(t for t in found if t not in STOP_WORDS)


def normalise(text: str) -> str:
    """Return the form in which two wordings count as the same text: folded, one space, no final stop."""
    return " ".join(fold(text).split()).rstrip(" .!。！")


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
# Of the window that the statement head reads: tokens, at least, and with the candidate.
_WINDOW_TOKENS, _LEAST_WINDOW_TOKENS, _PAIR_TOKENS = 100, 40, 124
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


def cut_short(text: str, most: int) -> str:
    """Return the text, cut at a space if it has more than `most` characters."""
    if len(text) <= most:
        return text
    cut = text[: most - 1]
    return f"{cut[: cut.rfind(' ')] if ' ' in cut[most // 2 :] else cut}…"


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
    around = text[max(0, stops.start() - _AROUND) : stops.end() + _AROUND]
    # Without a capital nearby, the writer begins sentences with small letters.
    return not follows[:1].islower() or around == around.lower()


def _is_inner(before: str, follows: str) -> bool:
    """True for a full stop that belongs to the word or the number before it."""
    if _INITIAL.search(before) or (_DAY.search(before) and _LONG_WORD.match(follows)):
        return True
    word = _WORD.search(before)
    if word is None:
        return False
    has_no_vowel = len(word.group()) <= 4 and not _VOWEL.search(word.group())
    return has_no_vowel or follows[:1].isdigit() or follows.startswith("(")


def window_of(parts: Sequence[str], first: int, last: int, candidate: str) -> str:
    """Return the sentences from `first` to `last` with as many neighbours as the statement head reads
    together with the candidate. Preceding sentences come first: they say how the words are meant."""

    def tokens(text: str) -> int:  # of the encoder, estimated
        unspaced = len(WIDE.findall(text))
        return 1 + unspaced + (len(text) - unspaced) // 4

    budget = min(_WINDOW_TOKENS, max(_LEAST_WINDOW_TOKENS, _PAIR_TOKENS - tokens(candidate)))
    budget -= sum(map(tokens, parts[first : last + 1]))
    grown = True
    while grown:
        grown = False
        if first > 0 and (size := tokens(parts[first - 1])) <= budget:
            first, budget, grown = first - 1, budget - size, True
        if last + 1 < len(parts) and (size := tokens(parts[last + 1])) <= budget:
            last, budget, grown = last + 1, budget - size, True
    return " ".join(parts[first : last + 1])


# ---------------------------------------------------------------- names
NAME_KINDS = ("person", "place", "project", "thing")
UNKNOWN_KIND = "name"  # of a name that only its form shows
_MOST_NAMES = 12  # of one memory
_SUBJECT = "user"  # how extracted facts name the user, whatever their language
_LONGEST = 60
_QUOTED = re.compile(
    r"\"([^\"\n]+)\"|“([^”\n]+)”|„([^“”\n]+)[“”]|«([^»\n]+)»|「([^」\n]+)」|《([^》\n]+)》|『([^』\n]+)』"
)
_NAME_WORD = re.compile(r"[^\W\d_](?:[\w&]|[-’'.](?=[^\W_]))*")
_STARTS = re.compile(r"(?:^|[.!?…:;(\[。！？\n]\s*)[\s\"'“„«(\[¿¡-]*$")
_QUOTED_WORDS = 5  # more are a sentence


@dataclass(frozen=True, slots=True)
class Name:
    """One name of a memory. `key` is equal for all its spellings; `also`: other names of the same."""

    name: str
    kind: str = UNKNOWN_KIND
    unsure: bool = False
    also: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return key_of(self.name)


def key_of(name: str) -> str:
    """Return what all spellings of the name have in common."""
    return " ".join(fold(name).split())


def names(content: str, tags: Sequence[str] = ()) -> list[Name]:
    """Return the names in the content, each once, twelve at most; those that the tags name first."""
    held, every = f" {key_of(content)} ", list[Name]()
    for tag in tags:
        kind, colon, rest = tag.partition(":")
        name, *also = (" ".join(part.split()) for part in rest.split("="))
        if colon and kind in NAME_KINDS and name and key_of(name) in held:
            every.append(Name(name, kind, also=tuple(one for one in also if one)))
    for match in _QUOTED.finditer(content):
        quoted = next(group for group in match.groups() if group is not None).strip()
        if len(quoted) <= _LONGEST and len(quoted.split()) <= _QUOTED_WORDS and key_of(quoted):
            every.append(Name(quoted))
    found: dict[str, Name] = {}
    for one in (*every, *_capitalised(content)):
        known = found.get(one.key)
        if known is None:
            found[one.key] = one
        elif known.unsure and not one.unsure:
            found[one.key] = replace(known, unsure=False)
    return list(found.values())[:_MOST_NAMES]


def _capitalised(content: str) -> Iterable[Name]:
    run: list[str] = []
    begins, end = False, 0
    for match in _NAME_WORD.finditer(content):
        word = _POSSESSIVE.sub("", match[0])
        is_name = len(word) > 1 and word[0].isupper() and word.casefold() != _SUBJECT
        is_name = is_name and not names_calendar(word)
        gap = content[end : match.start()] if end >= 0 else ""
        joined = run and (gap == " " or (gap == ". " and len(run[-1]) < 4))  # "Dr. Meier"
        if run and not (is_name and joined):
            yield from _ended(run, begins=begins)
            run = []
        if is_name:
            begins = bool(_STARTS.search(content[: match.start()])) if not run else begins
            run.append(word)
        # "Anna's Golf": two names
        end = match.end() if word == match[0] else -1
    if run:
        yield from _ended(run, begins=begins)


def _ended(run: list[str], *, begins: bool) -> Iterable[Name]:
    """Yield the run as a name; at the start of a sentence its first word may belong to it or not."""
    if not begins:
        yield Name(" ".join(run))
    elif len(run) == 1:
        yield Name(run[0], unsure=len(run[0]) < 2 or not run[0].isupper())
    else:
        yield Name(" ".join(run), unsure=True)
        yield Name(" ".join(run[1:]))
