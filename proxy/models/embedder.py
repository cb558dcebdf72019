"""The embedder that requests use: an encoder behind a small thread pool and a cache of recent vectors."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import partial
from hashlib import blake2b
from typing import TypeVar

from proxy.domain.errors import EmbeddingFailed
from proxy.domain.limits import TTLCache
from proxy.domain.ports import EmbeddingModel
from proxy.models.catalog import Prompts
from proxy.models.encoder import Encoder, Pass, edges
from proxy.system import step_back

# What a thread does before it looks at the queue again: a query waits at most for this (0.1 s if all
# are as long as the model reads, 5 ms for facts of usual length).
_TEXTS_A_STEP = 4

_PASSES = 64  # questions whose hidden states are kept: 100 kB at most each

_Embed = Callable[[Sequence[str], asyncio.Semaphore | None], Awaitable[list[bytes]]]
_T = TypeVar("_T")


class OnnxEmbedder:
    """Implements ports.Embedder. The event loop never waits for the model.

    A call takes one short step at a time, so that a long import holds one thread and a query finds
    the other. A cancelled call leaves the pool as it was: a step under way ends unheard.

    Everybody who asks for a question while it is read, for its vector or for all of its `Pass`, waits for one
    run.
    """

    def __init__(
        self,
        encoder: Encoder,
        model: EmbeddingModel,
        *,
        prompts: Prompts | None = None,
        threads: int = 2,
        cache_size: int = 1024,
    ) -> None:
        self.encoder, self._model, self._prompts = encoder, model, prompts or Prompts()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="embed", initializer=step_back)
        self._recent = TTLCache[bytes, bytes](cache_size)
        self._passes = TTLCache[bytes, Pass](min(_PASSES, cache_size))
        self._begun: dict[bytes, _Begun] = {}

    @property
    def model(self) -> EmbeddingModel:
        return self._model

    def begin(self, text: str) -> None:
        """See ports.Embedder: whoever asks for the text while the model reads it waits for this run."""
        key = _key(self._prompts.query + text)
        is_known = self._passes.get(key) or (not self.encoder.has_states and self._recent.get(key))
        if key not in self._begun and not is_known and self.understands(text):
            with suppress(EmbeddingFailed):  # whoever asks will be told
                self._start(key, self._prompts.query + text)

    async def read(self, text: str) -> Pass:
        """Return all that one run over a question gives. Raises EmbeddingFailed."""
        asked = self._prompts.query + text
        key = _key(asked)
        if found := self._passes.get(key):
            return found
        return await (self._begun.get(key) or self._start(key, asked)).made()

    async def read_passage(self, text: str) -> Pass:
        """Return all that one run over a text that is found or compared gives. Raises EmbeddingFailed."""
        told = self._prompts.passage + text
        made = await self.run(partial(self.encoder.read, told))
        self._recent.put(_key(told), made.vector)
        return made

    async def run(self, work: Callable[[], _T]) -> _T:
        """Do the work, a few milliseconds, in a thread of the embedder's. Raises EmbeddingFailed."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except RuntimeError as e:  # the pool was shut down
            raise EmbeddingFailed("the embedder is closed") from e

    async def embed_query(self, text: str) -> bytes:
        """See ports.Embedder."""
        return self._recent.get(_key(self._prompts.query + text)) or (await self.read(text)).vector

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return one float32 unit vector a text, in order. Raises EmbeddingFailed."""
        return await self._passages(texts, None)

    def in_background(self) -> "BackgroundEmbedder":
        """Return the same embedder for work that nobody waits for."""
        return BackgroundEmbedder(self, self._passages)

    def _start(self, key: bytes, asked: str) -> "_Begun":
        try:
            run = asyncio.get_running_loop().run_in_executor(self._pool, self.encoder.read, asked)
        except RuntimeError as e:  # the pool was shut down
            raise EmbeddingFailed("the embedder is closed") from e
        begun = self._begun[key] = _Begun(run, partial(self._begun.pop, key))
        run.add_done_callback(partial(self._ended, key))
        return begun

    def _ended(self, key: bytes, run: "asyncio.Future[Pass]") -> None:
        begun = self._begun.get(key)
        if begun is not None and begun.run is run:
            del self._begun[key]
        if not run.cancelled() and run.exception() is None:
            self._recent.put(key, run.result().vector)
            self._passes.put(key, run.result())

    async def _passages(self, texts: Sequence[str], turn: asyncio.Semaphore | None) -> list[bytes]:
        """Embed texts that are found or compared; each step waits for its `turn`, if it is given one."""
        texts = [self._prompts.passage + text for text in texts]
        keys = [_key(text) for text in texts]
        found = {key: vector for key in keys if (vector := self._recent.get(key))}
        for key in set(keys) & self._begun.keys():
            if begun := self._begun.get(key):  # it may have ended while another was waited for
                found[key] = (await begun.made()).vector
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        if missing:
            vectors = await self._compute(list(missing.values()), turn)
            for key, vector in zip(missing, vectors, strict=True):
                found[key] = vector
                self._recent.put(key, vector)
        return [found[key] for key in keys]

    def understands(self, text: str) -> bool:
        """False where too much of the text is unknown to the model: its vector would mean nothing."""
        return self.encoder.understands(text)

    def close(self) -> None:
        """End the threads, after the steps already handed to them."""
        # Not cancel_futures: the coroutines that wait for them would see a cancellation of their own.
        self._pool.shutdown(wait=True)

    async def _compute(self, texts: list[str], turn: asyncio.Semaphore | None) -> list[bytes]:
        vectors: list[bytes] = []
        for start in range(0, len(texts), _TEXTS_A_STEP):
            step = texts[start : start + _TEXTS_A_STEP]
            async with turn or nullcontext():
                made = await self.run(partial(self.encoder.encode, step))
            vectors += (vector.tobytes() for vector in made)
        return vectors


class _Begun:
    """A run over a question. It is called off when all who waited have gone: in a burst, what comes too late
    must not keep the model from what does not."""

    def __init__(self, run: "asyncio.Future[Pass]", call_off: Callable[[], object]) -> None:
        self.run = run
        self._call_off = call_off  # at once: who comes next must not find what is being cancelled
        self._waiting = 0

    async def made(self) -> Pass:
        self._waiting += 1
        try:
            return await asyncio.shield(self.run)
        finally:
            self._waiting -= 1
            if not self._waiting and self.run.cancel():
                self._call_off()


class BackgroundEmbedder:
    """Implements ports.Embedder with one step at a time for all its callers together: however much there
    is to extract or to import, a query finds a thread of the pool free."""

    def __init__(self, embedder: OnnxEmbedder, embed: _Embed) -> None:
        self._embedder, self._embed = embedder, embed
        self._turn = asyncio.Semaphore(1)

    @property
    def model(self) -> EmbeddingModel:
        return self._embedder.model

    def begin(self, text: str) -> None:
        """Do nothing: nobody waits."""

    async def embed_query(self, text: str) -> bytes:
        """See ports.Embedder."""
        return await self._embedder.embed_query(text)

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return one float32 unit vector a text, in order. Raises EmbeddingFailed."""
        return await self._embed(texts, self._turn)

    def understands(self, text: str) -> bool:
        """See OnnxEmbedder."""
        return self._embedder.understands(text)


def _key(text: str) -> bytes:
    return blake2b(edges(text).encode("utf-8", "surrogatepass"), digest_size=16).digest()
