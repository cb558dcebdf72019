"""Document passages in the read path: found, judged, and written below the memories.

They have a budget of their own, so that they displace no memory. The gate is stricter than for memories,
since a manual has words for everything: the best passage must be near to the question, nearer if triage says
that the message needs no memory, and nearer than any memory.
"""

import asyncio
import math
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from proxy.domain.core import Scope, Search, Turn
from proxy.domain.documents import PATH, PassageHit, PassageIndex, PassageSearch, path_of
from proxy.domain.errors import EmbeddingFailed
from proxy.domain.ports import Embedder, MemoryStore, TokenCounter
from proxy.recall.pack import Block, recent_texts
from proxy.recall.search import EncodedQuery, stretch
from proxy.recall.triage import SearchQuery, Verdict, query_of
from proxy.telemetry import ThrottledLog
from proxy.text.words import terms as terms_of
from proxy.wire.authorship import CLOSE, NOTICE, OPEN, neutralise

PASSAGES_NOTICE = "Passages from the user's documents; cite them by what stands in their brackets:"
SHORT_ID = 4  # characters of the end of a document's id

DENSE_WEIGHT = 0.8
# Shares of the model's threshold that the best passage must reach, if the message needs memory and if not.
_ENTRY, _STRICT_ENTRY = 1.2, 1.44
_FLOOR = 0.8  # of the entry: what the others must reach
_COVERED = 0.15  # added to the cosine of a passage with all of the question's words
_AHEAD = 0.2  # share of the model's threshold by which the best must be nearer than any memory
_COVERAGE = 0.5  # of the question's words by weight, if there are no cosines
_SHOWN_CHARS = 200  # of a passage that the conversation may show already
_OPENERS = 3  # best passages that may open the gate: the fused order need not begin with the nearest
_ENDS = re.compile(r"[.!?](?=\s)|[。！？\n]")  # Chinese has the most tokens per character, and no spaces
_NO_BRACKETS = str.maketrans("[]", "()")
_OPEN_END = re.compile(r"<(?=\s*/?\s*$)")  # the next line could make a marker of it


@dataclass(frozen=True, slots=True)
class Shelf:
    """What documents are looked up with, and how much is shown."""

    index: PassageIndex
    memories: MemoryStore
    embedder: Embedder | None
    budget_tokens: int = 400
    most: int = 3  # passages in a block
    deadline_s: float = 0.075  # memories must not wait for an index that is being loaded
    seldom: ThrottledLog = field(default_factory=ThrottledLog)  # logs that a look-up failed


@dataclass(frozen=True, slots=True)
class RankedPassage:
    """A passage that answers the question, and its score in [0, 1]."""

    hit: PassageHit
    score: float
    near: float = 0.0  # the cosine plus the bonus for shared words; their coverage if there is no cosine

    @property
    def cosine(self) -> float | None:
        """Of the passage to the question; None if either has no vector."""
        return self.hit.own.cosine


async def passages_for(
    turn: Turn, shelf: Shelf, verdict: Verdict, encoded: EncodedQuery | None
) -> Sequence[RankedPassage]:
    """Return the passages to show with the turn, best first. `encoded`: the query that memories are searched
    with, if they are. Raises StoreUnavailable."""
    query = verdict.query if encoded is None else encoded.query
    entry = _ENTRY if verdict.search else _STRICT_ENTRY
    found = await _find(query, turn.scope, shelf, turn.options.threshold, entry, alone=False)
    shown = [" ".join(text.split()) for text in recent_texts(turn.messages)] if found else []

    def is_visible(hit: PassageHit) -> bool:
        beginning = " ".join(hit.passage.text.split())[:_SHOWN_CHARS]
        return any(beginning in text for text in shown)

    return [one for one in found if not is_visible(one.hit)][: shelf.most]


async def search(
    scope: Scope, text: str, shelf: Shelf, *, limit: int, threshold: float | None = None
) -> Sequence[RankedPassage]:
    """Return the passages that would be shown for the text as a question, if there were no memories.

    Raises StoreUnavailable.
    """
    return (await _find(query_of(text), scope, shelf, threshold, _ENTRY, alone=True))[:limit]


def with_passages(
    block: Block, found: Sequence[RankedPassage], shelf: Shelf, tokens: TokenCounter, model: str
) -> Block:
    """Return the block with as many passages appended as their own budget holds. If the best one is too
    long, its beginning is shown, up to the end of a sentence or a line, provided that at least half of it
    fits."""
    if not found:
        return block
    lines, ids, left = [PASSAGES_NOTICE], list[str](), shelf.budget_tokens
    left -= tokens.count(PASSAGES_NOTICE + "\n", model)
    if not block.text:
        left -= tokens.count("\n".join((OPEN, NOTICE, CLOSE)), model)
    for one in found:
        line = render(one.hit)
        cost = tokens.count(line + "\n", model)
        if cost > left >= cost / 2 and one is found[0]:
            cut = line[: int(0.95 * left / cost * len(line))]
            ends = [end.end() for end in _ENDS.finditer(cut)]
            line = f"{cut[: ends[-1]] if ends and ends[-1] > len(cut) // 2 else cut}…"
            cost = tokens.count(line + "\n", model)
        if cost <= left:
            left -= cost
            lines.append(line)
            ids.append(one.hit.document.id)
    if not ids:
        return block
    above = block.text.removesuffix(CLOSE) or "\n".join((OPEN, NOTICE, ""))
    spent = shelf.budget_tokens - left
    shown = tuple(dict.fromkeys((*block.memory_ids, *ids)))
    return Block(above + "\n".join((*lines, CLOSE)), shown, block.tokens + spent)


def render(hit: PassageHit) -> str:
    """Return a passage's lines: document, headings, a short id, then the text in its layout."""
    name = neutralise(hit.document.name).translate(_NO_BRACKETS).replace('"', "'")
    way = PATH.join([f'doc "{name}"', *map(neutralise, hit.passage.headings)])
    text = [_indented(line) for line in hit.passage.text.splitlines() if line.strip()]
    gap = "\n" if len(text) > 1 else " "
    shown = "\n".join(text) if len(text) > 1 else "".join(text).strip()
    return f"- [{way} #{hit.document.id[-SHORT_ID:]}]{gap}{shown}"


def _indented(line: str) -> str:
    """Return the line made safe for the block, with its indentation."""
    bare = line.lstrip(" \t")
    safe = _OPEN_END.sub("‹", neutralise(bare))
    return f"  {' ' * len(line[: len(line) - len(bare)].expandtabs(4))}{safe}"


# ---------------------------------------------------------------- search
async def _find(
    query: SearchQuery, scope: Scope, shelf: Shelf, asked: float | None, entry_share: float, *, alone: bool
) -> list[RankedPassage]:
    """Return the passages that pass, best first. `alone`: regardless of how near memories are."""
    vector, embedder = None, shelf.embedder
    if embedder is not None and embedder.understands(query.text):
        with suppress(EmbeddingFailed):
            vector = await embedder.embed_query(query.text)
    if vector is None and not query.terms:
        return []
    hits, nearest = await asyncio.gather(
        shelf.index.search(scope, PassageSearch(vector, query.terms)),
        _nearest(None if alone else vector, scope, shelf),
    )
    ranked = _ranked(hits, query.terms, dense=vector is not None)
    if vector is None or embedder is None:
        return [one for one in ranked if one.near >= _COVERAGE]
    if asked is not None:
        return [one for one in ranked if (one.cosine or 0.0) >= asked]
    # Those near enough, if one of the best opens the gate. Those without a vector yet pass by their words,
    # unless a memory is near enough to be shown.
    threshold = embedder.model.similarity_threshold
    entry = entry_share * threshold
    ahead = nearest + _AHEAD * threshold
    best = [one for one in ranked if one.cosine is not None][:_OPENERS]
    is_open = any(one.near >= entry and (one.cosine or 0.0) >= ahead for one in best)
    floor = _FLOOR * entry if is_open else math.inf
    worded = _COVERAGE if nearest < threshold else math.inf
    return [one for one in ranked if one.near >= (worded if one.cosine is None else floor)]


async def _nearest(vector: bytes | None, scope: Scope, shelf: Shelf) -> float:
    """Return the cosine of the memory that is nearest to the question, also an expired one; -1 for none."""
    if vector is None:
        return -1.0
    hits = await shelf.memories.search(scope, Search(vector, (), limit=1, now=0.0))
    return max((hit.cosine for hit in hits if hit.cosine is not None), default=-1.0)


def _ranked(hits: Sequence[PassageHit], terms: Sequence[str], *, dense: bool) -> list[RankedPassage]:
    """Return the hits, best first, by the sum of cosine and BM25, each scaled to the hits at hand."""
    cosines = [hit.own.cosine for hit in hits if hit.own.cosine is not None]
    low, high = min(cosines, default=0.0), max(cosines, default=0.0)
    most = max((hit.own.bm25 for hit in hits), default=0.0) or 1.0
    share = DENSE_WEIGHT if dense else 0.0
    found = []
    for hit, covered in zip(hits, _coverage(hits, terms), strict=True):
        cosine = hit.own.cosine
        score = share * stretch(cosine, low, high - low) + (1 - share) * hit.own.bm25 / most
        found.append(RankedPassage(hit, score, covered if cosine is None else _COVERED * covered + cosine))
    return sorted(found, key=lambda one: -one.score)


def _coverage(hits: Sequence[PassageHit], terms: Sequence[str]) -> list[float]:
    """Return the share of the question's terms in each passage, headings included, weighted by
    idf = ln(1 + (n - df + ½) / (df + ½)) among the passages."""
    wanted = frozenset(terms)
    found = [wanted & set(terms_of(f"{path_of(h.passage.headings)} {h.passage.text}")) for h in hits]
    holders = Counter(term for some in found for term in some)
    idf = {t: math.log(1 + (len(hits) - holders[t] + 0.5) / (holders[t] + 0.5)) for t in terms}
    whole = sum(idf.values()) or 1.0
    return [sum(idf[t] for t in some) / whole for some in found]
