"""Join lines that belong to one sentence or paragraph: a mail, a page, a document with hard line breaks.

A pattern stops at the end of a line, since in a message lines are sentences. A sentence that was wrapped
is none the less one, and so is a paragraph that was wrapped at a margin, whatever its lines end with.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

# A line that does not go on with the one above it: of a list, a table, a heading, a fence, nothing at all;
# and one that nothing goes on with.
_BEGINS = re.compile(r"[\s>]*(?:$|[-*+]\s|[|#]|`{3}|~{3}|\d{1,9}[.)]\s)")
_ENDS = re.compile(r"[\s>]*(?:$|#|`{3}|~{3})")
_SENTENCE_ENDS = re.compile(r"[.!?:;\u3002\uff01\uff1f\uff1a\uff1b][\"'”’»」』)\]*_]{0,3}\s*$")
_QUOTED = re.compile(r"^(?:[\s>]|//)+")
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uff00-\uff65]")
_NARROWEST, _FEWEST = 30, 3  # characters and lines of a paragraph that shows its margin


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """Lines that read as one.

    `text`: the lines joined, marked as a quotation if the first is. `starts`: where in it each line begins.
    `margin`: they are of a wrapped paragraph; else each may be somebody's sentence without a full stop."""

    text: str
    starts: Sequence[int]
    margin: bool = False


def unwrapped(lines: Sequence[str], begins: Callable[[str], bool]) -> Iterator[Unwrapped]:
    """Yield the lines, without their ends, as sentences and wrapped paragraphs, each line in one of them.

    `begins`: whether a line begins something whatever stands above it."""
    paragraph: list[str] = []
    for line in lines:
        if paragraph and (_BEGINS.match(line) or _ENDS.match(paragraph[-1]) or begins(line)):
            yield from _sentences(paragraph)
            paragraph = []
        paragraph.append(line)
    yield from _sentences(paragraph)


def _sentences(paragraph: Sequence[str]) -> Iterator[Unwrapped]:
    """Yield the paragraph where a margin ended its lines, else what stands between ends of sentences."""
    if _has_margin(paragraph):
        yield _joined(paragraph, margin=True)
        return
    lines: list[str] = []
    for line in paragraph:
        lines.append(line)
        if _SENTENCE_ENDS.search(line):
            yield _joined(lines)
            lines = []
    if lines:
        yield _joined(lines)


def _joined(lines: Sequence[str], *, margin: bool = False) -> Unwrapped:
    if len(lines) == 1:
        return Unwrapped(lines[0], (0,))
    pieces, starts, at = [lines[0].rstrip()], [0], len(lines[0].rstrip())
    for line in lines[1:]:
        piece = _QUOTED.sub("", line).strip()
        if not (_UNSPACED.match(pieces[-1][-1:]) and _UNSPACED.match(piece)):
            piece = f" {piece}"
        pieces.append(piece)
        starts.append(at + len(piece) - len(piece.lstrip()))
        at += len(piece)
    return Unwrapped("".join(pieces), starts, margin)


def _has_margin(lines: Sequence[str]) -> bool:
    """True if no line could have taken the first word of the next one."""
    width = max(map(len, lines))
    if len(lines) < _FEWEST or width < _NARROWEST:
        return False
    words = (_QUOTED.sub("", line).split(None, 1)[:1] for line in lines[1:])
    return all(
        len(line.rstrip()) + 1 + sum(map(len, word)) > width for line, word in zip(lines, words, strict=False)
    )
