"""A cross-encoder: reads question and text together, and returns one logit.

It is loaded from a directory that the operator names, else from fastembed's cache, or with a download by
fastembed if that is allowed. The session is ours, with one thread, so that a rerank does not take the
processors from the relay.
"""

import asyncio
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from proxy.domain.errors import EmbeddingFailed, RerankFailed
from proxy.domain.limits import lower_thread_priority
from proxy.models.embedder import MAX_CHARS, feed_of, input_types
from proxy.models.load import ONNX_NAMES, fetched_by_fastembed, onnx_session, read_tokenizer

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

# Models that read only English: of fastembed's list, and common ones that an operator may install.
_ENGLISH_ONLY = ("ms-marco-minilm", "-en")
_LATIN_SHARE = 0.5  # of the letters, for a model that reads English alone
_MAX_QUERY_CHARS = 600


class OnnxReranker:
    """Implements ports.Reranker with one thread: the event loop never waits for the model. If a call is
    cancelled, its running step finishes and the result is discarded."""

    def __init__(self, session: "InferenceSession", tokenizer: "Tokenizer", *, english_only: bool) -> None:
        tokenizer.no_padding()  # every pair is a run of its own (see embedder)
        self._session, self._tokenizer, self._english_only = session, tokenizer, english_only
        self._inputs = input_types(session)
        self._output = session.get_outputs()[0].name
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="rerank", initializer=lower_thread_priority)

    async def rerank(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Return a logit for each text, in order. Raises RerankFailed."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._pool, self.score, query, list(texts))
        except RuntimeError as e:  # the pool was shut down
            raise RerankFailed("the reranker is closed") from e

    def understands(self, text: str) -> bool:
        """False for what an English-only model cannot read."""
        if not self._english_only or text.isascii():
            return True
        letters = [c for c in text[:MAX_CHARS] if c.isalpha()]
        return sum(c < "\u0250" for c in letters) >= _LATIN_SHARE * len(letters)

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the logits; blocks. Raises RerankFailed."""
        asked = _readable(query[:_MAX_QUERY_CHARS])
        logits: list[float] = []
        try:
            for text in texts:
                pair = self._tokenizer.encode(asked, _readable(text[:MAX_CHARS]))
                feed = feed_of(self._inputs, pair.ids, pair.attention_mask, pair.type_ids)
                (output,) = self._session.run([self._output], feed)
                logits.append(float(np.asarray(output, np.float32).reshape(-1)[-1]))
        except Exception as e:  # the errors of onnxruntime and tokenizers have no base class of their own
            raise RerankFailed(f"the reranker failed: {type(e).__name__}") from e
        if not all(map(math.isfinite, logits)):
            raise RerankFailed("the reranker returned no number")
        return logits

    def close(self) -> None:
        """End the thread after its queued steps."""
        self._pool.shutdown(wait=True)


def _readable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()  # replaces lone surrogates


@dataclass(frozen=True, slots=True)
class LoadedReranker:
    """`reranker` is None if none is configured, or it could not be loaded; `note` says why."""

    reranker: OnnxReranker | None
    note: str = ""


def load_reranker(models_dir: Path, model: str, *, allow_download: bool = False) -> LoadedReranker:
    """Return the model's reranker. `model`: "none", a directory, or a name that fastembed knows, such as
    Xenova/ms-marco-MiniLM-L-6-v2. Blocks, a second or as long as a download takes. A missing model is
    not an error."""
    if model == "none":
        return LoadedReranker(None)

    def fetch(fastembed: Any, options: dict[str, Any]) -> Path:
        found = fastembed.TextCrossEncoder(model, **options).model
        return Path(found._model_dir) / str(found.model_description.model_file)

    # By its name or its directory's.
    name = model.rstrip("/").rsplit("/", 1)[-1].lower()
    english_only = any(name.startswith(mark) or name.endswith(mark) for mark in _ENGLISH_ONLY)
    try:
        if model.startswith(("/", ".", "~")) or Path(model).is_dir():
            directory = Path(model).expanduser()
            found = (directory / name for name in ONNX_NAMES if (directory / name).is_file())
            if (graph := next(found, None)) is None:
                raise RerankFailed(f"holds no {ONNX_NAMES[0]}")
        else:
            module = "fastembed.rerank.cross_encoder"
            graph = fetched_by_fastembed(module, fetch, models_dir, download=allow_download)
        # Some exports have the graph in a subfolder, next to the tokenizer.
        home = graph.parent if (graph.parent / "tokenizer.json").is_file() else graph.parent.parent
        reranker = OnnxReranker(onnx_session(graph), read_tokenizer(home), english_only=english_only)
        reranker.score("ready", ["ready"])
    except (EmbeddingFailed, RerankFailed) as e:
        return LoadedReranker(None, f"{model}: {e}")
    return LoadedReranker(reranker)
