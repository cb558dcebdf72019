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
from typing import Any

from proxy.admit.gate import vectors_of
from proxy.admit.safety import DEFAULT, REDACTED, REMOVED, SafetyPolicy, clean
from proxy.domain.core import STATED_KINDS, Candidate, Evidence, Hit, Memory, Search
from proxy.domain.errors import EmbeddingFailed
from proxy.domain.ports import CompletionRequest, Embedder, Judge, MemoryStore, Statement
from proxy.domain.session import Batch, Exchange
from proxy.learn.grounding import Grounded, ground, sources, window_of
from proxy.learn.llm_io import TAGS, conversation, earlier, memory_line, read_facts, request_for
from proxy.learn.recorder import RULE, intent_of
from proxy.prompts import prompt
from proxy.text.dates import anchored
from proxy.text.words import is_question, normalise, sentences, terms

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


@dataclass(frozen=True, slots=True)
class Judged:
    """Candidates by outcome: stored, held for review with a reason, dropped by reason."""

    stored: tuple[Candidate, ...] = ()
    held: tuple[tuple[Candidate, str], ...] = ()
    dropped: Counter[str] = field(default_factory=Counter)


async def judged(judge: Judge | None, grounded: Sequence[Grounded]) -> Judged:
    """Return the candidates by outcome, judged in one batch. Without a judge, those are stored that quote the
    user literally. Raises EmbeddingFailed."""
    if judge is None:
        literal = tuple(one.candidate for one in grounded if one.literal)
        return Judged(literal, dropped=+Counter(no_judge=len(grounded) - len(literal)))
    if not grounded:
        return Judged()
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
    return Judged(tuple(stored), tuple(held), dropped)


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


async def from_sentences(judge: Judge | None, exchanges: Sequence[Exchange], policy: SafetyPolicy) -> Judged:
    """Return the user's statements; none without a judge, since no form tells a statement from small talk.
    Raises EmbeddingFailed."""
    if judge is None:
        return Judged()
    found: dict[str, Grounded] = {}
    for exchange in exchanges:
        reading = await judge.read(exchange.said, closely=True)
        asked = max(reading.asks.remember, reading.asks.rule)
        if reading.needs.small_talk > max(reading.needs.memory, asked, 0.5):
            continue
        for one in _sentence_candidates(exchange, policy)[:_MOST_PER_EXCHANGE]:
            found.setdefault(normalise(one.candidate.content), one)
    return await judged(judge, list(found.values()))


async def asked_for(judge: Judge | None, exchanges: Sequence[Exchange], policy: SafetyPolicy) -> Judged:
    """Return what the user asked to be remembered, and rules: of a message that asks, the sentences that do,
    else all its statements. Raises EmbeddingFailed."""
    asking = [e for e in exchanges if (await intent_of(judge, e.said)).is_explicit]
    found = await from_sentences(judge, asking, policy)
    explicit = tuple(c for c in found.stored if c.source == "explicit")
    return replace(found, stored=explicit or found.stored, held=())


def _sentence_candidates(exchange: Exchange, policy: SafetyPolicy) -> list[Grounded]:
    """Return the sentences that may be worth storing, each with its window; numbered steps as one."""
    parts = _with_steps(clean(exchange.said, policy))
    texts = [text for text, _ in parts]
    return [
        Grounded(_verbatim(text, is_steps, exchange), window_of(texts, n, n, text), True)
        for n, (text, is_steps) in enumerate(parts)
        if _may_be_stored(text, is_steps)
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


def _may_be_stored(text: str, is_steps: bool) -> bool:
    shortest = _FEWEST_CHARS - 2 * (not text.isascii())
    if not shortest <= len(text) <= (_MOST_STEPS_CHARS if is_steps else _MOST_CHARS):
        return False
    unfit = is_question(text) or text.endswith((":", "\uff1a")) or REMOVED in text or REDACTED in text
    return not unfit and bool(terms(text))


def _verbatim(text: str, is_steps: bool, exchange: Exchange) -> Candidate:
    type_ = "procedural" if is_steps else "semantic"
    return Candidate(
        type=type_,
        content=anchored(text[0].upper() + text[1:], type_, exchange.local),
        confidence=_VERBATIM_CONFIDENCE,
        evidence=text,
        source="verbatim",
        observed_at=exchange.said_at,
        timezone=exchange.timezone,
        origin=Evidence(exchange.session_id, exchange.id, text[:500]),
    )


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
    user = Template(prompt("extraction_input.v1")).substitute(
        known="\n".join(memory_line(m, policy, last.timezone) for m in known) or "(none)",
        context=earlier(batch.context, policy) or "(none)",
        exchanges=conversation(batch.pending, policy),
    )
    return request_for(ROLE, "extraction.v1", user, last, SCHEMA)


async def facts(
    answer: str,
    batch: Batch,
    known: Sequence[Memory],
    policy: SafetyPolicy = DEFAULT,
    *,
    judge: Judge | None,
    embedder: Embedder | None = None,
) -> Judged:
    """Return the answer's facts by outcome, each with its origin. Raises Unreadable, EmbeddingFailed."""
    found = await asyncio.to_thread(read_facts, answer)  # some 10 ms for a long one
    before = batch.context[-1] if batch.context else None
    shown = await asyncio.to_thread(sources, batch.pending, policy, before)
    grounded = await ground(found, shown, known, embedder)
    result = await _without_small_talk(judge, await judged(judge, grounded), batch.pending)
    best = _best(result.stored, max(MAX_FACTS, len(batch.pending)))
    counts = Counter(ungrounded=len(found) - len(grounded), surplus=len(result.stored) - len(best))
    return replace(result, stored=tuple(best), dropped=result.dropped + counts)


async def _without_small_talk(judge: Judge | None, result: Judged, exchanges: Sequence[Exchange]) -> Judged:
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
    stored = tuple(
        c
        for c in result.stored
        if c.source != "extracted" or not c.origin or c.origin.exchange_id not in small
    )
    counts = Counter(small_talk=len(result.stored) - len(stored))
    return replace(result, stored=stored, dropped=result.dropped + counts)


def _best(candidates: Sequence[Candidate], limit: int) -> list[Candidate]:
    """Return at most `limit` candidates in order: explicit ones first, then by confidence."""
    ranked = sorted(candidates, key=lambda c: (c.source != "explicit", -c.confidence))
    chosen = {id(c) for c in ranked[:limit]}
    return [c for c in candidates if id(c) in chosen]
