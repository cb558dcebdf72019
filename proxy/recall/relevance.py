"""Relevance: which candidates help with the message.

The judge gets all candidates in one batch, and reads message and memory together where their vectors leave it
open. That is more than nearness: an allergy helps with a recipe and shares no word with it. A request's own
`similarity_threshold` is taken as it is: the least cosine, and the judge is not asked. Without a judge the
embedding model's threshold decides.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from proxy.domain.core import Memory, Ranked
from proxy.domain.errors import EmbeddingFailed
from proxy.domain.judging import Judge, Reading, Remembered
from proxy.recall.rank import Candidate
from proxy.text.terms import normalise

# Set by measurement; all constants of the decision are here.
HELPS = 0.5  # the operating point of the calibrated head: something is shown if one candidate reaches it
ALSO_HELPS = 0.03  # then others of at least this are shown too: what is left out cannot help
HELP_SHARE = 0.2  # of the final score; the rest is the fused score
CANDIDATES = 12  # that are read, at least
MOST_CANDIDATES = 24


Readings = Callable[[Sequence[str]], Awaitable[Sequence[bytes | None]]]
"""Returns the stored readings of memories by their ids."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """What a candidate must reach; None: nothing. `asked`: the request's own least cosine, which decides
    alone. `floor`: the server's least cosine, if it sets one. `model`: the embedding model's, used without a
    judge. `helps`: what the judge must give."""

    asked: float | None = None
    floor: float | None = None
    model: float | None = None
    helps: float = HELPS


@dataclass(frozen=True, slots=True)
class Relevant:
    """The candidates that help, best first. `judged`: the judge has read them."""

    ranked: list[Ranked]
    judged: bool


def depth(limit: int) -> int:
    """Return how many candidates to look at for a request that wants `limit` memories."""
    return max(CANDIDATES, min(limit + 2, MOST_CANDIDATES))


async def relevant(
    reading: Reading | None,
    candidates: Sequence[Candidate],
    judge: Judge | None,
    threshold: Threshold,
    readings: Readings | None = None,
) -> Relevant:
    """Return the candidates that help with the message. A judge that fails is done without. `readings`: where
    stored readings are read by memory id."""
    if threshold.asked is None and judge is not None and reading is not None:
        near = [c for c in candidates if _reaches(c, threshold.floor)]
        try:
            return Relevant(await _helping(reading, near, judge, threshold.helps, readings), judged=True)
        except EmbeddingFailed:
            pass
    plain_rule = threshold.model if threshold.floor is None else threshold.floor
    least = plain_rule if threshold.asked is None else threshold.asked
    plain = [Ranked(c.hit.memory, c.score, why(c)) for c in candidates if _reaches(c, least)]
    return Relevant(without_repeats(plain), judged=False)


async def _helping(
    reading: Reading,
    candidates: Sequence[Candidate],
    judge: Judge,
    least: float,
    readings: Readings | None,
) -> list[Ranked]:
    memories = [Remembered(c.hit.memory.content, c.hit.vector) for c in candidates]

    async def stored(places: Sequence[int]) -> Sequence[bytes | None]:
        assert readings is not None
        return await readings([candidates[at].hit.memory.id for at in places])

    helps = await judge.helps(reading, memories, stored if readings is not None else None)
    if max(helps, default=0.0) < least:
        return []
    found = [
        Ranked(
            c.hit.memory, HELP_SHARE * share + (1 - HELP_SHARE) * c.score, f"{why(c)}, helps {_short(share)}"
        )
        for c, share in zip(candidates, helps, strict=True)
        if share >= min(least, ALSO_HELPS)
    ]
    return without_repeats(sorted(found, key=lambda one: -one.score))


def without_repeats(ranked: Sequence[Ranked]) -> list[Ranked]:
    """Return the memories without those whose text a better one of the same type holds word for word."""
    kept: list[Ranked] = []
    said: list[tuple[str, str]] = []
    for one in ranked:
        text = normalise(one.memory.content)
        if not any(kind == one.memory.type and text in better for kind, better in said):
            said.append((one.memory.type, text))
            kept.append(one)
    return kept


def is_doubted(memory: Memory) -> bool:
    """True for a preference that was stated with a doubt: shown, it would steer every answer."""
    return memory.type == "preference" and memory.confidence <= DOUBTED


DOUBTED = 0.7  # confidence; stating it again raises it


def why(candidate: Candidate) -> str:
    """Return which lists found it: "dense .41, lexical 3.2"."""
    hit, parts = candidate.hit, []
    if hit.cosine is not None:
        parts.append(f"dense {_short(hit.cosine)}")
    if hit.bm25 > 0:
        parts.append(f"lexical {hit.bm25:.1f}")
    return ", ".join(parts)


def _reaches(candidate: Candidate, least: float | None) -> bool:
    """True if its cosine is high enough; without a cosine a shared word does."""
    cosine = candidate.hit.cosine
    return least is None or (candidate.hit.bm25 > 0 if cosine is None else cosine >= least)


def _short(value: float) -> str:
    return f"{value:.2f}".replace("0.", ".", 1)
