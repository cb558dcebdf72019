"""The embedder that requests use: a tokenizer and an ONNX graph behind a small thread pool and a cache.

Every text is encoded separately. In a batch, int8 models scale activations over all texts at once, so that
a text's vector would depend on its neighbours (cosine .98 to the vector it has alone); on one core a batch
would save only a tenth of the time.

An encoder may be called from several threads at once: onnxruntime sessions and tokenizers both allow it.
"""

import asyncio
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from copy import copy
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxy.domain.errors import EmbeddingFailed
from proxy.domain.limits import TTLCache, lower_thread_priority
from proxy.domain.ports import EmbeddingModel

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

# ---------------------------------------------------------------- encoder
MAX_TOKENS = 256
# Of a longer text only this much is tokenised, half from either end: megabytes would take seconds.
MAX_CHARS = 16 * MAX_TOKENS
_GLANCE = 400  # characters that are checked for unknown words
# Above this share of letters unknown to the model's vocabulary the vector means nothing.
UNKNOWN_LIMIT = 0.25

_UNKNOWN_TOKENS = ("[UNK]", "<unk>")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_POOLED = "sentence_embedding"

_STATES = "states"

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EncoderOutput:
    """The result of one run over a text: the unit vector (float32), and from our encoder the last hidden
    states (float16, one row per token)."""

    vector: bytes
    states: bytes = b""


class TextTokenizer(Protocol):
    """What an encoder needs of a tokenizer, which truncates at the model's maximum."""

    def ids(self, text: str) -> list[int]:
        """Return the token ids of a text, special tokens included."""
        ...

    def pieces(self, text: str) -> Iterator[tuple[str, bool]]:
        """Yield each piece of the text, and whether the vocabulary lacks it."""
        ...


class HubTokenizer:
    """A tokenizer.json, loaded with `tokenizers`."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        tokenizer.no_padding()  # the published file pads everything to 128 tokens
        self._tokenizer = tokenizer
        self._unknown = {tokenizer.token_to_id(token) for token in _UNKNOWN_TOKENS} - {None}

    def ids(self, text: str) -> list[int]:
        return self._tokenizer.encode(text).ids

    def pieces(self, text: str) -> Iterator[tuple[str, bool]]:
        encoding = self._tokenizer.encode(text)
        for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            yield text[start:end], token in self._unknown


class Encoder:
    """One sentence model: mean (or first-token) pooling over its last layer, unit length.

    `directory`: of the weights of our own encoder, which the heads share; None for any other."""

    def __init__(
        self,
        session: "InferenceSession",
        tokenizer: TextTokenizer,
        *,
        first_token: bool = False,
        directory: Path | None = None,
    ) -> None:
        self.tokenizer, self.directory = tokenizer, directory
        self._session = session
        self._inputs = input_types(session)
        outputs = [o.name for o in session.get_outputs()]
        self._output = _POOLED if _POOLED in outputs else outputs[0]
        self.has_states = _STATES in outputs
        self._first_token = first_token

    def encode(self, texts: Sequence[str]) -> list[Vector]:
        """Return one unit vector per text. Raises EmbeddingFailed."""
        return [self._pool(*self._run(text, [self._output])) for text in texts]

    def read(self, text: str) -> EncoderOutput:
        """Return the vector and the hidden states of a text. Raises EmbeddingFailed."""
        if not self.has_states:
            return EncoderOutput(self.encode([text])[0].tobytes())
        pooled, states = self._run(text, [self._output, _STATES])
        return EncoderOutput(self._pool(pooled).tobytes(), states.astype(np.float16).tobytes())

    def understands(self, text: str) -> bool:
        """True if the model knows enough of the text's words for its vector to mean something."""
        if text.isascii():
            return bool(text) and not text.isspace()
        total = unknown = 0
        for piece, is_unknown in self.tokenizer.pieces(readable(text)[:_GLANCE]):
            # In letters: 0 for an emoji, 3 for a Chinese character.
            weight = sum(3 if unicodedata.east_asian_width(c) in "WF" else 1 for c in piece if c.isalnum())
            total += weight
            unknown += weight if is_unknown else 0
        return total > 0 and unknown / total < UNKNOWN_LIMIT

    def _run(self, text: str, outputs: list[str]) -> list[Vector]:
        """Return these outputs of a run over one text."""
        try:
            ids = self.tokenizer.ids(readable(text))
            feed = feed_of(self._inputs, ids, np.ones(len(ids)), np.zeros(len(ids)))
            made = self._session.run(outputs, feed)
        except Exception as e:  # the errors of onnxruntime and tokenizers have no base class of their own
            raise EmbeddingFailed(f"the embedding model failed: {type(e).__name__}") from e
        return [np.asarray(output[0], np.float32) for output in made]

    def _pool(self, output: Vector) -> Vector:
        """Return the unit vector of (tokens, dimension), or of an output that the graph has pooled."""
        if output.ndim == 2:
            # The sum has the direction of the mean.
            output = output[0] if self._first_token else output.sum(axis=0)
        norm = np.linalg.norm(output)
        if not np.isfinite(norm) or norm == 0:
            raise EmbeddingFailed("the embedding model returned no direction")
        return output / norm


def input_types(session: "InferenceSession") -> dict[str, type[np.integer]]:
    """Return the names of the graph's inputs, two or three, with their types: int64 or int32."""
    return {i.name: np.int32 if "int32" in i.type else np.int64 for i in session.get_inputs()}


def feed_of(
    types: Mapping[str, type[np.integer]], ids: ArrayLike, mask: ArrayLike, segments: ArrayLike
) -> dict[str, NDArray[np.integer]]:
    """Return the graph's inputs for one text, or one pair."""
    values = {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}
    return {name: np.asarray(values[name], kind)[None] for name, kind in types.items()}


def readable(text: str) -> str:
    """Return both ends of the text, with lone surrogates replaced."""
    return _LONE_SURROGATE.sub("\ufffd", edges(text))


def edges(text: str) -> str:
    """Return the text without the middle, which no model reads."""
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS // 2] + text[-MAX_CHARS // 2 :]


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prefixes that a model expects before a question and before a passage."""

    query: str = ""
    passage: str = ""


# ---------------------------------------------------------------- embedder
# Texts that a thread encodes before it returns to the queue, where a query waits (5 ms for facts of usual
# length, 0.1 s for the longest).
_TEXTS_A_STEP = 4

_PASSES = 64  # questions whose hidden states are cached: 100 kB at most each

_T = TypeVar("_T")


class OnnxEmbedder:
    """Implements ports.Embedder. The event loop never waits for the model.

    A call takes one short step at a time, so that a long import occupies one thread and a query finds the
    other. If a call is cancelled, its running step finishes and the result is discarded. Concurrent
    requests for the same question share one run.
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
        self._pool = ThreadPoolExecutor(
            threads, thread_name_prefix="embed", initializer=lower_thread_priority
        )
        self._recent = TTLCache[bytes, bytes](cache_size)
        self._passes = TTLCache[bytes, EncoderOutput](min(_PASSES, cache_size))
        self._runs: dict[bytes, _Run] = {}
        self._turn: asyncio.Semaphore | None = None  # that a step of `embed` waits for

    @property
    def model(self) -> EmbeddingModel:
        return self._model

    def begin(self, text: str) -> None:
        """Requests for the text while the model reads it wait for this run."""
        if self._turn is not None:
            return  # background work has no deadline
        key = _key(self._prompts.query + text)
        is_known = self._passes.get(key) or (not self.encoder.has_states and self._recent.get(key))
        if key not in self._runs and not is_known and self.understands(text):
            with suppress(EmbeddingFailed):  # `read` raises it
                self._start(key, self._prompts.query + text)

    async def read(self, text: str) -> EncoderOutput:
        """Return the vector and hidden states of a question. Raises EmbeddingFailed."""
        asked = self._prompts.query + text
        key = _key(asked)
        if found := self._passes.get(key):
            return found
        return await (self._runs.get(key) or self._start(key, asked)).result()

    async def read_passage(self, text: str) -> EncoderOutput:
        """Return the vector and hidden states of a text to find or compare. Raises EmbeddingFailed."""
        passage = self._prompts.passage + text
        output = await self.run(partial(self.encoder.read, passage))
        self._recent.put(_key(passage), output.vector)
        return output

    async def run(self, work: Callable[[], _T]) -> _T:
        """Do work of a few milliseconds in one of the embedder's threads. Raises EmbeddingFailed."""
        return await self._submit(work)

    def _submit(self, work: Callable[[], _T]) -> "asyncio.Future[_T]":
        try:
            return asyncio.get_running_loop().run_in_executor(self._pool, work)
        except RuntimeError as e:  # the pool was shut down
            raise EmbeddingFailed("the embedder is closed") from e

    async def embed_query(self, text: str) -> bytes:
        return self._recent.get(_key(self._prompts.query + text)) or (await self.read(text)).vector

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return one float32 unit vector per text, in order. Raises EmbeddingFailed."""
        texts = [self._prompts.passage + text for text in texts]
        keys = [_key(text) for text in texts]
        found = {key: vector for key in keys if (vector := self._recent.get(key))}
        for key in set(keys) & self._runs.keys():
            if run := self._runs.get(key):  # it may have ended while another was awaited
                found[key] = (await run.result()).vector
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        for start in range(0, len(missing), _TEXTS_A_STEP):
            step = list(missing)[start : start + _TEXTS_A_STEP]
            async with self._turn or nullcontext():
                made = await self.run(partial(self.encoder.encode, [missing[key] for key in step]))
            for key, unit in zip(step, made, strict=True):
                found[key] = unit.tobytes()
                self._recent.put(key, found[key])
        return [found[key] for key in keys]

    def in_background(self) -> "OnnxEmbedder":
        """Return the same embedder for background work: it takes one step at a time for all its callers
        together, so that a query finds a free thread during any extraction or import."""
        background = copy(self)
        background._turn = asyncio.Semaphore(1)
        return background

    def _start(self, key: bytes, asked: str) -> "_Run":
        def ended(run: "asyncio.Future[EncoderOutput]") -> None:
            if self._runs.get(key) is shared:
                del self._runs[key]
            if not run.cancelled() and run.exception() is None:
                self._recent.put(key, run.result().vector)
                self._passes.put(key, run.result())

        run = self._submit(partial(self.encoder.read, asked))
        self._runs[key] = shared = _Run(run, partial(self._runs.pop, key))
        run.add_done_callback(ended)
        return shared

    def understands(self, text: str) -> bool:
        return self.encoder.understands(text)

    def close(self) -> None:
        """End the threads after their queued steps."""
        # Not cancel_futures: the waiting coroutines would be cancelled.
        self._pool.shutdown(wait=True)


class _Run:
    """A run over a question. It is cancelled when no request waits for it any more: in a burst, requests past
    their deadline must not occupy the model."""

    def __init__(self, future: "asyncio.Future[EncoderOutput]", discard: Callable[[], object]) -> None:
        self.future = future
        self._discard = discard  # at once: the next request must not find a cancelled run
        self._waiting = 0

    async def result(self) -> EncoderOutput:
        self._waiting += 1
        try:
            return await asyncio.shield(self.future)
        finally:
            self._waiting -= 1
            if not self._waiting and self.future.cancel():
                self._discard()


def _key(text: str) -> bytes:
    return blake2b(edges(text).encode("utf-8", "surrogatepass"), digest_size=16).digest()
