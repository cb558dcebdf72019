"""Lists of words that patterns are made of, or that are looked up: data in `words/*.txt`, not code.

A file has sections, `[name]`, of alternatives: a line is a word, a phrase, a regular expression of one, or a
row of a table; the head of the file says which. `#` begins a line of comment. What is logic, in which order
phrases follow each other, stays in the code.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path

from proxy.writing_systems import UNSPACED

_FOLDER = Path(__file__).with_name("words")
_SECTION = re.compile(r"\[([^\]]+)\]")
_EDGE = r"\b"
_REPEATED = frozenset("?*+{")
_GROUP = re.compile(r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|\\.")


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
    return f"(?:{alternatives(sections(name)[section])})"


def either(*patterns: str) -> str:
    """Return the pattern, a group, of any of the rows of a table."""
    return f"(?:{'|'.join(patterns)})"


def whole_words(name: str, section: str) -> str:
    """Return the pattern of the alternatives as whole words; of Chinese, Japanese and Korean, whose words
    have no edges to be seen, wherever they stand. A pattern without group around it."""
    runs = groupby(sections(name)[section], key=lambda line: bool(UNSPACED.search(line)))
    return "|".join(
        alternatives(lines) if unspaced else rf"\b(?:{alternatives(lines)})\b" for unspaced, lines in runs
    )


def alternatives(lines: Iterable[str]) -> str:
    """Return the pattern of any of the lines, the first that fits. A pattern without group around it.

    `re` tries alternatives one by one, at every place of a text. So those that begin with the same letter, or
    with a word's edge, stand together behind it: of hundreds of greetings only those of one letter are tried,
    and inside a word none of those that begin at its edge. (The 85 patterns of `things.txt`, on a question:
    120 → 25 µs.) Where case does not count, the lines must be of one case."""
    found: list[str] = []
    for kind, run in groupby(lines, key=_beginning):
        if not kind:
            found += run
            continue
        # Of different letters only one can fit, so that no order is lost between them.
        rests: dict[str, list[str]] = {}
        for line in run:
            rests.setdefault(line[: len(kind)], []).append(line[len(kind) :])
        found += (
            first + (rest[0] if len(rest) == 1 else f"(?:{alternatives(rest)})")
            for first, rest in rests.items()
        )
    return "|".join(found)


def _beginning(line: str) -> str:
    """Return what the line begins with: an edge, "a" for a letter that stands for itself, once, or ""."""
    if "|" in _GROUP.sub("", line):
        return ""
    if line.startswith(_EDGE):
        return _EDGE
    return "a" if line[:1].isalpha() and line[1:2] not in _REPEATED else ""
