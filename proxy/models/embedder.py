"""The embedder that requests use: a tokenizer and an ONNX graph behind a small thread pool and a cache.

Every text is encoded separately. In a batch, int8 models scale activations over all texts at once, so that
a text's vector would depend on its neighbours (cosine .98 to the vector it has alone); on one core a batch
would save only a tenth of the time.

An encoder may be called from several threads at once: onnxruntime sessions and tokenizers both allow it.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from proxy.domain.errors import EmbeddingFailed

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer
import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import partial
from hashlib import blake2b
from typing import TypeVar

from proxy.domain.limits import TTLCache
from proxy.domain.operating_system import lower_thread_priority
from proxy.domain.ports import EmbeddingModel

# ---------------------------------------------------------------- encoder
MAX_TOKENS = 256
# No more of a text is tokenised, half of it at either end: megabytes would take seconds.
MAX_CHARS = 16 * MAX_TOKENS
_GLANCE = 400  # characters that tell whether a text can be read
# Above this share of letters that the model's vocabulary does not have, its vector means nothing.
UNKNOWN_LIMIT = 0.25

_UNKNOWN_TOKENS = ("[UNK]", "<unk>")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_POOLED = "sentence_embedding"

_STATES = "states"

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EncoderOutput:
    """What one run over a text gave: the unit vector (float32), and of our encoder the last hidden states
    (float16, a row a token)."""

    vector: bytes
    states: bytes = b""


class TextTokenizer(Protocol):
    """What an encoder needs of a tokenizer. It truncates at what the model reads."""

    def ids(self, text: str) -> list[int]:
        """Return the token ids of a text, special tokens included."""
        ...

    def pieces(self, text: str) -> Iterator[tuple[str, bool]]:
        """Yield each piece of the text, and True if the vocabulary does not have it."""
        ...


class HubTokenizer:
    """A tokenizer.json, read by `tokenizers`."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        tokenizer.no_padding()  # the published file pads everything to 128 tokens
        self._tokenizer = tokenizer
        self._unknown = {tokenizer.token_to_id(token) for token in _UNKNOWN_TOKENS} - {None}

    def ids(self, text: str) -> list[int]:
        """See TextTokenizer."""
        return self._tokenizer.encode(text).ids

    def pieces(self, text: str) -> Iterator[tuple[str, bool]]:
        """See TextTokenizer."""
        encoding = self._tokenizer.encode(text)
        for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            yield text[start:end], token in self._unknown


class Encoder:
    """One sentence model: mean (or first-token) pooling over its last layer, unit length.

    `directory`: where the weights of our own encoder lie, which the heads share; None for any other."""

    def __init__(
        self,
        session: "InferenceSession",
        tokenizer: TextTokenizer,
        *,
        pooling: str = "mean",
        directory: Path | None = None,
    ) -> None:
        self.tokenizer, self.directory = tokenizer, directory
        self._session = session
        self._inputs = {i.name: np.int32 if "int32" in i.type else np.int64 for i in session.get_inputs()}
        outputs = [o.name for o in session.get_outputs()]
        self._output = _POOLED if _POOLED in outputs else outputs[0]
        self.has_states = _STATES in outputs
        self._first_token = pooling == "cls"

    def encode(self, texts: Sequence[str]) -> list[Vector]:
        """Return one unit vector a text. Raises EmbeddingFailed."""
        return [self._pool(*self._run(text, [self._output])) for text in texts]

    def read(self, text: str) -> EncoderOutput:
        """Return all that one run over the text gives. Raises EmbeddingFailed."""
        if not self.has_states:
            return EncoderOutput(self.encode([text])[0].tobytes())
        pooled, states = self._run(text, [self._output, _STATES])
        return EncoderOutput(self._pool(pooled).tobytes(), states.astype(np.float16).tobytes())

    def understands(self, text: str) -> bool:
        """True while enough of the text's words are known to the model for its vector to mean something."""
        if text.isascii():
            return bool(text) and not text.isspace()
        total = unknown = 0
        for piece, is_unknown in self.tokenizer.pieces(readable(text)[:_GLANCE]):
            weight = _weight(piece)
            total += weight
            unknown += weight if is_unknown else 0
        return total > 0 and unknown / total < UNKNOWN_LIMIT

    def _run(self, text: str, outputs: list[str]) -> list[Vector]:
        """Return these outputs of a run over one text."""
        try:
            made = self._session.run(outputs, self._feed(self.tokenizer.ids(readable(text))))
        except Exception as e:  # the errors of onnxruntime and tokenizers have no base class of their own
            raise EmbeddingFailed(f"the embedding model failed: {type(e).__name__}") from e
        return [np.asarray(output[0], np.float32) for output in made]

    def _feed(self, tokens: list[int]) -> dict[str, NDArray[np.integer]]:
        """Return the graph's inputs for one text: it asks for two or three, as int64 or int32."""
        shape = (1, len(tokens))
        values = {"input_ids": [tokens], "attention_mask": np.ones(shape), "token_type_ids": np.zeros(shape)}
        return {name: np.asarray(values[name], kind) for name, kind in self._inputs.items()}

    def _pool(self, output: Vector) -> Vector:
        """Return the unit vector of (tokens, dimension), or of what the graph has pooled already."""
        if output.ndim == 2:
            # The sum and the mean have the same direction, and length is taken out below.
            output = output[0] if self._first_token else output.sum(axis=0)
        return _unit(output)


def _unit(vector: Vector) -> Vector:
    norm = np.linalg.norm(vector)
    if not np.isfinite(norm) or norm == 0:
        raise EmbeddingFailed("the embedding model returned no direction")
    return vector / norm


def readable(text: str) -> str:
    """Return both ends of the text, without what UTF-8 cannot hold."""
    return _LONE_SURROGATE.sub("\ufffd", edges(text))


def edges(text: str) -> str:
    """Return the text without the middle that no model reads."""
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS // 2] + text[-MAX_CHARS // 2 :]


def _weight(piece: str) -> int:
    """Return how much a piece says, in letters: an emoji nothing, a Chinese character three."""
    return sum(3 if unicodedata.east_asian_width(c) in "WF" else 1 for c in piece if c.isalnum())


@dataclass(frozen=True, slots=True)
class Prompts:
    """What a model wants to read before a question, and before what may answer it."""

    query: str = ""
    passage: str = ""


# ---------------------------------------------------------------- embedder
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

    Everybody who asks for a question while it is read, for its vector or for all of its output, waits for one
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
        self._pool = ThreadPoolExecutor(
            threads, thread_name_prefix="embed", initializer=lower_thread_priority
        )
        self._recent = TTLCache[bytes, bytes](cache_size)
        self._passes = TTLCache[bytes, EncoderOutput](min(_PASSES, cache_size))
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

    async def read(self, text: str) -> EncoderOutput:
        """Return all that one run over a question gives. Raises EmbeddingFailed."""
        asked = self._prompts.query + text
        key = _key(asked)
        if found := self._passes.get(key):
            return found
        return await (self._begun.get(key) or self._start(key, asked)).made()

    async def read_passage(self, text: str) -> EncoderOutput:
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

    def _ended(self, key: bytes, run: "asyncio.Future[EncoderOutput]") -> None:
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

    def __init__(self, run: "asyncio.Future[EncoderOutput]", call_off: Callable[[], object]) -> None:
        self.run = run
        self._call_off = call_off  # at once: who comes next must not find what is being cancelled
        self._waiting = 0

    async def made(self) -> EncoderOutput:
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
