"""A long text made safe as messages are: nothing of it reaches the disk that the write gate would not let in.

A pattern holds up all threads while it looks through a text, so the text is read in portions. What the cut
between two of them parted, a password from its name, an instruction in the middle, is whole in the seam: the
end of the one and the beginning of the other, read once more.
"""

import re
from collections.abc import Iterator, Sequence

from proxy.background import filters, planted
from proxy.background.policy import DEFAULT, SafetyPolicy

PORTION_CHARS = 20_000
SEAM_CHARS = 2_000  # on either side of a cut
_LONGEST_WORD = 300  # no secret has a space in it; what is longer is none
# Where to cut, best first: at a blank line, a line, a space, a sign between values.
_CUTS = ("\n\n", "\n", " ", ",", ";")
# A line that does not go on with the one above it: of a list, a table, a heading, a fence, nothing at all;
# and one that nothing goes on with.
_BEGINS = re.compile(r"\s*(?:$|[-*+]\s|[|#]|`{3}|~{3}|\d{1,9}[.)]\s)")
_ENDS = re.compile(r"\s*(?:$|#|`{3}|~{3})")
_QUOTED = re.compile(r"^[\s>]+")


def cleaned(content: str, policy: SafetyPolicy = DEFAULT) -> str:
    """Return the text without secrets, without personal data that the policy rejects, without instructions
    planted for assistants: marks stand in their place."""
    parts: list[str] = []
    for portion in _portions(content):
        part = _clean(portion, policy)
        if parts:
            at, to = _space(parts[-1], len(parts[-1]) - SEAM_CHARS), _space(part, SEAM_CHARS)
            seam = _clean(parts[-1][at:] + part[:to], policy)
            parts[-1:] = [parts[-1][:at], seam]
            part = part[to:]
        parts.append(part)
    return "".join(parts)


def _clean(text: str, policy: SafetyPolicy) -> str:
    return "".join(map(_unwrapped, _paragraphs(filters.clean(text, policy))))


def _portions(content: str) -> Iterator[str]:
    """Yield the text in parts of bounded length, cut where it means the least."""
    at = 0
    while at < len(content):
        end = at + PORTION_CHARS
        if end < len(content):
            found = ((content.rfind(mark, at + PORTION_CHARS // 2, end), len(mark)) for mark in _CUTS)
            end = next((place + length for place, length in found if place > 0), end)
        yield content[at:end]
        at = end


def _space(text: str, at: int) -> int:
    """Return a place near `at`, and inside the text, that parts no word."""
    at = min(max(at, 0), len(text))
    found = re.compile(r"\s").search(text, at, at + _LONGEST_WORD)
    return found.start() if found and at else at


# ---------------------------------------------------------------- wrapped lines
def _paragraphs(text: str) -> Iterator[Sequence[str]]:
    """Yield the lines, with their ends, of what reads as one: a paragraph, an item of a list, a row."""
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        if lines and (_BEGINS.match(line) or _ENDS.match(lines[-1])):
            yield lines
            lines = []
        lines.append(line)
    if lines:
        yield lines


def _unwrapped(lines: Sequence[str]) -> str:
    """Return the lines; on one, and cut, where an instruction runs over an end of line. (A pattern stops
    there, since in a message lines are sentences.)"""
    text = "".join(lines)
    if len(lines) < 2:
        return text
    end = text[len(text.rstrip("\r\n")) :]
    joined = " ".join(_QUOTED.sub("", line).strip() for line in lines)
    return planted.without_planted(joined) + end if planted.is_planted(joined) else text
