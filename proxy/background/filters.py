"""The safety part of the write gate: what may reach the disk, the extraction model, the memory."""

import re

from proxy.background import planted, secrets
from proxy.domain import KINDS, Candidate

REDACTED = "[redacted]"
MAX_CONTENT = {"procedural": 1_500}
_MAX_CONTENT = 800  # characters; a fact of one or two sentences
_OUR_LINE = re.compile(
    rf"\[(?:{'|'.join(KINDS)}) \d{{4}}-\d\d-\d\d #\w+\]|</?(?:remembered|known_memories)\b"
)


def redact(text: str) -> str:
    """Return the text with every secret and identifying number replaced by [redacted]."""
    spans = sorted((start, end) for _, start, end in secrets.find(text))
    if not spans:
        return text
    parts: list[str] = []
    at = 0
    for start, end in spans:
        if start >= at:
            parts += (text[at:start], REDACTED)
        at = max(at, end)
    return "".join(parts) + text[at:]


def clean(text: str) -> str:
    """Return the text as an extraction model may see it: redacted, planted instructions cut out."""
    return planted.without_planted(redact(text))


def reject(candidate: Candidate) -> str | None:
    """Return why the candidate must not be stored, None if it may. Reasons are constant words."""
    content = candidate.content.strip()
    if candidate.type not in KINDS:
        return "type"
    if len(content) < 3 or not any(c.isalnum() for c in content):
        return "empty"
    if len(content) > MAX_CONTENT.get(candidate.type, _MAX_CONTENT):
        return "too_long"
    if "�" in content or (not content.isprintable() and any(ord(c) < 9 for c in content)):
        return "garbled"
    for kind, _, _ in secrets.find("\n".join((content, *candidate.tags))):
        return kind
    if REDACTED in content:
        return "secret"
    if planted.REMOVED in content or planted.is_planted(content) or planted.is_planted(candidate.evidence):
        return "planted"
    if _OUR_LINE.search(content):
        return "echo"
    return None
