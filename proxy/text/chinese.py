"""Traditional Chinese as simplified, sign by sign: what is written in Taipei or Hong Kong is found by what is
asked in Shanghai, and the word lists, which are simplified, know it.

The table is OpenCC's. Its phrases, which may change a text's length, are left to it: for comparing, signs do.
"""

import re
from functools import cache

_HAN = re.compile("[\u3400-\u9fff]")


def simplified(text: str) -> str:
    """Return the text, as long as it was, with simplified signs for traditional ones."""
    return text.translate(_table()) if _HAN.search(text) else text


@cache
def _table() -> dict[int, str]:
    """Return OpenCC's simplified sign for each traditional one that has one; 8 ms, the first time."""
    import opencc

    convert = opencc.OpenCC("t2s").convert
    signs = [chr(code) for code in range(0x3400, 0xA000)]
    # A line each: two that stand together could be taken for a word. Twice: some have a form between.
    found = convert(convert("\n".join(signs))).split("\n")
    pairs = zip(signs, found, strict=True)
    return {ord(sign): other for sign, other in pairs if sign != other and len(other) == 1}
