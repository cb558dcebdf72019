"""Find the seed phrases of wallets: twelve or more words in a row, all of the BIP-39 list.

The list holds no article, no "and", "of", "to", "is": a sentence does not stay inside it for twelve words.
Other wallets have other lists (Monero, Electrum): what is called a seed phrase is one if no such word is
in it.
"""

import re
from collections.abc import Iterator
from functools import cache

from mnemonic import Mnemonic

from proxy.background.safety.detect import Span

SHORTEST = 12
_RUN = b"\x01" * SHORTEST
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


def find(text: str, lowered: str) -> Iterator[Span]:
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
        if count >= SHORTEST:
            yield Span("secret", first, last)
        count, first, last, case = 1, word.start(), word.end(), _case(word.group())
    if count >= SHORTEST:
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
