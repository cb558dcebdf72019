"""Find credentials by their format, by the words beside them and by their randomness, also when disguised.

Not caught, and no pattern could without taking innocent words: a password told with nothing that calls it
one ("use swordfish"), a secret in pieces over several messages, one encoded in a cipher or an image.
"""

import re
from collections.abc import Iterator
from functools import cache

from mnemonic import Mnemonic

from proxy.admit.safety import looks, spoken, vendor_keys
from proxy.admit.safety.detect import Detector, Span, Table, run
from proxy.admit.safety.secret_rows import PASSWORD, PASSWORD_STARTS, ROWS
from proxy.admit.safety.unmask import decoded, unhexed

# Words that make an opaque token beside them a secret, and words that say it is none.
_SECRET_WORD = re.compile(
    rf"{PASSWORD}|\b(?:api|access|secret|private|licen[sc]e|signing|encryption|account|auth|service"
    rf"|deploy|ssh|wi-?fi|product|activation"
    r"|master|session)[ _-]?key|\bkeys?\s{0,2}(?:is|:|=|for|to)|\bsecrets?\b|\btokens?\b(?! (?:count|limit"
    r"|usage|budget|bucket|window))|credential"
    r"|\b(?:recovery|backup|activation|licen[sc]e|unlock|redemption|gift card) (?:codes?|keys?)"
    r"|_(?:key|token|secret)\b"
    r"|密钥|密鑰|令牌|秘钥|トークン|シークレット|토큰|токен|ключ|schlüssel|clave|\bclé\b|jeton|chiave|segreto|secreto|secreta",
    re.IGNORECASE,
)
_HINTS = (
    "pin",
    "ssid",
    "wlan",
    *PASSWORD_STARTS,
    *"key secret token credential code 密钥 密鑰 令牌 秘钥 トーク シークレ 토큰 токен ключ"
    " schlüssel clé jeton chiave segret secret".split(),
)
_INNOCENT = re.compile(
    r"commit|\bsha|hash|checksum|digest|\bmd5|revision|\betag|\brev\b|merge|branch|docker|image"
    r"|@sha|version|build|\bmodel\b|\bid\b|order|issue|ticket|invoice|提交|版本|订单",
    re.IGNORECASE,
)
_OPAQUE = re.compile(
    r"(?<![\w/@.+-])(?!sha\d{3}-)(?=[^\s\d]{0,128}\d)([A-Za-z0-9][A-Za-z0-9+/_=~-]{7,511})(?![\w@])"
)
_BEFORE, _AFTER = 48, 40  # characters in which a word speaks of a token
_IS_MINE = re.compile(r"^\W{0,4}(?:is|was|ist|es|est|è|是|=)\W", re.IGNORECASE)
_NAMING = re.compile(
    r"\b(?:that'?s|is|was) (?:my|the|our) (?:[\w-]{1,20} ){0,2}(?:pin|pass(?:word|code))\b"
    r"(?! (?:manager|policy|hint|vault|field|reset))"
)
_LONGEST_HEADING = 200
_CODE = re.compile(r"\s*(?:async|class|def|elif|else|except|for|if|try|while|with)\b")
_LONGEST_NAMED = 64
_LIST_GAP = 12  # characters between the items of a list of codes
_BASE64 = re.compile(r"(?<![\w+/=-])([A-Za-z0-9+/_-]{16,2000}={0,2})(?![\w+/=-])")


@cache
def shapes() -> tuple[Detector, ...]:
    """Return the detectors of vendors' keys: those whose shape alone is proof."""
    return (*(row for row in ROWS if row.check is looks.is_vendor_key), *vendor_keys.rows())


@cache
def _rows() -> Table:
    return Table((*ROWS, *spoken.ROWS, *vendor_keys.rows()))


def find(text: str, lowered: str) -> Iterator[Span]:
    """Yield each credential of a text as it reads (see unmask); spans may overlap."""
    yield from run(_rows(), text, lowered)
    yield from seed_phrases(text, lowered)
    yield from _encoded(text)
    if any(hint in lowered for hint in _HINTS):
        yield from _beside_a_word(text)
        yield from _named_afterwards(text, lowered)
        yield from spoken.find(text, lowered)


def _beside_a_word(text: str) -> Iterator[Span]:
    """Yield opaque tokens near a word such as "token", and those that go on with a list of them."""
    last = Span("", -1, -1)
    for match in _OPAQUE.finditer(text):
        start, end = match.span(1)
        value = match.group(1)
        if not looks.is_opaque(value) or looks.is_placeholder(value):
            continue
        listed = last.end >= 0 and start - last.end <= _LIST_GAP and end - start == last.end - last.start
        if listed or _spoken_of(text, start, end):
            last = Span("secret", start, end)
            yield last


def _named_afterwards(text: str, lowered: str) -> Iterator[Span]:
    """Yield what a sentence calls a password or PIN after it: "2580, that's my PIN"."""
    for naming in _NAMING.finditer(lowered):
        before = text[max(0, naming.start() - _LONGEST_NAMED) : naming.start()]
        told = before.rstrip(" ,")
        if told.endswith((".", "!", "?")) and not lowered.startswith("that", naming.start()):
            continue  # the next sentence asks about a password: "We met in 2024. Is my password safe?"
        value = told.rpartition(" ")[2].rpartition("\n")[2]
        if looks.is_mixed_or_digits(value):
            start = naming.start() - len(before) + before.rindex(value)
            yield Span("secret", start, start + len(value))


def _spoken_of(text: str, start: int, end: int) -> bool:
    before = text[max(0, start - _BEFORE) : start]
    _, blank, beside = before.rpartition("\n\n")
    if blank and not _ends_in_a_heading(text, start - len(beside)):
        before = beside
    words = list(_SECRET_WORD.finditer(before))
    if words:
        return not _INNOCENT.search(before, words[-1].end())
    after = text[end : end + _AFTER].split("\n", 1)[0]
    return bool(_IS_MINE.match(after) and _SECRET_WORD.search(after))


def _ends_in_a_heading(text: str, end: int) -> bool:
    """True if the line above speaks of what is below it: it ends in a colon, and is no line of code."""
    line = text[max(0, end - _LONGEST_HEADING) : end].rstrip().rpartition("\n")[2]
    return line.endswith((":", "\uff1a")) and not _CODE.match(line)


def _encoded(text: str) -> Iterator[Span]:
    """Yield base64 and hexadecimal whose plain text holds a secret."""
    for match in _BASE64.finditer(text):
        plain = decoded(match.group(1)) or (unhexed(match.group(1)) if match.group(1).isalnum() else "")
        if plain and any(True for _ in run(_rows(), plain, plain.lower())):
            yield Span("secret", *match.span(1))


# ---------------------------------------------------------------- seed phrases
# Twelve or more words in a row, all of the BIP-39 list, which holds no article, no "and", "of", "to", "is": a
# sentence does not stay inside it for twelve words. Other wallets have other lists (Monero, Electrum): what
# is called a seed phrase is one if no such word is in it.
_SHORTEST = 12
_RUN = b"\x01" * _SHORTEST
_ALL_WORDS = re.compile("[a-z]+")
_WORDS = re.compile(r"(?<![A-Za-z])(?:[a-z]{3,8}|[A-Z][a-z]{2,7}|[A-Z]{3,8})(?![A-Za-z])")
_NAMED = re.compile(
    r"\b(?:seed|mnemonic|recovery|wallet|monero|electrum|backup|secret)"
    r"(?: (?:seed|recovery|backup|secret|mnemonic))?"
    r" ?(?:phrases?|words?|seeds?|mnemonics?)?\b[^\n.]{0,40}?(?::|=|\bis\b|\bare\b)\s{0,3}\"?"
    r"((?:[a-z]{3,12}[ \n,]{1,3}){11,24}[a-z]{3,12})"
)
_OF_SENTENCES = frozenset(
    "the and for you that with this your was are not but have has from they will can our who which should"
    " must would could into when where than then been were what there their about written stored".split()
)
_GAP = re.compile(r"[\s,;.:)|/\"'*-]{1,6}(?:\d{1,2}[\s.:)]{1,3})?")  # also a numbered list


@cache
def _list() -> frozenset[str]:
    return frozenset(Mnemonic("english").wordlist)


def seed_phrases(text: str, lowered: str) -> Iterator[Span]:
    """Yield the seed phrases of a text. Capitals end one that is in small letters: a sentence begins.

    `lowered` is the text in lower case; nearly every text is done with after a look at it.
    """
    yield from _named(lowered)
    words = _list()
    if _RUN not in bytes(map(words.__contains__, _ALL_WORDS.findall(lowered))):
        return
    count, first, last, case = 0, 0, -1, ""
    for word in _WORDS.finditer(text):
        if word.group().lower() not in words:
            continue
        if count and _case(word.group()) == case and _GAP.fullmatch(text, last, word.start()):
            count, last = count + 1, word.end()
            continue
        if count >= _SHORTEST:
            yield Span("secret", first, last)
        count, first, last, case = 1, word.start(), word.end(), _case(word.group())
    if count >= _SHORTEST:
        yield Span("secret", first, last)


def _named(lowered: str) -> Iterator[Span]:
    """Yield what is called a seed phrase and is no sentence."""
    if not any(word in lowered for word in ("seed", "mnemonic", "phrase", "wallet", "monero", "electrum")):
        return
    for found in _NAMED.finditer(lowered):
        if _OF_SENTENCES.isdisjoint(re.findall("[a-z]+", found[1])):
            yield Span("secret", *found.span(1))


def _case(word: str) -> str:
    return "small" if word.islower() else "large" if word.isupper() else "title"
