"""What may be stored: the policy, redaction of secrets and personal data, and planted instructions.

Personal data are numbers that identify a person or an account, and contact data. Their patterns are the rules
of personal_data.toml. Check digits are python-stdnum's. A number whose checksum proves little counts only
next to its name.

Planted instructions are found by their form: text that hides from people, or poses as part of a prompt.
Markup that no screen shows, characters that no font draws, the control tokens of chat templates, a line that
opens with the name of a role, our own block, and base64 of any of these. What a text says in plain words is
judged by the statement head, in every language (see learn/extractor).
"""

import ipaddress
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from hashlib import blake2b
from importlib import import_module
from typing import Any

from proxy.admit import secrets
from proxy.admit.detection import Detector, Finding, decoded, load_rules, readable, run, views
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


# ---------------------------------------------------------------- personal data
def _digits(text: str) -> str:
    return "".join(c for c in text if c.isdecimal())


@cache
def _valid(*countries: str) -> Callable[[str], bool]:
    """Return the check that a number is one of these of python-stdnum's modules."""
    modules: list[Any] = [import_module(f"stdnum.{name}") for name in countries]

    def is_valid(value: str) -> bool:
        for module in modules:
            with suppress(LookupError):  # a region that python-stdnum (2.2) does not know
                if module.is_valid(value):
                    return True
        return False

    return is_valid


_ISSUERS = re.compile(
    r"4\d{15}|4\d{18}|5[1-5]\d{14}|2(?:2[2-9]|[3-6]\d|7[01])\d{13}|3[47]\d{13}|3(?:0[0-5]|[68]\d)\d{11}"
    r"|6(?:011|5\d\d|4[4-9]\d)\d{12}|35\d{14}|62\d{14,17}|(?:50|5[6-8]|63|67)\d{14}|220[0-4]\d{12}|9792\d{12}"
)


def _is_card(text: str) -> bool:
    digits = _digits(text)
    return bool(_ISSUERS.fullmatch(digits)) and len(set(digits)) > 1 and _valid("luhn")(digits)


def _is_iban(text: str) -> bool:
    compact = "".join(c for c in text if c.isalnum()).upper()
    if not 15 <= len(compact) <= 34 or not compact.isascii():
        return False
    return int("".join(str(int(c, 36)) for c in compact[4:] + compact[:4])) % 97 == 1


def _has_digits(text: str, least: int) -> bool:
    """True for this many digits, unless they are a date."""
    is_date = re.match(r"(?:19|20)\d\d-\d\d-\d\d|\d\d[./]\d\d[./]\d{4}", text)
    return len(_digits(text)) >= least and not is_date


def _is_ip_address(text: str) -> bool:
    """True for an IP address that belongs to a network: not loopback and the like."""
    try:
        address = ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified or address.is_multicast or int(address) < 2**24)


def _is_chinese_id(text: str) -> bool:
    """True for 18 characters with a right check digit, even if the date or the county is invented."""
    number = re.sub("[ -]", "", text)
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    total = sum(w * int(d) for w, d in zip(weights, number[:17], strict=True))
    return "10X98765432"[total % 11] == number[17].upper()


def _is_taiwanese_id(number: str) -> bool:
    """True for a letter and nine digits (mod 10)."""
    first = "ABCDEFGHJKLMNPQRSTUVXYWZIO".find(number[0]) + 10
    weights = (8, 7, 6, 5, 4, 3, 2, 1, 1)
    total = first // 10 + first % 10 * 9 + sum(w * int(d) for w, d in zip(weights, number[1:], strict=True))
    return total % 10 == 0


def _is_hong_kong_id(number: str) -> bool:
    """True for a letter or two, six digits and a check digit (mod 11)."""
    compact = re.sub(r"[^A-Z0-9]", "", number.upper())
    letters, digits, check = compact[:-7], compact[-7:-1], compact[-1]
    if len(letters) not in (1, 2):
        return False
    values = [36] * (2 - len(letters)) + [ord(c) - 55 for c in letters] + [int(d) for d in digits]
    total = sum(weight * value for weight, value in zip(range(9, 1, -1), values, strict=True))
    return (total + (10 if check == "A" else int(check))) % 11 == 0


_CHECKS: Mapping[str, Callable[[str], bool]] = {
    "has_5_digits": partial(_has_digits, least=5),
    "has_6_digits": partial(_has_digits, least=6),
    "is_card": _is_card,
    "is_chinese_id": _is_chinese_id,
    "is_hong_kong_id": _is_hong_kong_id,
    "is_iban": _is_iban,
    "is_ip_address": _is_ip_address,
    "is_long_address": lambda text: len(text) > 6 and _is_ip_address(text),
    "is_machine_readable": lambda text: "<<" in text,
    "is_taiwanese_id": _is_taiwanese_id,
}


def _check_of(rule: Mapping[str, str]) -> Callable[[str], bool]:
    if modules := rule.get("stdnum"):
        return lambda value: _valid(*modules.split())(value.upper())
    return _CHECKS[rule["check"]] if "check" in rule else bool


_RULES = load_rules("personal_data", _check_of)


@cache
def _rows(classes: frozenset[str]) -> tuple[Detector, ...]:
    """Return the detectors of these classes of personal data."""
    return tuple(row for row in _RULES.detectors if row.kind in classes)


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
    found, rows = list[Finding](), _rows(policy.classes())
    for view in views(text):
        lowered = view.lowered()
        spans = (*secrets.find(view.text, lowered), *run(rows, view.text, lowered))
        found += (Finding(kind, *view.span(start, end)) for kind, start, end in spans)
    merged: list[Finding] = []
    for span in sorted(found, key=lambda s: (s.start, -s.end)):
        if merged and span.start < merged[-1].end:
            last = merged[-1]
            # A rejected class decides for what it overlaps.
            kind = last.kind if policy.of(last.kind) == REJECT else span.kind
            merged[-1] = Finding(kind, last.start, max(last.end, span.end))
        else:
            merged.append(span)
    return [s for s in merged if policy.of(s.kind) != ALLOW]


def redact(text: str, policy: SafetyPolicy = DEFAULT) -> str:
    """Return the text with secrets, and personal data that the policy does not allow, replaced. Idempotent:
    a removal may bring a word next to another value, so the result is searched again."""
    for _ in range(_PASSES):
        spans = find(text, policy)
        if not spans:
            break
        parts, at = list[str](), 0
        for kind, start, end in spans:
            parts += (text[at:start], policy.marker(kind))
            at = end
        text = "".join(parts) + text[at:]
    return text


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
        rows = (*secrets.shapes(), *_rows(DEFAULT.classes()))
        safe = _JUDGED[digest] = not any(True for _ in run(rows, given, given.lower()))
    return given if safe else f"id-{digest.hex()}"


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
    if candidate.type not in KINDS:
        return "type"
    if len(content) < 3 or not any(c.isalnum() for c in content):
        return "empty"
    if len(content) > MAX_CONTENT.get(candidate.type, _MAX_CONTENT):
        return "too_long"
    if "\ufffd" in content or (not content.isprintable() and any(ord(c) < 9 for c in content)):
        return "garbled"
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
    parts, begin = list[str](), 0
    while begin < len(content):
        end = begin + PORTION_CHARS
        if end < len(content):
            found = ((content.rfind(mark, begin + PORTION_CHARS // 2, end), len(mark)) for mark in _CUTS)
            end = next((place + length for place, length in found if place > 0), end)
        part, begin = clean(content[begin:end], policy), end
        if parts:
            at, to = _space(parts[-1], len(parts[-1]) - SEAM_CHARS), _space(part, SEAM_CHARS)
            seam = clean(parts[-1][at:] + part[:to], policy)
            parts[-1:] = [parts[-1][:at], seam]
            part = part[to:]
        parts.append(part)
    return "".join(parts)


def _space(text: str, at: int) -> int:
    """Return a place near `at`, and inside the text, that splits no word."""
    at = min(max(at, 0), len(text))
    found = re.compile(r"\s").search(text, at, at + _LONGEST_WORD)
    return found.start() if found and at else at
