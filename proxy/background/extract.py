"""Extraction: one LLM call for a batch of exchanges, and the check that its facts stand in them.

The conversation is data: it is redacted, planted instructions are cut out, our own markers in it are
defused, and every part is cut to a bound. A fact that quotes evidence must quote it verbatim from the
exchanges to extract, or have its words there.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from string import Template

from proxy.background.cues import is_explicit
from proxy.background.filters import clean
from proxy.background.planted import REMOVED
from proxy.background.policy import DEFAULT, SafetyPolicy
from proxy.background.provenance import flat
from proxy.background.repair import read_facts
from proxy.domain import Batch, Candidate, Evidence, Exchange, Memory
from proxy.ports import CompletionRequest
from proxy.terms import terms

ROLE = "memory_extraction"
MIN_SUPPORT = 0.6  # share of a fact's terms that must be in the batch where its evidence is not
_MAX_SAID, _MAX_ANSWER, _MAX_CONTEXT, _MAX_TOTAL = 6_000, 2_000, 600, 40_000  # characters
_SECTION = re.compile(
    r"<(?=\s{0,3}/?\s{0,3}(?:known_memories|context|conversation|exchange|earlier|user|assistant)\b)", re.I
)
_NARRATION = frozenset("user stated set want prefer plan currently now new call name".split())


@dataclass(frozen=True, slots=True)
class Facts:
    """What an answer holds: grounded candidates, and how many were dropped as not stated."""

    candidates: tuple[Candidate, ...]
    ungrounded: int = 0


def request(batch: Batch, known: Sequence[Memory], policy: SafetyPolicy = DEFAULT) -> CompletionRequest:
    """Return the LLM call for the batch; `known` are the related memories that it may replace."""
    last = batch.pending[-1]
    user = Template(_prompt("extraction_input.v1.txt")).substitute(
        known="\n".join(_known_line(m, policy) for m in known) or "(none)",
        context="\n".join(_context(e, policy) for e in batch.context) or "(none)",
        exchanges=_bounded([_exchange(e, policy) for e in batch.pending]),
    )
    return CompletionRequest(
        role=ROLE,
        system=_prompt("extraction.v1.txt"),
        user=user,
        model=last.model,
        scope=last.scope,
        session_id=last.session_id,
    )


def facts(answer: str, batch: Batch, known: Sequence[Memory], policy: SafetyPolicy = DEFAULT) -> Facts:
    """Return the answer's facts that the batch supports, each with its origin. Raises Unreadable."""
    found = read_facts(answer)
    sources = [_Source.of(e, policy) for e in batch.pending]
    grounded = [g for c in found if (g := _ground(c, sources, known)) is not None]
    return Facts(tuple(grounded), len(found) - len(grounded))


# ---------------------------------------------------------------- the prompt
@cache
def _prompt(name: str) -> str:
    return files("proxy").joinpath("prompts", name).read_text("utf-8").strip()


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC, %A")


def _known_line(memory: Memory, policy: SafetyPolicy) -> str:
    said = datetime.fromtimestamp(memory.valid_from, UTC).strftime("%Y-%m-%d")
    return f"[{memory.id}] ({memory.type}, {said}) {_defused(clean(memory.content, policy))}"


def _exchange(exchange: Exchange, policy: SafetyPolicy) -> str:
    said, answer = _defused(_said(exchange, policy)), _defused(_answer(exchange, policy))
    return (
        f'<exchange date="{_date(exchange.at)}">\n<user>\n{said}\n</user>\n'
        f"<assistant>\n{answer}\n</assistant>\n</exchange>"
    )


def _said(exchange: Exchange, policy: SafetyPolicy) -> str:
    """Return the user's text as the model sees it, and as its evidence is looked for. Cut first: the
    stored text is redacted, so no secret loses its shape at the cut, and filters cost by length."""
    return clean(_cut(exchange.said, _MAX_SAID), policy)


def _answer(exchange: Exchange, policy: SafetyPolicy) -> str:
    answer = exchange.answer if policy.tool_output else _without_code(exchange.answer)
    return clean(_cut(answer, _MAX_ANSWER), policy)


def _context(exchange: Exchange, policy: SafetyPolicy) -> str:
    said, answer = (_defused(clean(_cut(t, _MAX_CONTEXT), policy)) for t in (exchange.said, exchange.answer))
    return f'<earlier date="{_date(exchange.at)}">\nuser: {said}\nassistant: {answer}\n</earlier>'


def _bounded(parts: list[str]) -> str:
    """Join the parts; when they are too long together, the middle of each gives way."""
    total = sum(map(len, parts))
    if total > _MAX_TOTAL:
        parts = [_cut(p, max(400, len(p) * _MAX_TOTAL // total)) for p in parts]
    return "\n".join(parts)


def _cut(text: str, limit: int) -> str:
    """Keep beginning and end: people put what they want before or after a paste."""
    if len(text) <= limit:
        return text
    return f"{text[: limit * 2 // 3]}\n[… cut …]\n{text[-limit // 3 :]}"


def _defused(text: str) -> str:
    """Return the text unable to open or close our sections."""
    return _SECTION.sub("‹", text)


def _without_code(answer: str) -> str:
    """Return an answer without fenced blocks: code and tool output are no facts about the user."""
    parts = answer.split("```")
    return "[code]".join(parts[::2]) if len(parts) > 1 else answer


# ---------------------------------------------------------------- grounding
@dataclass(frozen=True, slots=True)
class _Source:
    exchange: Exchange
    said: str  # normalised
    answer: str
    words: frozenset[str]

    @classmethod
    def of(cls, exchange: Exchange, policy: SafetyPolicy) -> "_Source":
        said, answer = _said(exchange, policy), _answer(exchange, policy)
        words = frozenset(terms(said)) | frozenset(terms(answer))
        return cls(exchange, flat(said), flat(answer), words)


def _ground(candidate: Candidate, sources: list[_Source], known: Sequence[Memory]) -> Candidate | None:
    """Return the candidate with its origin, None if the exchanges to extract do not state it."""
    span = flat(candidate.evidence)
    source = next((s for s in sources if span and span in s.said), None)
    if source is None and span:
        source = next((s for s in sources if span in s.answer), None)
        # The assistant repeats what it was reminded of: that is our own memory, not news.
        if source is not None and any(flat(m.content) == flat(candidate.content) for m in known):
            return None
    if source is None:
        support, best = _best_source(candidate.content, sources)
        if span and support < MIN_SUPPORT:
            return None
        source, candidate = best, replace(candidate, evidence="")
    exchange = source.exchange
    asked = is_explicit(exchange.said) and span in source.said
    return replace(
        candidate,
        replaces=_shown(candidate.replaces, known),
        source="explicit" if asked else candidate.source,
        importance=0.8 if asked else 0.6 if candidate.type == "preference" else candidate.importance,
        observed_at=exchange.at,
        origin=Evidence(exchange.session_id, exchange.id, candidate.evidence[:500].replace(REMOVED, "")),
    )


def _best_source(content: str, sources: list[_Source]) -> tuple[float, _Source]:
    """Return the share of the content's terms that the batch holds, and the exchange with the most.

    Equal shares go to the later exchange: facts are restated as they are settled."""
    words = frozenset(terms(content)) - _NARRATION
    everything = frozenset[str]().union(*(s.words for s in sources))
    support = len(words & everything) / len(words) if words else 1.0
    return support, max(sources, key=lambda s: (len(words & s.words), s.exchange.seq))


def _shown(given: str | None, known: Sequence[Memory]) -> str | None:
    """Return the id that the model means: one that it was shown, whole or shortened; None otherwise."""
    if given is None or len(given) < 6:
        return None
    bare = given.removeprefix("mem_")
    found = [m.id for m in known if m.id == given or m.id.removeprefix("mem_").startswith(bare)]
    return found[0] if len(found) == 1 else None
