"""Lists of words that patterns are made of, or that are looked up: data in `words/*.txt`, not code.

A file has sections, `[name]`, of alternatives: a line is a word, a phrase, a regular expression of one, or a
row of a table; the head of the file says which. `#` begins a line of comment. What is logic, in which order
phrases follow each other, stays in the code.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path

_FOLDER = Path(__file__).with_name("words")
_SECTION = re.compile(r"\[([^\]]+)\]")
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


@cache
def sections(name: str | Path) -> Mapping[str, Sequence[str]]:
    """Return the alternatives of each section of a file, in their order. `name`: of one of `words/*.txt`, or
    the path of another one."""
    found: dict[str, list[str]] = {}
    section: list[str] = []
    file = name if isinstance(name, Path) else _FOLDER / f"{name}.txt"
    for line in file.read_text("utf-8").splitlines():
        if line.startswith("[") and (heading := _SECTION.fullmatch(line)):
            section = found.setdefault(heading[1], [])
        elif line and not line.startswith("#"):
            section.append(line)
    return found


def words(name: str, section: str) -> frozenset[str]:
    """Return the section's lines as they stand, for looking words up.

    Raises KeyError where the file has no such section."""
    return frozenset(sections(name)[section])


def any_of(name: str, section: str) -> str:
    """Return the pattern, a group, of any of the section's alternatives.

    Raises KeyError where the file has no such section."""
    return f"(?:{'|'.join(sections(name)[section])})"


def either(*patterns: str) -> str:
    """Return the pattern, a group, of any of the rows of a table."""
    return f"(?:{'|'.join(patterns)})"


def whole_words(name: str, section: str) -> str:
    """Return the pattern of the alternatives as whole words; of Chinese, Japanese and Korean, whose words
    have no edges to be seen, wherever they stand. A pattern without group around it."""
    runs = groupby(sections(name)[section], key=lambda line: bool(_UNSPACED.search(line)))
    return "|".join(
        "|".join(lines) if unspaced else rf"\b(?:{'|'.join(lines)})\b" for unspaced, lines in runs
    )
