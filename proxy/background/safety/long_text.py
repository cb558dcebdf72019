"""Apply the safety filters to a long text, so that no part of it is stored that the write gate would refuse
in a message.

A pattern match blocks all threads while it runs, so the text is scanned in portions. Something that the cut
between two portions has split (a password and its label, an instruction) is whole in the seam: the end of
the one portion and the beginning of the next, scanned once more.
"""

import re
from collections.abc import Iterator

from proxy.background.safety import filters
from proxy.background.safety.policy import DEFAULT, SafetyPolicy

PORTION_CHARS = 20_000
SEAM_CHARS = 2_000  # on either side of a cut
_LONGEST_WORD = 300  # no secret has a space in it; what is longer is none
# Where to cut, best first: at a blank line, a line, a space, a sign between values.
_CUTS = ("\n\n", "\n", " ", ",", ";")


def cleaned(content: str, policy: SafetyPolicy = DEFAULT) -> str:
    """Return the text without secrets, without personal data that the policy rejects, without instructions
    planted for assistants: marks stand in their place."""
    parts: list[str] = []
    for portion in _portions(content):
        part = filters.clean(portion, policy)
        if parts:
            at, to = _space(parts[-1], len(parts[-1]) - SEAM_CHARS), _space(part, SEAM_CHARS)
            seam = filters.clean(parts[-1][at:] + part[:to], policy)
            parts[-1:] = [parts[-1][:at], seam]
            part = part[to:]
        parts.append(part)
    return "".join(parts)


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
