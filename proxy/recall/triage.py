"""Triage: what to search for, and does this message need memory?

The query is the text to embed and the terms to look up. A long paste is reduced to what the user says around
it, since the model reads some 60 words, and the vector of a paste has no particular meaning. All of it
is structure (length, lines, fences, question marks), in any language.

The trained head decides; a missed memory is worse than a wasted search, and the head is calibrated for that.
Without a judge every message that holds a letter or a digit is searched for.

Chat programs also send requests of their own over the same address, for the same user and session: for a
title, tags, a search query, a summary. `is_housekeeping` recognises them: they must not be stored, and
memories would lead a title astray.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from proxy.admit.detection import load_rules
from proxy.domain.core import Message, Reason, Turn
from proxy.domain.errors import EmbeddingFailed, StoreError
from proxy.domain.ports import Judge, Needs, Reading
from proxy.domain.session import SessionStore
from proxy.text.words import terms

MAX_WORDS = 60  # two characters of a script without spaces are one word
MAX_TERMS = 48  # distinct terms that are looked up
MAX_CHARS = 4_000  # of a message that are read: its head and its tail
LEANING_WORDS = 4  # so few words may refer to what was said before
_FRAME_CHARS = 240  # a line before or after a paste that asks something about it

_UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_PIECE = re.compile(rf"[{_UNSPACED}]|\S(?:(?![{_UNSPACED}])\S)*")
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_SENTENCE = re.compile(r"[^.!?。！？\n]+(?:[.!?。！？]+[\"')\]”’»」』]*|\n|\Z)")
_ASKED = re.compile(r"[?？][\"')\]”’»」』]*\s*\Z")


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A search query: `text` is embedded, `terms` are looked up.

    From a model: `imagined`, an answer that is embedded with the text, and `extra` terms to look up.
    """

    text: str
    terms: tuple[str, ...]
    imagined: str = ""
    extra: tuple[str, ...] = ()


def query_of(message: str, before: str = "") -> SearchQuery:
    """Return the query for a message; `before`: the user's message before it, if this one refers to it."""
    text = readable(message)
    if not before:
        return SearchQuery(text, distinct(terms(text)))
    earlier = readable(before)
    # The newest words first, so that the bound cuts the oldest.
    return SearchQuery(f"{earlier}\n{text}", distinct((*terms(text), *terms(earlier))))


def leans(text: str) -> bool:
    """True if the text is so short that it may make no sense without the message before it."""
    return _words(text[:MAX_CHARS]) <= LEANING_WORDS


def was_asked(messages: Sequence[Message]) -> bool:
    """True if the assistant's last message ends with a question: then "ok" is an answer."""
    last = next((m.text for m in reversed(messages) if m.role == "assistant"), "")
    return last.rstrip(" \n\"'*_)”」").endswith(("?", "？"))


def readable(text: str) -> str:
    """Return at most MAX_WORDS words: the whole text, else what frames a paste, else its last questions, else
    its head and tail."""
    text = text.strip()
    if len(text) > MAX_CHARS:
        text = f"{text[: MAX_CHARS // 2]}\n{text[-MAX_CHARS // 2 :]}"
    if _words(text) <= MAX_WORDS:
        return text
    prose = _CODE.sub("\n", text).strip() or text
    if frame := _frame(prose):
        return frame
    asked = [s.strip() for s in _SENTENCE.findall(prose) if _ASKED.search(s)]
    if asked and _words(both := " ".join(asked[-2:])) <= MAX_WORDS:
        return both
    if _words(prose) <= MAX_WORDS:
        return prose
    pieces, half = [*_PIECE.finditer(prose)], MAX_WORDS // 2
    return f"{prose[: pieces[half - 1].end()]} … {prose[pieces[-half].start() :]}"


def distinct(found: Sequence[str]) -> tuple[str, ...]:
    """Return the terms without repetitions, MAX_TERMS of them."""
    return tuple(dict.fromkeys(found))[:MAX_TERMS]


def _frame(prose: str) -> str:
    """Return the short paragraphs before and after a paste; "" if the text has no such frame."""
    paragraphs = [p.strip() for p in re.split(r"\n\s*\n", prose) if p.strip()]
    if len(paragraphs) < 2:
        return ""
    ends = dict.fromkeys((paragraphs[0], paragraphs[-1]))
    short = [p for p in ends if len(p) <= _FRAME_CHARS and _words(p) <= MAX_WORDS // 2]
    pasted = sum(map(len, paragraphs)) - sum(map(len, short))
    return "\n".join(short) if short and pasted > _FRAME_CHARS else ""


def _words(text: str) -> float:
    pieces = [m.group() for m in _PIECE.finditer(text)]
    unspaced = sum(1 for p in pieces if len(p) == 1 and p >= "\u3040")
    return len(pieces) - unspaced / 2


# ---------------------------------------------------------------- does the message need memory
NEEDED = 0.5  # the operating point of the calibrated heads
SURELY = 0.8  # from here on a model's plan may not cancel the search

Before = Callable[[], Awaitable[str]]
"""Returns the user's message before this one, "" if there is none."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether to search for `query`, and if not, why. `reading`: what the judge read; None without a
    judge."""

    search: bool
    query: SearchQuery
    reason: Reason | None = None
    reading: Reading | None = None

    @property
    def may_be_life(self) -> bool:
        """True unless the message is small talk, world knowledge, live data or a self-contained task."""
        return self.reading is None or max(_others(self.reading.needs).values()) < NEEDED

    @property
    def is_sure(self) -> bool:
        """True if the message certainly needs memory."""
        return self.reading is None or self.reading.needs.memory >= SURELY


async def triage(turn: Turn, query: SearchQuery, judge: Judge | None, before: Before) -> Verdict:
    """Return whether memory could help with the turn's last user message, the query. If the judge fails,
    everything is searched for."""
    if turn.tool_forced:
        return Verdict(False, query, Reason.TOOL_FORCED)
    if not query.text or (judge is None and not any(c.isalnum() for c in query.text)):
        return Verdict(False, query, Reason.NO_QUERY)
    if judge is None:
        return Verdict(True, query_of(turn.query, await before()) if leans(query.text) else query)
    try:
        return judged(*await _read(turn, query, judge, before))
    except EmbeddingFailed:
        return Verdict(True, query)


def judged(query: SearchQuery, reading: Reading) -> Verdict:
    """Return the verdict for a reading."""
    if reading.needs.memory >= NEEDED:
        return Verdict(True, query, None, reading)
    others = _others(reading.needs)
    return Verdict(False, query, max(others, key=others.__getitem__), reading)


async def _read(turn: Turn, query: SearchQuery, judge: Judge, before: Before) -> tuple[SearchQuery, Reading]:
    """Return the reading of the message, or of a short one together with the user's message before it."""
    reading = await judge.read(query.text)
    if not leans(query.text) or (reading.needs.small_talk >= NEEDED and not was_asked(turn.messages)):
        return query, reading
    if not (earlier := await before()):
        return query, reading
    whole = query_of(turn.query, earlier)
    both = await judge.read(whole.text)
    if both.needs.memory < NEEDED and reading.needs.memory >= SURELY:
        return query, reading  # a change of topic: alone it needs memory beyond doubt
    # `asks` of the message alone: what the message before asked of memory has been done.
    return whole, replace(both, asks=reading.asks)


def _others(needs: Needs) -> dict[Reason, float]:
    return {
        Reason.GREETING: needs.small_talk,
        Reason.GENERAL_FACT: needs.world,
        Reason.TOOL_ANSWERS: needs.tool,
        Reason.SELF_CONTAINED: needs.self_contained,
    }


@dataclass(frozen=True, slots=True)
class Restraint:
    """Turns that get no memories by the operator's settings; by default there are none. Session notes are
    still shown: they belong to the conversation."""

    skip_first_turn: bool = False
    min_query_chars: int = 0

    async def holds_back(self, turn: Turn, sessions: SessionStore) -> Reason | None:
        """Return why the turn gets no memories, None if it may have them."""
        if 0 < len(turn.query.strip()) < self.min_query_chars:
            return Reason.SHORT_QUERY
        if not self.skip_first_turn or not begins(turn):
            return None
        try:
            answered = turn.standalone and await sessions.recent(turn.scope, turn.session_id, 1)
        except StoreError:
            return None
        return None if answered else Reason.FIRST_TURN


def begins(turn: Turn) -> bool:
    """True if the request shows nothing that was answered before."""
    return turn.continues is None and not any(m.role == "assistant" for m in turn.messages)


# ---------------------------------------------------------------- requests of the chat program
# Characters that may hold the instruction; the conversation is below or above it.
_ORDER_HEAD, _ORDER_TAIL = 600, 400
_OPENING = 120  # of a long system message, which may ask an assistant for a title among other things
# Open WebUI's tasks, also with an operator's own wording. The tag alone is not enough: applications that
# answer from documents use it for the history, too.
_TASK, _HISTORY = re.compile(r"\s*#{1,6} ?task:", re.IGNORECASE), "</chat_history>"
_RULES = load_rules("housekeeping", package=__package__)
_HINTS = _RULES.words("hints")


def is_housekeeping(messages: Sequence[Message]) -> bool:
    """True if the last user message, or the beginning of a system message, is a chat program's own."""
    last = next((m.text for m in reversed(messages) if m.role == "user"), "")
    if _TASK.match(last) and _HISTORY in last:
        return True
    seen = (
        last if len(last) <= _ORDER_HEAD + _ORDER_TAIL else f"{last[:_ORDER_HEAD]}\n\n{last[-_ORDER_TAIL:]}"
    )
    return _is_order(seen, _RULES.patterns["of_all"]) or any(
        _is_order(m.text if len(m.text) <= _ORDER_HEAD else m.text[:_OPENING], _RULES.patterns["of_system"])
        for m in messages
        if m.role in ("system", "developer")
    )


def _is_order(text: str, pattern: re.Pattern[str]) -> bool:
    lowered = text.lower()
    return any(hint in lowered for hint in _HINTS) and pattern.search(text) is not None
