"""What may be stored: the policy, redaction of secrets and personal data, and planted instructions.

Planted instructions are found by their form: text that hides from people, or poses as part of a prompt.
Markup that no screen shows, characters that no font draws, the control tokens of chat templates, a line that
opens with the name of a role, our own block, and base64 of any of these. What a text says in plain words is
judged by the statement head, in every language (see learn/extractor).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from proxy.admit import personal_data, secrets
from proxy.admit.deobfuscation import decoded, readable, views
from proxy.admit.detection import Detector, Finding, run
from proxy.domain.core import KINDS, Candidate

# ---------------------------------------------------------------- policy
ALLOW, REDACT, REJECT = "allow", "redact", "reject"

# Class -> how its marker reads.
_CONTACT = {"email": "e-mail", "phone": "phone number", "address": "address", "ip_address": "ip address"}
PII: Mapping[str, str] = _CONTACT | {
    "card": "card number",
    "bank_account": "bank account",
    "national_id": "national id",
    "passport": "passport number",
}
DEFAULT_PII: Mapping[str, str] = {name: ALLOW if name in _CONTACT else REJECT for name in PII}


@dataclass(frozen=True, slots=True)
class SafetyPolicy:
    """allow: stored as said. redact: replaced by a marker. reject: as redact, and no memory is made of a
    statement that holds it."""

    pii: Mapping[str, str] = field(default_factory=lambda: DEFAULT_PII)
    quarantine: bool = True  # doubtful candidates are held for review; False: dropped

    def __hash__(self) -> int:
        return hash((frozenset(self.pii.items()), self.quarantine))

    def of(self, kind: str) -> str:
        """Return the policy of a kind of span. A secret's is always to reject."""
        return self.pii.get(kind, REJECT)

    def marker(self, kind: str) -> str:
        """Return what replaces a removed span."""
        return f"[redacted {PII[kind]}]" if self.of(kind) == REDACT else "[redacted]"

    def classes(self) -> frozenset[str]:
        """Return the classes of personal data that are looked for."""
        return frozenset(name for name in PII if self.of(name) != ALLOW)


DEFAULT = SafetyPolicy()


# ---------------------------------------------------------------- planted instructions
REMOVED = "[removed]"

# What is not closed reaches to the end: a search that cannot fail is linear, a bounded one would be tried
# again at every opening.
_STYLE = (
    r"(?:display\s{0,3}:\s{0,3}none|visibility\s{0,3}:\s{0,3}hidden|font-size\s{0,3}:\s{0,3}0"
    r"|opacity\s{0,3}:\s{0,3}0(?!\.)|color\s{0,3}:\s{0,3}(?:white|#fff|transparent)"
    r"|aria-hidden\s{0,3}=\s{0,3}[\"']?true|text-indent\s{0,3}:\s{0,3}-\d{3}|\shidden\b)"
)
_HIDDEN = re.compile(
    rf"<!--.*?(?:-->|\Z)"
    rf"|<(?P<tag>\w{{1,20}})[^<>]{{0,300}}{_STYLE}[^<>]{{0,300}}>.*?(?:</(?P=tag)\s{{0,3}}>|\Z)"
    r"|\[(?://|comment|_)\]:\s{0,3}#[^\n]*",
    re.DOTALL | re.IGNORECASE,
)
# Tag characters spell ASCII that no screen shows; directional overrides show another order.
_UNSEEN = re.compile("[\U000e0000-\U000e007f\u202a-\u202e\u2066-\u2069]")
_ROLE = r"(?:system|developer|assistant|user|tool)"
_POSES = re.compile(
    rf"<\|(?:im_start|im_end|{_ROLE}|start_header_id|eot_id|endoftext)\|>|\[/?INST\]|</?SYS>>|<<SYS>>"
    r"|</?(?:system|system[_-](?:prompt|message|reminder)|developer|instructions?|memory[_-]?(?:update)?)>"
    r"|[\[【](?:system|developer)(?: message)?[\]】]"
    r"|^\W{0,5}(?:system|developer)(?: (?:prompt|message))?\s{0,2}[:\uff1a]"
    r"|^#{1,4}\s{0,3}(?:system(?: prompt| message)?|instructions?)\s{0,2}(?::|$)"
    rf"|[\"']role[\"']\s{{0,3}}:\s{{0,3}}[\"']{_ROLE}[\"']|\b\w*memory(?:\.\w+)?\([\"'\w]"
    r"|</?(?:remembered|known_memories)\b|\[(?:semantic|preference|episodic|procedural)"
    r" \d{4}-\d\d-\d\d #\w{1,40}\]",
    re.IGNORECASE | re.MULTILINE,
)
_START = re.compile(r"[.!?]\s|[。\uff01\uff1f\"”“‘„«「『'{\[【\n]")  # a sentence begins after one
_HEADING = 40  # characters: a sign with less after it announces the lines below
_BASE64 = re.compile(r"(?<![\w+/=-])[A-Za-z0-9+/_-]{24,4000}={0,2}(?![\w+/=-])")


def is_planted(text: str) -> bool:
    """True if the text holds a planted instruction, plain, disguised or encoded."""
    seen = readable(text)
    return bool(_HIDDEN.search(seen) or _POSES.search(seen) or _revealed(seen) != seen)


def without_planted(text: str) -> str:
    """Return the text without hidden markup, each line cut where a planted instruction begins. One with
    little after it announces the lines below, which are removed up to the next empty line."""
    text = _revealed(_HIDDEN.sub(REMOVED, text if text.isascii() else _UNSEEN.sub("", text)))
    if not _POSES.search(readable(text)):
        return text
    lines: list[str] = []
    announced = False
    for line in text.split("\n"):
        announced = announced and bool(line.strip())
        if announced:
            continue
        seen = readable(line)
        sign = _POSES.search(seen)
        if sign is None:
            lines.append(line)
            continue
        starts = [m.end() for m in _START.finditer(seen, 0, sign.start())]
        lines.append(seen[: starts[-1] if starts else 0] + REMOVED)
        announced = len(seen) - sign.end() < _HEADING
    return "\n".join(lines)


def _revealed(text: str) -> str:
    """Return the text with base64 of a planted instruction removed."""
    return _BASE64.sub(lambda m: REMOVED if _POSES.search(decoded(m.group())) else m.group(), text)


# ---------------------------------------------------------------- redaction
_PASSES = 8  # the second finds hardly ever anything
REDACTED = "[redacted]"  # a secret, or what the policy rejects: no memory is made of what holds it
MAX_CONTENT = {"procedural": 1_500}
_MAX_CONTENT = 800  # characters; a fact of one or two sentences
_SAFE_ID = re.compile("id-[0-9a-f]{32}|mem_[0-9a-f]{24}")  # our own, whose digits may look like a number
_MOST_JUDGED = 2_048
# By digest, whether an id may stay: a session's comes with every request, and the patterns take 60 µs.
_JUDGED: dict[bytes, bool] = {}
_OUR_LINE = re.compile(
    rf"\[(?:{'|'.join(KINDS)}) \d{{4}}-\d\d-\d\d #\w+\]|</?(?:remembered|known_memories)\b"
)


def find(text: str, policy: SafetyPolicy = DEFAULT) -> list[Finding]:
    """Return secrets and the personal data that the policy does not allow, in order, without overlap."""
    found = sorted(_everywhere(text, personal_data.rows(policy.classes())), key=lambda s: (s.start, -s.end))
    merged: list[Finding] = []
    for span in found:
        if merged and span.start < merged[-1].end:
            last = merged[-1]
            # A rejected class decides for what it overlaps.
            kind = last.kind if policy.of(last.kind) == REJECT else span.kind
            merged[-1] = Finding(kind, last.start, max(last.end, span.end))
        else:
            merged.append(span)
    return [s for s in merged if policy.of(s.kind) != ALLOW]


def _everywhere(text: str, rows: tuple[Detector, ...]) -> Iterator[Finding]:
    for view in views(text):
        lowered = view.lowered()
        for kind, start, end in (*secrets.find(view.text, lowered), *run(rows, view.text, lowered)):
            yield Finding(kind, *view.span(start, end))


def redact(text: str, policy: SafetyPolicy = DEFAULT) -> str:
    """Return the text with secrets, and personal data that the policy does not allow, replaced. Idempotent:
    a removal may bring a word next to another value, so the result is searched again."""
    for _ in range(_PASSES):
        spans = find(text, policy)
        if not spans:
            break
        text = _without(text, spans, policy)
    return text


def _without(text: str, spans: Sequence[Finding], policy: SafetyPolicy) -> str:
    parts: list[str] = []
    at = 0
    for kind, start, end in spans:
        parts += (text[at:start], policy.marker(kind))
        at = end
    return "".join(parts) + text[at:]


def clean(text: str, policy: SafetyPolicy = DEFAULT) -> str:
    """Return the text as an extraction model may see it: redacted, planted instructions cut out."""
    return without_planted(redact(text, policy))


def safe_id(given: str) -> str:
    """Return the client's id, or a digest of it if it has the shape of a key or of a number that identifies a
    person. Random ids stay, as do such digests and our own ids."""
    if _SAFE_ID.fullmatch(given):
        return given
    digest = blake2b(given.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    if (safe := _JUDGED.get(digest)) is None:
        if len(_JUDGED) >= _MOST_JUDGED:
            _JUDGED.clear()
        safe = _JUDGED[digest] = not _identifies(given)
    return given if safe else f"id-{digest.hex()}"


def _identifies(given: str) -> bool:
    rows = (*secrets.shapes(), *personal_data.rows(DEFAULT.classes()))
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
    # Each by itself: tags that count from 0 to 19 would together read like a phone number.
    for text in (content, *candidate.tags):
        for kind, _, _ in find(text, policy):
            if policy.of(kind) == REJECT:
                return "secret" if kind == "secret" else "pii"
    if REDACTED in content:
        return "secret"
    if _OUR_LINE.search(content):
        return "echo"
    if REMOVED in content or is_planted(content) or is_planted(candidate.evidence):
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
# A match blocks all threads while it runs, so a long text is scanned in portions. What a cut splits (a
# password and its label) is whole in the seam, the end of one portion and the beginning of the next, which is
# scanned again.
PORTION_CHARS = 20_000
SEAM_CHARS = 2_000  # on either side of a cut
_LONGEST_WORD = 300  # characters
# Where to cut, best first: at a blank line, a line, a space, a sign between values.
_CUTS = ("\n\n", "\n", " ", ",", ";")


def cleaned(content: str, policy: SafetyPolicy = DEFAULT) -> str:
    """Return a long text with secrets, personal data that the policy rejects, and planted instructions
    replaced by marks."""
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
    """Yield the text in parts of bounded length, cut at the best of _CUTS."""
    at = 0
    while at < len(content):
        end = at + PORTION_CHARS
        if end < len(content):
            found = ((content.rfind(mark, at + PORTION_CHARS // 2, end), len(mark)) for mark in _CUTS)
            end = next((place + length for place, length in found if place > 0), end)
        yield content[at:end]
        at = end


def _space(text: str, at: int) -> int:
    """Return a place near `at`, and inside the text, that splits no word."""
    at = min(max(at, 0), len(text))
    found = re.compile(r"\s").search(text, at, at + _LONGEST_WORD)
    return found.start() if found and at else at
