"""Extract memories from a batch of exchanges: by one LLM call, or verbatim from the user's own sentences.

The conversation is data: it is redacted, planted instructions are cut out, our own markers in it are
defused, and every part is cut to a bound (see llm_io). The answer is data too: what is readable of it is
compared with the user's words (see grounding). The statement head reads each candidate together with the
words that it rests on: whether it follows from them with its sign and its subject, who it is about, and how
it was meant. At most ten facts of a batch are stored.

Verbatim, nothing is rephrased, so nothing can be invented.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from string import Template
from typing import Any, Literal

from proxy.admit.gate import vectors_of
from proxy.admit.safety import DEFAULT, REDACTED, REMOVED, SafetyPolicy, clean
from proxy.domain.core import KINDS, Candidate, Evidence, Hit, Memory, Search
from proxy.domain.errors import EmbeddingFailed
from proxy.domain.judging import Judge, Statement
from proxy.domain.ports import CompletionRequest, Embedder, MemoryStore
from proxy.domain.session import Batch, Exchange
from proxy.learn.dates import anchored
from proxy.learn.grounding import Grounded, ground, sources, window_of
from proxy.learn.llm_io import TAGS, conversation, earlier, memory_line, read_facts
from proxy.learn.triggers import heard
from proxy.prompts import prompt
from proxy.text.sentences import is_question, sentences
from proxy.text.terms import normalise, terms

# ---------------------------------------------------------------- stored memories that the batch may repeat
LIMIT = 20
_PER_SEARCH = 8
_EXCHANGES = 6  # the last ones of a long batch
_SENTENCES = 6  # of an exchange; each costs a search
_FEWEST_TERMS = 2
_MOST = 4_000  # characters of a message that are looked at
_TEXT = 600  # characters; what matters stands at the end


async def related(memories: MemoryStore, embedder: Embedder | None, batch: Batch, now: float) -> list[Memory]:
    """Return the current memories nearest to what the user said; [] for a silent user.

    Each sentence is looked up by itself, and the nearest of each come first: in a message about three
    things each has its own neighbours.
    Without an embedder, or when it fails, the shared terms decide."""
    found: dict[str, tuple[int, Hit]] = {}  # by id: the best rank in any search
    for exchange in batch.pending[-_EXCHANGES:]:
        texts = await asyncio.to_thread(_texts, exchange)  # some 10 ms for a long message
        vectors = await _vectors(embedder, texts)
        # Read once for all sentences: each search by itself would ask a reader.
        few = await memories.snapshot(exchange.scope) if len(texts) > 1 else None
        for text, vector in zip(texts, vectors, strict=True):
            search = Search(vector, terms(text), limit=_PER_SEARCH, now=now)
            hits = None if few is None else few.search(search)
            _take(await memories.search(exchange.scope, search) if hits is None else hits, found)
            await asyncio.sleep(0)  # requests come first
    ordered = sorted(found.values(), key=lambda one: (-one[0], _nearness(one[1])), reverse=True)
    return [hit.memory for _, hit in ordered[:LIMIT]]


def _take(hits: Sequence[Hit], found: dict[str, tuple[int, Hit]]) -> None:
    """Add one search's hits to what was found; each memory keeps its best rank."""
    for rank, hit in enumerate(sorted(hits, key=_nearness, reverse=True)):
        known = found.get(hit.memory.id)
        if known is None or rank < known[0]:
            found[hit.memory.id] = (rank, hit)


def _texts(exchange: Exchange) -> list[str]:
    """Return what to look up: the message's sentences, the last ones of many, and its end."""
    every = dict.fromkeys(sentences(exchange.said[-_MOST:]))
    said = [s for s in every if len(terms(s)) >= _FEWEST_TERMS][-_SENTENCES:]
    tail = exchange.said[-_TEXT:].strip()
    return [text for text in dict.fromkeys((*said, tail)) if terms(text)]


async def _vectors(embedder: Embedder | None, texts: list[str]) -> list[bytes | None]:
    """Return each text's vector, None where the embedder does not understand it, or fails."""
    try:
        return await vectors_of(embedder, texts)
    except EmbeddingFailed:
        return [None] * len(texts)  # only the model's view of what is known gets poorer


def _nearness(hit: Hit) -> tuple[float, float]:
    return (hit.cosine or 0.0, hit.bm25)


# ---------------------------------------------------------------- verdicts of the statement head
FOLLOWS, DOUBTFUL = 0.5, 0.35
# A good fact that is dropped is lost, so being about the user and being meant need no majority. On held-out
# lines of twelve languages .92 of the good candidates pass, .43 of the bad ones (majorities: .83 and .26).
ABOUT_USER, MEANT = 0.1, 0.3  # a friend's name is rarely judged to be about the user
HEDGED = 0.6  # the highest confidence of what was said with reserve
_ASSISTANT = 0.7  # the same of what the user only confirmed
_STORED = frozenset(("stated", "hedged", "rule", "remember"))
# Dates that were resolved, and the day of a statement: the user did not say them.
_RESOLVED = re.compile(r"(?:['’]s)? ?[(\uff08][^()\uff08\uff09]*\d{4}-\d\d[^()\uff08\uff09]*[)\uff09]")


@dataclass(frozen=True, slots=True)
class Judged:
    """Candidates by outcome: stored, held for review with a reason, dropped by reason."""

    stored: tuple[Candidate, ...] = ()
    held: tuple[tuple[Candidate, str], ...] = ()
    dropped: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a candidate, and why it is not stored."""

    does: Literal["keep", "hold", "drop"]
    reason: str = ""


async def judged(judge: Judge | None, grounded: Sequence[Grounded]) -> Judged:
    """Return the candidates by outcome. Without a judge, those are stored that quote the user's words
    literally. Raises EmbeddingFailed."""
    if judge is None:
        literal = tuple(one.candidate for one in grounded if one.literal)
        return Judged(literal, dropped=+Counter(no_judge=len(grounded) - len(literal)))
    if not grounded:
        return Judged()
    statements = await judge.statements([(one.window, as_said(one)) for one in grounded])
    stored, held = list[Candidate](), list[tuple[Candidate, str]]()
    dropped: Counter[str] = Counter()
    for one, statement in zip(grounded, statements, strict=True):
        verdict = verdict_on(statement)
        if verdict.does == "keep":
            stored.append(_as_meant(one.candidate, statement.manner))
        elif verdict.does == "hold":
            held.append((one.candidate, verdict.reason))
        else:
            dropped[verdict.reason] += 1
    return Judged(tuple(stored), tuple(held), dropped)


def verdict_on(statement: Statement) -> Verdict:
    """Return the outcome of a candidate with this judgement."""
    if statement.user < ABOUT_USER:
        return Verdict("drop", "other_person" if statement.other >= statement.nobody else "nobody")
    if sum(statement.sense.get(manner, 0.0) for manner in _STORED) < MEANT:
        if statement.manner == "quoted" and statement.follows >= FOLLOWS:
            return Verdict("hold", "quoted")
        return Verdict("drop", statement.manner)
    if statement.follows >= FOLLOWS:
        return Verdict("keep")
    return Verdict("hold", "doubtful") if statement.follows >= DOUBTFUL else Verdict("drop", "not_said")


def as_said(one: Grounded) -> str:
    """Return the content without the dates that were resolved for it."""
    return _RESOLVED.sub("", one.candidate.content)


def _as_meant(candidate: Candidate, manner: str) -> Candidate:
    """Return the candidate with the confidence, type and importance that its manner gives it."""
    highest = HEDGED if manner == "hedged" else _ASSISTANT if candidate.source == "assistant" else 1.0
    candidate = replace(candidate, confidence=min(candidate.confidence, highest))
    if manner == "rule" and candidate.type == "semantic":
        candidate = replace(candidate, type="preference")
    if manner in ("rule", "remember") and candidate.source != "assistant":
        candidate = replace(candidate, source="explicit", importance=0.8)
    return candidate


# ---------------------------------------------------------------- the user's own sentences
MOST_PER_EXCHANGE = 10
_MOST_CHARS, _MOST_STEPS_CHARS, _FEWEST_CHARS = 500, 1_000, 6
_CONFIDENCE = 0.8
_STEP = re.compile(r"\s*(?:\d{1,2}[.):\uff09、]|[①-⑳])\s*(?=\S)")


async def from_sentences(judge: Judge | None, exchanges: Sequence[Exchange], policy: SafetyPolicy) -> Judged:
    """Return what the user stated in the exchanges. Without a judge nothing: no form tells a statement from
    small talk. Raises EmbeddingFailed."""
    if judge is None:
        return Judged()
    found: dict[str, Grounded] = {}
    for exchange in exchanges:
        reading = await judge.read(exchange.said, closely=True)
        asked = max(reading.asks.remember, reading.asks.rule)
        if reading.needs.small_talk > max(reading.needs.memory, asked, 0.5):
            continue
        for one in candidates(exchange, policy)[:MOST_PER_EXCHANGE]:
            found.setdefault(normalise(one.candidate.content), one)
    return await judged(judge, list(found.values()))


async def asked_for(judge: Judge | None, exchanges: Sequence[Exchange], policy: SafetyPolicy) -> Judged:
    """Return only what the user asked to be remembered, and rules: of a message that asks, the sentences that
    do, else all that it states. Raises EmbeddingFailed."""
    asking = [e for e in exchanges if (await heard(judge, e.said)).is_explicit]
    found = await from_sentences(judge, asking, policy)
    explicit = tuple(c for c in found.stored if c.source == "explicit")
    return replace(found, stored=explicit or found.stored, held=())


def candidates(exchange: Exchange, policy: SafetyPolicy) -> list[Grounded]:
    """Return the sentences of the exchange that may be worth storing, each with the words around it; numbered
    steps as one procedure."""
    parts = _with_steps(clean(exchange.said, policy))
    return [
        Grounded(
            _sentence_candidate(part, is_steps, exchange), window_of([p for p, _ in parts], n, n, part), True
        )
        for n, (part, is_steps) in enumerate(parts)
        if _may_be_stored(part, is_steps)
    ]


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


def _may_be_stored(part: str, is_steps: bool) -> bool:
    shortest = _FEWEST_CHARS - 2 * (not part.isascii())
    if not shortest <= len(part) <= (_MOST_STEPS_CHARS if is_steps else _MOST_CHARS):
        return False
    return not (
        is_question(part) or part.endswith((":", "\uff1a")) or REMOVED in part or REDACTED in part
    ) and bool(terms(part))


def _sentence_candidate(text: str, is_steps: bool, exchange: Exchange) -> Candidate:
    type_ = "procedural" if is_steps else "semantic"
    return Candidate(
        type=type_,
        content=anchored(text[0].upper() + text[1:], type_, exchange.local),
        confidence=_CONFIDENCE,
        evidence=text,
        source="verbatim",
        observed_at=exchange.said_at,
        timezone=exchange.timezone,
        origin=Evidence(exchange.session_id, exchange.id, text[:500]),
    )


# ---------------------------------------------------------------- the LLM call
ROLE = "memory_extraction"
PROMPT = "extraction.v1"
MAX_FACTS = 10  # of a batch of ten exchanges; one more for each exchange beyond
_NULLABLE = {"type": ["string", "null"]}
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["facts"],
    "properties": {
        "facts": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["type", "content", "confidence", "tags", "evidence", "replaces"],
                "properties": {
                    "type": {"type": "string", "enum": sorted(KINDS)},
                    "content": {"type": "string"},
                    "confidence": {"type": "number"},
                    "tags": {"type": "array", "items": {"type": "string", "enum": sorted(TAGS)}},
                    "evidence": {"type": "string"},
                    "replaces": _NULLABLE,
                },
            },
        }
    },
}


def request(batch: Batch, known: Sequence[Memory], policy: SafetyPolicy = DEFAULT) -> CompletionRequest:
    """Return the LLM call for the batch; `known` are the related memories that it may replace.

    Takes some 10 ms for long exchanges: call it in a thread."""
    last = batch.pending[-1]
    user = Template(prompt("extraction_input.v1")).substitute(
        known="\n".join(memory_line(m, policy, last.timezone) for m in known) or "(none)",
        context=earlier(batch.context, policy) or "(none)",
        exchanges=conversation(batch.pending, policy),
    )
    return CompletionRequest(
        role=ROLE,
        system=prompt(PROMPT),
        user=user,
        model=last.model,
        scope=last.scope,
        session_id=last.session_id,
        schema=SCHEMA,
    )


async def facts(
    answer: str,
    batch: Batch,
    known: Sequence[Memory],
    policy: SafetyPolicy = DEFAULT,
    *,
    judge: Judge | None,
    embedder: Embedder | None = None,
) -> Judged:
    """Return the answer's facts by outcome, each with its origin. Raises Unreadable,
    EmbeddingFailed."""
    found = await asyncio.to_thread(read_facts, answer)  # some 10 ms for a long one
    before = batch.context[-1] if batch.context else None
    shown = await asyncio.to_thread(sources, batch.pending, policy, before)
    grounded = await ground(found, shown, known, embedder)
    result = await judged(judge, grounded)
    best = _best(result.stored, max(MAX_FACTS, len(batch.pending)))
    if ungrounded := len(found) - len(grounded):
        result.dropped["ungrounded"] += ungrounded
    if surplus := len(result.stored) - len(best):
        result.dropped["surplus"] += surplus
    return replace(result, stored=tuple(best))


def _best(candidates: Sequence[Candidate], limit: int) -> list[Candidate]:
    """Return at most `limit` candidates in order: what was asked for first, what is surest next."""
    ranked = sorted(candidates, key=lambda c: (c.source != "explicit", -c.confidence))
    chosen = {id(c) for c in ranked[:limit]}
    return [c for c in candidates if id(c) in chosen]
