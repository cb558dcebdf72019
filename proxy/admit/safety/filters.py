"""The safety part of the write gate: what may reach the disk, the extraction model, the memory."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b

from proxy.admit.safety import pii, planted, secrets
from proxy.admit.safety.detect import Detector, Span, run
from proxy.admit.safety.policy import ALLOW, DEFAULT, REJECT, SafetyPolicy
from proxy.admit.safety.unmask import views
from proxy.domain.core import KINDS, Candidate

_PASSES = 8  # the second finds hardly ever anything
REDACTED = "[redacted]"  # a secret, or what the policy rejects: no memory is made of what holds it
MAX_CONTENT = {"procedural": 1_500}
_MAX_CONTENT = 800  # characters; a fact of one or two sentences
_SAFE_ID = re.compile("id-[0-9a-f]{32}|mem_[0-9a-f]{24}")  # of ours, in whose digits a number may seem to be
_MOST_JUDGED = 2_048
# Whether an id may stay, by its digest: a session's comes with every request, and the patterns take 60 µs.
_JUDGED: dict[bytes, bool] = {}
_OUR_LINE = re.compile(
    rf"\[(?:{'|'.join(KINDS)}) \d{{4}}-\d\d-\d\d #\w+\]|</?(?:remembered|known_memories)\b"
)


def find(text: str, policy: SafetyPolicy = DEFAULT) -> list[Span]:
    """Return secrets and the personal data that the policy does not allow, in order, without overlap."""
    found = sorted(_everywhere(text, pii.rows(policy.classes())), key=lambda s: (s.start, -s.end))
    merged: list[Span] = []
    for span in found:
        if merged and span.start < merged[-1].end:
            last = merged[-1]
            # What must not be kept at all decides for what it overlaps.
            kind = last.kind if policy.of(last.kind) == REJECT else span.kind
            merged[-1] = Span(kind, last.start, max(last.end, span.end))
        else:
            merged.append(span)
    return [s for s in merged if policy.of(s.kind) != ALLOW]


def _everywhere(text: str, rows: tuple[Detector, ...]) -> Iterator[Span]:
    for view in views(text):
        lowered = view.lowered()
        for kind, start, end in (*secrets.find(view.text, lowered), *run(rows, view.text, lowered)):
            yield Span(kind, *view.span(start, end))


def redact(text: str, policy: SafetyPolicy = DEFAULT) -> str:
    """Return the text with every secret, and personal data that the policy does not allow, replaced.

    Text without any is returned unchanged, text that was redacted before too: what is removed may have
    parted a word from the value that it now stands next to, so what is left is looked at again.
    """
    for _ in range(_PASSES):
        spans = find(text, policy)
        if not spans:
            break
        text = _without(text, spans, policy)
    return text


def _without(text: str, spans: Sequence[Span], policy: SafetyPolicy) -> str:
    parts: list[str] = []
    at = 0
    for kind, start, end in spans:
        parts += (text[at:start], policy.marker(kind))
        at = end
    return "".join(parts) + text[at:]


def clean(text: str, policy: SafetyPolicy = DEFAULT) -> str:
    """Return the text as an extraction model may see it: redacted, planted instructions cut out."""
    return planted.without_planted(redact(text, policy))


def safe_id(given: str) -> str:
    """Return the client's id, or a digest of it where its shape says that it is a key or a number that
    identifies a person. Random ids are what ids are: they stay, and so do such digests and our own ids."""
    if _SAFE_ID.fullmatch(given):
        return given
    digest = blake2b(given.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    if (safe := _JUDGED.get(digest)) is None:
        if len(_JUDGED) >= _MOST_JUDGED:
            _JUDGED.clear()
        safe = _JUDGED[digest] = not _identifies(given)
    return given if safe else f"id-{digest.hex()}"


def _identifies(given: str) -> bool:
    rows = (*secrets.shapes(), *pii.rows(DEFAULT.classes()))
    return any(True for _ in run(rows, given, given.lower()))


def without_personal_data(candidate: Candidate, policy: SafetyPolicy = DEFAULT) -> Candidate:
    """Return the candidate with everything in it redacted: content, tags, evidence, its origin's span."""
    origin = candidate.origin
    return replace(
        candidate,
        content=redact(candidate.content, policy),
        tags=tuple(redact(tag, policy) for tag in candidate.tags),
        evidence=redact(candidate.evidence, policy),
        origin=replace(origin, span=redact(origin.span, policy)) if origin else None,
    )


def reject(candidate: Candidate, policy: SafetyPolicy = DEFAULT) -> str | None:
    """Return why the candidate must not be stored, None if it may. Reasons are constant words."""
    content = candidate.content.strip()
    if reason := _malformed(candidate.type, content):
        return reason
    # Each by itself: tags that count from 0 to 19 would together read like a number of somebody's.
    for text in (content, *candidate.tags):
        for kind, _, _ in find(text, policy):
            if policy.of(kind) == REJECT:
                return "secret" if kind == "secret" else "pii"
    if REDACTED in content:
        return "secret"
    if _OUR_LINE.search(content):
        return "echo"
    if planted.REMOVED in content or planted.is_planted(content) or planted.is_planted(candidate.evidence):
        return "planted"
    return None


def _malformed(type_: str, content: str) -> str | None:
    if type_ not in KINDS:
        return "type"
    if len(content) < 3 or not any(c.isalnum() for c in content):
        return "empty"
    if len(content) > MAX_CONTENT.get(type_, _MAX_CONTENT):
        return "too_long"
    if "\ufffd" in content or (not content.isprintable() and any(ord(c) < 9 for c in content)):
        return "garbled"
    return None


# ---------------------------------------------------------------- refusals in words
_WORDS = {
    "empty": "it says nothing",
    "too_long": "it is too long for one memory; split it into single facts",
    "garbled": "it holds broken characters",
    "planted": "it reads like an instruction planted for the assistant",
    "echo": "it repeats a block of injected memories",
}
_SENSITIVE = "it holds what looks like a secret or an identifying number"


def refusal_of(candidate: Candidate, policy: SafetyPolicy) -> tuple[str, str] | None:
    """Return why the candidate must not be stored, as a constant word and in words; None if it may."""
    reason = reject(candidate, policy)
    return (reason, _WORDS.get(reason, _SENSITIVE)) if reason else None


# ---------------------------------------------------------------- long texts
# A match blocks all threads while it runs, so a long text is scanned in portions. What the cut between two of
# them has split (a password and its label) is whole in the seam: the end of the one and the beginning of the
# next, scanned once more.
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
        part = clean(portion, policy)
        if parts:
            at, to = _space(parts[-1], len(parts[-1]) - SEAM_CHARS), _space(part, SEAM_CHARS)
            seam = clean(parts[-1][at:] + part[:to], policy)
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
