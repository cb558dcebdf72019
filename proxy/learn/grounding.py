"""Grounding: find the user's own words that a candidate rests on.

Evidence is searched in the user's own text: the quoted passage, else the candidate itself, else the
sentence that shares most terms or is nearest in meaning. What only the assistant said is not evidence. A
short reply is read together with the question that it answers, so that "yes, book that" can confirm
something. The statement head then reads the window around the evidence (see extractor).
"""

import asyncio
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from proxy.admit.gate import vectors_of
from proxy.admit.safety import REDACTED, REMOVED, SafetyPolicy
from proxy.domain.core import Candidate, Evidence, Memory
from proxy.domain.errors import EmbeddingFailed
from proxy.domain.ports import Embedder
from proxy.domain.session import Exchange
from proxy.learn.llm_io import assistant_text, user_text
from proxy.text.dates import anchored, expiry
from proxy.text.words import WIDE, is_question, normalise, sentences, terms

MOST_REPLY_CHARS = 80  # a longer reply is understood without its question
_WINDOW_TOKENS, _LEAST_WINDOW_TOKENS, _PAIR_TOKENS = 100, 40, 124
_MIN_SPAN = 4  # letters: fewer occur everywhere
_MIN_COPY = 12  # letters of a copied sentence
_MOST_BEFORE = 40  # letters of what the model put before it: "The user said that"
_MOST_COMPARED = 40  # last sentences of a batch that are compared in meaning
_IDENTIFIER = re.compile(
    r"(?=[!-/:-~]*+\d)(?=[!-@\[-`{-~]*+[A-Za-z])[A-Za-z0-9_%#@!+./=-]{8,}|\d(?:[ -]?\d){7,}"
)
_DATE_LIKE = re.compile(r"[\d./:-]+|\d+(?:st|nd|rd|th|h|am|pm)?")


@dataclass(frozen=True, slots=True)
class Grounded:
    """A candidate with its origin. `window`: the user's words around its evidence. `literal`: they hold the
    evidence or the candidate word for word, and share a term with the candidate."""

    candidate: Candidate
    window: str
    literal: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """The user's words of one exchange in sentences, and in the form in which spans are compared. A short
    reply is one sentence with the question before it."""

    exchange: Exchange
    sentences: tuple[str, ...]
    replies: bool
    flat: tuple[str, ...]
    terms: tuple[frozenset[str], ...]


def flat(text: str) -> str:
    """Return the text as spans are compared: no case, quotes, spacing or markup."""
    return "".join(c for c in normalise(text) if c.isalnum())


def sources(
    exchanges: Sequence[Exchange], policy: SafetyPolicy, before: Exchange | None = None
) -> list[Source]:
    """Return a source per exchange. `before`: the exchange before the first one."""
    found: list[Source] = []
    for exchange in exchanges:
        said = user_text(exchange, policy)
        question = _question(before, policy) if len(said) <= MOST_REPLY_CHARS else ""
        parts = (f"{question}\n{said}",) if question and said.strip() else tuple(sentences(said))
        words = tuple(frozenset(terms(part)) for part in parts)
        found.append(Source(exchange, parts, bool(question), tuple(map(flat, parts)), words))
        before = exchange
    return found


async def ground(
    found: Sequence[Candidate],
    sources: Sequence[Source],
    known: Sequence[Memory],
    embedder: Embedder | None = None,
) -> list[Grounded]:
    """Return the candidates that have evidence, each once, with its origin.

    The last exchange with the evidence counts: facts are restated as they are settled."""
    spans = await asyncio.to_thread(lambda: [_quoted(c, sources) or _alike(c, sources) for c in found])
    for number, candidate in enumerate(found):
        if spans[number] is None:
            spans[number] = await _nearest(candidate, sources, embedder)
    return await asyncio.to_thread(_with_origins, found, spans, known)


def _with_origins(
    found: Sequence[Candidate], spans: Sequence["EvidenceSpan | None"], known: Sequence[Memory]
) -> list[Grounded]:
    grounded: dict[str, Grounded] = {}
    for candidate, span in zip(found, spans, strict=True):
        fact = _grounded(candidate, span, known) if span is not None else None
        if fact is not None:
            grounded.setdefault(normalise(fact.candidate.content), fact)
    return list(grounded.values())


# ---------------------------------------------------------------- finding the evidence
@dataclass(frozen=True, slots=True)
class EvidenceSpan:
    """Sentences `first` to `last` of a source."""

    source: Source
    first: int
    last: int
    literal: bool = False

    @property
    def text(self) -> str:
        return " ".join(self.source.sentences[self.first : self.last + 1])


def _quoted(candidate: Candidate, sources: Sequence[Source]) -> EvidenceSpan | None:
    """Return where the evidence, or the content itself, occurs word for word; else a whole sentence that the
    content ends with."""
    content = flat(candidate.content)
    for span in (flat(candidate.evidence), content):
        for source in reversed(sources) if len(span) >= _MIN_SPAN else ():
            ends = list(accumulate(map(len, source.flat)))
            at = "".join(source.flat).find(span)
            if at >= 0:
                last = bisect_left(ends, at + len(span))
                return EvidenceSpan(source, bisect_right(ends, at), last, literal=True)
    for source in reversed(sources):
        for number, sentence in enumerate(source.flat):
            if _copies(content, sentence):
                return EvidenceSpan(source, number, number, literal=True)
    return None


def _copies(content: str, sentence: str) -> bool:
    """True if the content is the sentence with a few words put before it."""
    before = len(content) - len(sentence)
    return content.endswith(sentence) and len(sentence) >= _MIN_COPY and before <= _MOST_BEFORE


def _alike(candidate: Candidate, sources: Sequence[Source]) -> EvidenceSpan | None:
    """Return the sentence that shares most terms with the candidate, None if none shares any."""
    words = frozenset(terms(f"{candidate.content} {candidate.evidence}"))
    best, span = 0, None
    for source in sources:
        for number, theirs in enumerate(source.terms):
            shared = len(words & theirs)
            if shared and shared >= best:
                best, span = shared, EvidenceSpan(source, number, number)
    return span


async def _nearest(
    candidate: Candidate, sources: Sequence[Source], embedder: Embedder | None
) -> EvidenceSpan | None:
    """Return the sentence nearest in meaning: the candidate may be in another language."""
    spans = [EvidenceSpan(s, n, n) for s in sources for n in range(len(s.sentences))][-_MOST_COMPARED:]
    if len(spans) <= 1 or embedder is None:
        return spans[0] if spans else None
    try:
        own, *others = await vectors_of(embedder, [candidate.content, *(p.text for p in spans)])
    except EmbeddingFailed:
        return None
    if own is None:
        return None
    vector = np.frombuffer(own, np.float32)
    near = [float(vector @ np.frombuffer(v, np.float32)) if v else -1.0 for v in others]
    return spans[int(np.argmax(near))]


# ---------------------------------------------------------------- the grounded candidate
def _grounded(candidate: Candidate, span: EvidenceSpan, known: Sequence[Memory]) -> Grounded | None:
    """Return the candidate with its origin, dates and window; None for a question, and for one with a code
    that the user did not give."""
    exchange, sentence = span.source.exchange, span.text
    if span.first == span.last and _copies(flat(candidate.content), flat(sentence)):
        candidate = replace(candidate, content=sentence)  # "The user said: …" prefixed
    if is_question(candidate.content) or _invents(candidate.content, span.source):
        return None
    evidence = candidate.evidence if span.literal and candidate.evidence else sentence
    evidence = evidence[:500].replace(REMOVED, "")
    window = window_of(span.source.sentences, span.first, span.last, candidate.content)
    placed = replace(
        candidate,
        content=anchored(candidate.content, candidate.type, exchange.local),
        evidence=evidence,
        importance=0.6 if candidate.type == "preference" else candidate.importance,
        source="assistant" if span.source.replies else candidate.source,
        observed_at=exchange.said_at,
        timezone=exchange.timezone,
        expires_at=candidate.expires_at or expiry(candidate.content, candidate.type, exchange.timezone),
        origin=Evidence(exchange.session_id, exchange.id, evidence),
        replaces=_shown(candidate.replaces, known),
    )
    shares = not frozenset(terms(candidate.content)).isdisjoint(terms(sentence))
    return Grounded(placed, window, span.literal and shares and not span.source.replies)


def window_of(parts: Sequence[str], first: int, last: int, candidate: str) -> str:
    """Return the sentences from `first` to `last` with as many neighbours as the statement head reads
    together with the candidate. Preceding sentences come first: they say how the words are meant."""
    budget = min(_WINDOW_TOKENS, max(_LEAST_WINDOW_TOKENS, _PAIR_TOKENS - tokens(candidate)))
    budget -= sum(map(tokens, parts[first : last + 1]))
    grown = True
    while grown:
        grown = False
        if first > 0 and (size := tokens(parts[first - 1])) <= budget:
            first, budget, grown = first - 1, budget - size, True
        if last + 1 < len(parts) and (size := tokens(parts[last + 1])) <= budget:
            last, budget, grown = last + 1, budget - size, True
    return " ".join(parts[first : last + 1])


def tokens(text: str) -> int:
    """Estimate the text's tokens of the encoder."""
    unspaced = len(WIDE.findall(text))
    return 1 + unspaced + (len(text) - unspaced) // 4


def _question(before: Exchange | None, policy: SafetyPolicy) -> str:
    """Return the question that the answer ends with, "" if it ends with none."""
    said = sentences(assistant_text(before, policy)) if before is not None else []
    return said[-1] if said and is_question(said[-1]) else ""


def _invents(content: str, source: Source) -> bool:
    """True if the fact holds a code or a long number that the user did not give. If something was redacted,
    it may be that; the gate detects secrets."""
    if any(REDACTED[:-1] in s for s in source.sentences):
        return False
    said = "".join(source.flat)
    codes = (m.group() for m in _IDENTIFIER.finditer(content) if not _DATE_LIKE.fullmatch(m.group()))
    return any(flat(code) not in said for code in codes)


def _shown(given: str | None, known: Sequence[Memory]) -> str | None:
    """Return the id that the model was shown and gives, whole or shortened; None otherwise."""
    if given is None or len(given) < 6:
        return None
    bare = given.removeprefix("mem_")
    found = [m.id for m in known if m.id == given or m.id.removeprefix("mem_").startswith(bare)]
    return found[0] if len(found) == 1 else None
