"""Extract memories from a batch of exchanges: by one LLM call, or verbatim from the user's own sentences.

The conversation is data: it is redacted, planted instructions are cut out, our own markers in it are
defused, and every part is cut to a bound (see llm_io). The answer is data too: what is readable of it is
compared with the user's words. The statement head reads each candidate together with the window around the
words that it rests on: whether it follows from them with its sign and its subject, who it is about, and how
it was meant. At most ten facts of a batch are stored.

Evidence is searched in the user's own text: the quoted passage, else the candidate itself, else the
sentence that shares most terms or is nearest in meaning. What only the assistant said is not evidence. A
short reply is read together with the question that it answers, so that "yes, book that" can confirm
something.

Verbatim, nothing is rephrased, so nothing can be invented.
"""

import asyncio
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from typing import Any

import numpy as np

from proxy.admit.gate import Sorted, vectors_of
from proxy.admit.safety import DEFAULT, REDACTED, REMOVED, SafetyPolicy, clean
from proxy.domain.core import STATED_KINDS, Candidate, Evidence, Hit, Memory, Search
from proxy.domain.errors import EmbeddingFailed
from proxy.domain.ports import CompletionRequest, Embedder, Judge, MemoryStore, Statement
from proxy.domain.session import Batch, Exchange
from proxy.learn.llm_io import (
    TAGS,
    assistant_text,
    conversation,
    earlier,
    memory_line,
    read_facts,
    request_of,
    user_text,
)
from proxy.learn.recorder import RULE, intent_of
from proxy.text.dates import anchored, expiry, local_time
from proxy.text.words import is_question, normalise, sentences, terms, window_of

ROLE = "memory_extraction"

# ---------------------------------------------------------------- stored memories that the batch may repeat
MOST_RELATED, _HITS_PER_SEARCH = 20, 8
_EXCHANGES, _SENTENCES = 6, 6  # the last ones of a batch, of an exchange; each sentence costs a search
_MESSAGE_CHARS, _TAIL_CHARS = 4_000, 600  # the end of a message matters most


async def related(memories: MemoryStore, embedder: Embedder | None, batch: Batch, now: float) -> list[Memory]:
    """Return the current memories nearest to the user's words, for the model to see what it may replace.

    Each sentence is searched by itself, since the facts of one message have different neighbours; the best
    rank in any search counts. Without an embedder, or if it fails, the shared terms decide."""
    found: dict[str, tuple[int, Hit]] = {}  # by id: the best rank
    for exchange in batch.pending[-_EXCHANGES:]:
        texts = await asyncio.to_thread(_search_texts, exchange)  # some 10 ms for a long message
        try:
            vectors = await vectors_of(embedder, texts)
        except EmbeddingFailed:
            vectors = [None] * len(texts)
        # One read for all sentences, instead of one per search.
        snapshot = await memories.snapshot(exchange.scope) if len(texts) > 1 else None
        for text, vector in zip(texts, vectors, strict=True):
            search = Search(vector, terms(text), limit=_HITS_PER_SEARCH, now=now)
            hits = None if snapshot is None else snapshot.search(search)
            if hits is None:
                hits = await memories.search(exchange.scope, search)
            for rank, hit in enumerate(sorted(hits, key=_nearness, reverse=True)):
                if hit.memory.id not in found or rank < found[hit.memory.id][0]:
                    found[hit.memory.id] = (rank, hit)
            await asyncio.sleep(0)  # let requests run
    ordered = sorted(found.values(), key=lambda one: (-one[0], _nearness(one[1])), reverse=True)
    return [hit.memory for _, hit in ordered[:MOST_RELATED]]


def _search_texts(exchange: Exchange) -> list[str]:
    """Return the message's last sentences, and its end."""
    every = dict.fromkeys(sentences(exchange.said[-_MESSAGE_CHARS:]))
    said = [s for s in every if len(terms(s)) >= 2][-_SENTENCES:]
    tail = exchange.said[-_TAIL_CHARS:].strip()
    return [text for text in dict.fromkeys((*said, tail)) if terms(text)]


def _nearness(hit: Hit) -> tuple[float, float]:
    return (hit.cosine or 0.0, hit.bm25)


# ---------------------------------------------------------------- the user's words that a candidate rests on
_MOST_REPLY_CHARS = 80  # a longer reply is understood without its question
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
        said, question = user_text(exchange, policy), ""
        if before is not None and len(said) <= _MOST_REPLY_CHARS:
            *_, last = ("", *sentences(assistant_text(before, policy)))
            question = last if is_question(last) else ""
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
    said = local_time(exchange.said_at, exchange.timezone)
    given = candidate.replaces or ""
    shown = [
        m.id
        for m in known
        if m.id == given or m.id.removeprefix("mem_").startswith(given.removeprefix("mem_"))
    ]
    placed = replace(
        candidate,
        content=anchored(candidate.content, candidate.type, said),
        evidence=evidence,
        importance=0.6 if candidate.type == "preference" else candidate.importance,
        source="assistant" if span.source.replies else candidate.source,
        observed_at=exchange.said_at,
        timezone=exchange.timezone,
        expires_at=candidate.expires_at or expiry(candidate.content, candidate.type, exchange.timezone),
        origin=Evidence(exchange.session_id, exchange.id, evidence),
        # An id that the model was shown and gives, whole or shortened.
        replaces=shown[0] if len(given) >= 6 and len(shown) == 1 else None,
    )
    shares = not frozenset(terms(candidate.content)).isdisjoint(terms(sentence))
    return Grounded(placed, window, span.literal and shares and not span.source.replies)


def _invents(content: str, source: Source) -> bool:
    """True if the fact holds a code or a long number that the user did not give. If something was redacted,
    it may be that; the gate detects secrets."""
    if any(REDACTED[:-1] in s for s in source.sentences):
        return False
    said = "".join(source.flat)
    codes = (m.group() for m in _IDENTIFIER.finditer(content) if not _DATE_LIKE.fullmatch(m.group()))
    return any(flat(code) not in said for code in codes)


# ---------------------------------------------------------------- verdicts of the statement head
FOLLOWS, DOUBTFUL = 0.5, 0.35
# A good fact that is dropped is lost, so being about the user and being meant need no majority. On held-out
# lines of twelve languages .92 of the good candidates pass, .43 of the bad ones (majorities: .83 and .26).
ABOUT_USER, MEANT = 0.1, 0.3  # a friend's name is rarely judged to be about the user
SMALL_TALK = 0.98  # from .97 on a third of the small talk and none of 387 messages with a fact (held out)
HEDGED_CONFIDENCE, CONFIRMED_CONFIDENCE = 0.6, 0.7  # at most: said with reserve; only confirmed by the user
_STORED = frozenset(("stated", "hedged", "rule", "remember"))
# Resolved dates, and the day of a statement: the user did not say them.
RESOLVED = re.compile(r"(?:['’]s)? ?[(\uff08][^()\uff08\uff09]*\d{4}-\d\d[^()\uff08\uff09]*[)\uff09]")


async def judged(judge: Judge | None, grounded: Sequence[Grounded]) -> Sorted:
    """Return the candidates by outcome, judged in one batch. Without a judge, those are stored that quote the
    user literally. Raises EmbeddingFailed."""
    if judge is None:
        literal = tuple(one.candidate for one in grounded if one.literal)
        return Sorted(literal, dropped=+Counter(no_judge=len(grounded) - len(literal)))
    if not grounded:
        return Sorted()
    # Resolved dates are not part of what the user said.
    pairs = [(one.window, RESOLVED.sub("", one.candidate.content)) for one in grounded]
    stored, held = list[Candidate](), list[tuple[Candidate, str]]()
    dropped: Counter[str] = Counter()
    for one, statement in zip(grounded, await judge.statements(pairs), strict=True):
        said = one.candidate.evidence or one.window
        if statement.main_sense == "instruction" and await is_rule(judge, said):
            statement = replace(statement, sense={"rule": 1.0})
        outcome, reason = _outcome(statement)
        if outcome == "store":
            stored.append(_as_meant(one.candidate, statement.main_sense))
        elif outcome == "hold":
            held.append((one.candidate, reason))
        else:
            dropped[reason] += 1
    return Sorted(tuple(stored), tuple(held), dropped)


async def is_rule(judge: Judge, text: str) -> bool:
    """True if the message head takes the text for a standing rule. Each head sees rules that the other takes
    for an instruction of the moment."""
    return (await judge.read(text)).asks.rule >= RULE


def _outcome(statement: Statement) -> tuple[str, str]:
    """Return "store", "hold" or "drop", and why it is not stored."""
    if statement.user < ABOUT_USER:
        return "drop", "other_person" if statement.other >= statement.impersonal else "nobody"
    if sum(statement.sense.get(manner, 0.0) for manner in _STORED) < MEANT:
        if statement.main_sense == "quoted" and statement.follows >= FOLLOWS:
            return "hold", "quoted"
        return "drop", statement.main_sense
    if statement.follows >= FOLLOWS:
        return "store", ""
    return ("hold", "doubtful") if statement.follows >= DOUBTFUL else ("drop", "not_said")


def _as_meant(candidate: Candidate, manner: str) -> Candidate:
    """Return the candidate with the confidence, type and importance that its manner gives it."""
    if manner == "hedged":
        candidate = replace(candidate, confidence=min(candidate.confidence, HEDGED_CONFIDENCE))
    elif candidate.source == "assistant":
        candidate = replace(candidate, confidence=min(candidate.confidence, CONFIRMED_CONFIDENCE))
    if manner == "rule" and candidate.type == "semantic":
        candidate = replace(candidate, type="preference")
    if manner in ("rule", "remember") and candidate.source != "assistant":
        candidate = replace(candidate, source="explicit", importance=0.8)
    return candidate


# ---------------------------------------------------------------- the user's own sentences
_MOST_PER_EXCHANGE = 10
_MOST_CHARS, _MOST_STEPS_CHARS, _FEWEST_CHARS = 500, 1_000, 6
_VERBATIM_CONFIDENCE = 0.8
_STEP = re.compile(r"\s*(?:\d{1,2}[.):\uff09、]|[①-⑳])\s*(?=\S)")


async def from_sentences(judge: Judge | None, exchanges: Sequence[Exchange], policy: SafetyPolicy) -> Sorted:
    """Return the user's statements; none without a judge, since no form tells a statement from small talk.
    Raises EmbeddingFailed."""
    if judge is None:
        return Sorted()
    found: dict[str, Grounded] = {}
    for exchange in exchanges:
        reading = await judge.read(exchange.said, closely=True)
        asked = max(reading.asks.remember, reading.asks.rule)
        if reading.needs.small_talk > max(reading.needs.memory, asked, 0.5):
            continue
        for one in _sentence_candidates(exchange, policy)[:_MOST_PER_EXCHANGE]:
            found.setdefault(normalise(one.candidate.content), one)
    return await judged(judge, list(found.values()))


async def asked_for(judge: Judge | None, exchanges: Sequence[Exchange], policy: SafetyPolicy) -> Sorted:
    """Return what the user asked to be remembered, and rules: of a message that asks, the sentences that do,
    else all its statements. Raises EmbeddingFailed."""
    asking = [e for e in exchanges if (await intent_of(judge, e.said)).is_explicit]
    found = await from_sentences(judge, asking, policy)
    explicit = tuple(c for c in found.stored if c.source == "explicit")
    return replace(found, stored=explicit or found.stored, held=())


def _sentence_candidates(exchange: Exchange, policy: SafetyPolicy) -> list[Grounded]:
    """Return the sentences that may be worth storing, each with its window; numbered steps as one."""
    parts, found = _with_steps(clean(exchange.said, policy)), list[Grounded]()
    texts, said = [text for text, _ in parts], local_time(exchange.said_at, exchange.timezone)
    for n, (text, is_steps) in enumerate(parts):
        shortest = _FEWEST_CHARS - 2 * (not text.isascii())
        fits = shortest <= len(text) <= (_MOST_STEPS_CHARS if is_steps else _MOST_CHARS)
        unfit = is_question(text) or text.endswith((":", "\uff1a")) or REMOVED in text or REDACTED in text
        if not fits or unfit or not terms(text):
            continue
        type_ = "procedural" if is_steps else "semantic"
        candidate = Candidate(
            type=type_,
            content=anchored(text[0].upper() + text[1:], type_, said),
            confidence=_VERBATIM_CONFIDENCE,
            evidence=text,
            source="verbatim",
            observed_at=exchange.said_at,
            timezone=exchange.timezone,
            origin=Evidence(exchange.session_id, exchange.id, text[:500]),
        )
        found.append(Grounded(candidate, window_of(texts, n, n, text), literal=True))
    return found


def _with_steps(said: str) -> list[tuple[str, bool]]:
    """Return the sentences; runs of numbered lines as one, with the line that introduces them."""
    found: list[tuple[str, bool]] = []
    for is_step, group in groupby(said.splitlines(), key=lambda line: bool(_STEP.match(line))):
        lines = list(group)
        if not is_step or len(lines) < 2:
            found += [(s, False) for line in lines for s in sentences(line)]
            continue
        if found and found[-1][0].endswith((":", "\uff1a")):
            lines.insert(0, found.pop()[0])
        found.append(("\n".join(lines), True))
    return found


# ---------------------------------------------------------------- the LLM call
MAX_FACTS = 10  # of ten exchanges; one more for each further exchange
_FIELDS: Mapping[str, Any] = {
    "type": {"type": "string", "enum": list(STATED_KINDS)},
    "content": {"type": "string"},
    "confidence": {"type": "number"},
    "tags": {"type": "array", "items": {"type": "string", "enum": sorted(TAGS)}},
    "names": {"type": "array", "items": {"type": "string"}},
    "evidence": {"type": "string"},
    "replaces": {"type": ["string", "null"]},
}


def _object(properties: Mapping[str, Any]) -> Mapping[str, Any]:
    names = list(properties)
    return {"type": "object", "additionalProperties": False, "required": names, "properties": properties}


SCHEMA = _object({"facts": {"type": "array", "items": _object(_FIELDS)}})


def request(batch: Batch, known: Sequence[Memory], policy: SafetyPolicy = DEFAULT) -> CompletionRequest:
    """Return the LLM call for the batch; `known`: the related memories that it may replace.

    Takes some 10 ms for long exchanges: call it in a thread."""
    last = batch.pending[-1]
    shown = {
        "known": "\n".join(memory_line(m, policy, last.timezone) for m in known) or "(none)",
        "context": earlier(batch.context, policy) or "(none)",
        "exchanges": conversation(batch.pending, policy),
    }
    return request_of(ROLE, "extraction", last, SCHEMA, **shown)


async def facts(
    answer: str,
    batch: Batch,
    known: Sequence[Memory],
    policy: SafetyPolicy = DEFAULT,
    *,
    judge: Judge | None,
    embedder: Embedder | None = None,
) -> Sorted:
    """Return the answer's facts by outcome, each with its origin. Raises Unreadable, EmbeddingFailed."""
    found = await asyncio.to_thread(read_facts, answer)  # some 10 ms for a long one
    before = batch.context[-1] if batch.context else None
    shown = await asyncio.to_thread(sources, batch.pending, policy, before)
    grounded = await ground(found, shown, known, embedder)
    result = await _without_small_talk(judge, await judged(judge, grounded), batch.pending)
    ranked = sorted(result.stored, key=lambda c: (c.source != "explicit", -c.confidence))
    best = {id(c) for c in ranked[: max(MAX_FACTS, len(batch.pending))]}
    stored = tuple(c for c in result.stored if id(c) in best)
    counts = Counter(ungrounded=len(found) - len(grounded), surplus=len(result.stored) - len(stored))
    return replace(result, stored=stored, dropped=result.dropped + counts)


async def _without_small_talk(judge: Judge | None, result: Sorted, exchanges: Sequence[Exchange]) -> Sorted:
    """Drop what a careless model made of "good morning". Wishes to remember, rules and confirmations may look
    the same, and are stored."""
    origins = {c.origin.exchange_id for c in result.stored if c.origin and c.source == "extracted"}
    if judge is None or not origins:
        return result
    small = set[str]()
    for exchange in exchanges:
        if exchange.id in origins:
            needs = (await judge.read(exchange.said)).needs
            small |= {exchange.id} if needs.small_talk >= SMALL_TALK else set()
    dropped = [
        c for c in result.stored if c.source == "extracted" and c.origin and c.origin.exchange_id in small
    ]
    stored = tuple(c for c in result.stored if c not in dropped)
    return replace(result, stored=stored, dropped=result.dropped + Counter(small_talk=len(dropped)))
