"""Locate JSON values in a model's answer, among code fences and prose, with a bound on the work."""

import re
from collections.abc import Iterator
from typing import Any

from proxy.background.extraction import lenient

_OPENING = re.compile(r"[\[{\uff5b\uff3b]")
_MAX_TRIED = 200  # places where a value may begin
_MAX_READ_AGAIN = 400_000  # characters read in vain, or more than once: some 0.5 s


def values_in(text: str, *, nested: bool) -> Iterator[Any]:
    """Yield the lists and objects that can be read to their end, in the order in which they begin.

    `nested`: also those within others, after them."""
    end = read = 0
    for count, opening in enumerate(_OPENING.finditer(text)):
        if count >= _MAX_TRIED or read > _MAX_READ_AGAIN:
            return
        if (start := opening.start()) < end:
            continue
        try:
            value, after = lenient.read(text, start)
        except lenient.Unclear as e:
            read += e.at - start
            continue
        if nested:
            read += after - start
        else:
            end = after
        yield value
