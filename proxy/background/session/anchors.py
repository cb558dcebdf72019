"""Find a user's standing instructions for the session ("anchors") by rules.

"Answer in Chinese from now on", "keep it short today", "call me Bo", "no more emojis": in force from the very
next turn on, whatever becomes of the conversation that the client sends. They are looked for in each clause
of what the user says in their own words, never in what they quote or paste, and what a rule is not sure of
stays what it is: a message.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from proxy.background.extraction.provenance import told
from proxy.background.safety.filters import REDACTED
from proxy.background.safety.planted import REMOVED, is_planted
from proxy.background.session import anchor_table as table
from proxy.notes import EVERY, LATEST, MOST_ANCHOR_CHARS, MOST_ANCHORS, OTHER, Anchor
from proxy.sentences import sentences
from proxy.terms import plain

_LOOK_AT = 1_000  # characters at each end: what is said about answers stands there, not inside a paste
_MOST_SENTENCE, _MOST_CLAUSE = 400, 160  # characters; longer ones tell something
_CLAUSE = re.compile(
    r"(?:[,;\uff0c\uff1b]|\s[-–—]\s|[,;]?\s(?:and|y|und|et)\b|\uff0c?(?:并且?|而且))\s*", re.IGNORECASE
)
_MARKUP = re.compile(r"</\w")  # of a page that somebody else wrote
_ASKS = re.compile(r"[?\uff1f]\s*$")
_POLITE = re.compile(
    r"\b(?:can|could|would|will) you (?!speak\b)|\b(?:puedes|podrias|kannst du|konntest du|peux-tu"
    r"|pourrais-tu)\b"
    r"|可以|能不能|可不可以|好吗|行吗"
)
_LEAD_IN = re.compile(table.LEAD_IN)
_ROWS = tuple((row.slot, re.compile(row.pattern)) for row in table.ROWS)
_MARKER, _ORDER = re.compile(table.MARKER), re.compile(table.ORDER)
_ONCE, _AGAIN = re.compile(table.ONCE), re.compile(table.AGAIN)
_EVERY, _LATEST = re.compile(table.END_EVERY), re.compile(table.END_LATEST)
# A sentence without any of these words is no instruction about answers: most are, and cost no more.
_HINT = re.compile(
    r"answer|repl|respon|speak|talk|write|switch|keep|short|brief|concise|long|detail|emoji|call|address"
    r"|unit|metric|imperial|celsius|fahrenheit|use |use$|no more|stop|avoid|without|only|bullet|list|table"
    r"|markdown|tone|formal|casual|be (?:more|less|very|a)|from (?:now|here|this)|forward|rest of"
    r"|this (?:chat|conv|sess)"
    r"|forget|scra|never ?mind|ignore|normal|instruct|rules|again|please|don't|do not|explain|words|sentence"
    r"|[用叫说讲别]|不要|简|短|详|语气|以后|今后|接下来|从现在|对话|算了|当我|取消|恢复|正常|正式|长话|控制|最多|称呼|喊我"
    r"|llam|contest|habla|breve|cort|adelante|partir|sin |nada de|usa|olvid|tute|kurz|knapp|auf "
    r"|ab (?:jetzt|sof)"
    r"|kein|ohne|nenn|duz|siez|vergiss|benutz|verwend|repond|parl|ecri|bref|court|appel|tuto|vouv"
    r"|utilis|oubli"
    r"|desormais|pas d|plus d"
)


def anchors_of(said: str) -> tuple[Anchor, ...]:
    """Return the standing instructions that the words set or end, in their order; at most ten.

    `said` is redacted already. Text that held a secret or a planted instruction gives none.
    """
    near = _ends(said)
    if not _HINT.search(_folded(near)) or _MARKUP.search(near):
        return ()
    found: list[Anchor] = []
    for sentence in sentences(told(near)):
        folded = _folded(sentence)
        if len(sentence) > _MOST_SENTENCE or not _HINT.search(folded):
            continue
        set_here = list(_of_sentence(sentence, folded))
        if any(anchor.text for anchor in set_here) and _is_foreign(sentence):
            continue
        found += set_here
    return tuple(found[:MOST_ANCHORS])


def is_anchor(said: str) -> bool:
    """True if the words set or end a standing instruction."""
    return bool(anchors_of(said))


def _of_sentence(sentence: str, folded: str) -> Iterator[Anchor]:
    asks = bool(_ASKS.search(folded))
    if asks and not _POLITE.search(folded):
        return
    plain = _LEAD_IN.sub("", folded, count=1)
    if _EVERY.match(plain):
        yield Anchor(EVERY, "")
        return
    if _LATEST.match(plain):
        yield Anchor(LATEST, "")
        return
    marked = bool(_MARKER.search(folded))
    if not marked and (_ONCE.search(folded) or ":" in folded.rstrip(": ") or "\uff1a" in sentence):
        return
    clauses = list(_clauses(sentence))
    slots = [_slot(clause) for clause in clauses]
    if any(slots):
        yield from _set(sentence, clauses, slots)
    elif marked and not asks and _ORDER.match(_unmarked(folded)):
        yield Anchor(OTHER, _bounded(sentence))


@dataclass(frozen=True, slots=True)
class _Clause:
    start: int
    end: int
    folded: str


def _clauses(sentence: str) -> Iterator[_Clause]:
    """Yield the parts of the sentence that may each be about something else."""
    at = 0
    for gap in (*_CLAUSE.finditer(sentence), None):
        end = gap.start() if gap else len(sentence)
        if part := sentence[at:end].strip():
            start = sentence.index(part, at)
            yield _Clause(start, start + len(part), _folded(part))
        at = gap.end() if gap else end


def _slot(clause: _Clause) -> str | None:
    """Return what the clause sets, None where it sets nothing."""
    if len(clause.folded) > _MOST_CLAUSE:
        return None
    plain = _unmarked(clause.folded)
    return next((slot for slot, row in _ROWS if row.match(plain)), None)


def _set(sentence: str, clauses: list[_Clause], slots: list[str | None]) -> Iterator[Anchor]:
    """Yield an anchor a slot; neighbouring clauses of one slot are one instruction."""
    at = 0
    while at < len(clauses):
        slot, first = slots[at], clauses[at]
        while at + 1 < len(clauses) and slots[at + 1] == slot:
            at += 1
        if slot is not None:
            text = sentence[first.start : clauses[at].end]
            ends = bool(_AGAIN.search(_folded(text)))
            yield Anchor(slot, "" if ends else _bounded(text))
        at += 1


def _unmarked(folded: str) -> str:
    """Return what is left of an order without lead-in and without for how long it holds."""
    plain = " ".join(_MARKER.sub(" ", _LEAD_IN.sub("", folded, count=1)).split())
    return _LEAD_IN.sub("", plain.lstrip(" ,.\uff0c"), count=1)


def _is_foreign(sentence: str) -> bool:
    """True for a sentence that lost a secret, or that a planted instruction could have written."""
    return REDACTED in sentence or REMOVED in sentence or is_planted(sentence)


def _bounded(text: str) -> str:
    if len(text) <= MOST_ANCHOR_CHARS:
        return text
    cut = text[: MOST_ANCHOR_CHARS - 1]
    return f"{cut[: cut.rfind(' ')] if ' ' in cut[MOST_ANCHOR_CHARS // 2 :] else cut}…"


def _ends(said: str) -> str:
    """Return the beginning and the end of long words, cut at lines."""
    if len(said) <= 2 * _LOOK_AT:
        return said
    head, tail = said[:_LOOK_AT], said[-_LOOK_AT:]
    return f"{head.rpartition(chr(10))[0] or head}\n{tail.partition(chr(10))[2]}"


def _folded(text: str) -> str:
    return plain(text).strip()
