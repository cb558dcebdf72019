"""Optional reranking: the best hits are put in a new order by a model that reads question and memory
together.

Such a model costs some milliseconds for every memory, so it gets the first `top` and a share of the time that
is left. It reads them a few at a time, the best first: when time runs out, those that it has read are in
their new order and the rest keep their places. Whatever goes wrong, the order stays.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from proxy.domain.core import Ranked
from proxy.domain.errors import RerankFailed
from proxy.domain.limits import CircuitBreaker
from proxy.domain.ports import Reranker
from proxy.telemetry import log

TOP = 20
STEP = 4  # memories at a time
AT_ONCE = 2  # requests: a burst is better served in the order that it has than late
TRIP_AFTER = 3  # failures in a row
OPEN_S = 30.0  # until the model is asked again
SHARE = 0.6  # of the time that is left: the rest is for injecting, and for being wrong
WEIGHT = 0.7  # of the model's opinion; the rest is the place it had before
LEAST_SPREAD = 4.0  # logits: a model whose best and worst lie closer has no strong opinion


class Reranking:
    """Reorders what was ranked. `deadline_s`: for all memory work of a request."""

    def __init__(
        self,
        reranker: Reranker,
        *,
        deadline_s: float,
        top: int = TOP,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reranker, self._deadline_s, self.top = reranker, deadline_s, top
        self._breaker = CircuitBreaker(OPEN_S, trip_after=TRIP_AFTER, clock=clock)
        self._reading = 0

    async def reorder(self, question: str, ranked: Sequence[Ranked], *, spent_s: float) -> Sequence[Ranked]:
        """Return the same memories, the first of them in the model's order as far as it came.

        `spent_s`: how much of the deadline is gone.
        """
        left_s = SHARE * (self._deadline_s - max(0.0, spent_s))
        if len(ranked) < 2 or left_s <= 0 or self._busy or not self._reranker.understands(question):
            return ranked
        logits = await self._read(question, [one.memory.content for one in ranked[: self.top]], left_s)
        if len(logits) < 2:
            return ranked
        read = fused(ranked[: len(logits)], logits)
        # What was not read is worth no more than what was: the budget is filled by worth.
        unread = (replace(one, score=min(one.score, read[-1].score)) for one in ranked[len(logits) :])
        return [*read, *unread]

    @property
    def _busy(self) -> bool:
        return self._reading >= AT_ONCE or self._breaker.is_open

    async def _read(self, question: str, texts: Sequence[str], within_s: float) -> Sequence[float]:
        """Return the logits of the first texts, as many as there was time for."""
        logits: list[float] = []
        self._reading += 1
        try:
            async with asyncio.timeout(within_s):
                for start in range(0, len(texts), STEP):
                    logits += await self._reranker.rerank(question, texts[start : start + STEP])
        except TimeoutError:
            log.debug("memory.rerank_cut", read=len(logits), of=len(texts))
        except RerankFailed as error:
            log.warning("memory.rerank_failed", error=str(error))
            logits = []
        finally:
            self._reading -= 1
        if logits:
            self._breaker.succeeded()
        elif open_s := self._breaker.failed():
            log.warning("memory.rerank_rests", seconds=open_s)
        return logits


def fused(ranked: Sequence[Ranked], logits: Sequence[float]) -> list[Ranked]:
    """Return the memories by WEIGHT of the model's opinion and the rest of what they scored before.

    Both are brought to [0, 1]. A spread below LEAST_SPREAD is not stretched, so that a model to which all are
    alike leaves the order nearly as it was.
    """
    best, before = max(logits), max(one.score for one in ranked) or 1.0
    spread = max(best - min(logits), LEAST_SPREAD)
    scored = [
        replace(
            one,
            score=WEIGHT * (1 - (best - logit) / spread) + (1 - WEIGHT) * one.score / before,
            why=f"{one.why}, reranked",
        )
        for one, logit in zip(ranked, logits, strict=True)
    ]
    return sorted(scored, key=lambda one: -one.score)
