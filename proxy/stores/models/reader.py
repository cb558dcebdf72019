"""Read a question and a memory together and say whether the one answers the other: a cross-encoder made of
all-MiniLM-L6-v2.

Two vectors made apart cannot say all of it: which of its words a question turns on is lost in their mean.
Here every word of the question sees every word of the memory, some 3 ms for the two. What was trained is
small (`minilm-reader.npz`, written by `scripts/dev/train_reader.py`): low-rank changes of the embedder's
matrices (LoRA; Hu et al. 2021), its norms, and one hidden layer over what comes out. The changed matrices
are made once, from the published weights that the embedder is made from, and packed beside it; the word
table is the embedder's own.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from proxy.embedtext import embed_text
from proxy.errors import EmbeddingFailed
from proxy.gloss import gloss
from proxy.stores.models import weights
from proxy.stores.models.load import pack_minilm, published_minilm, read_tokenizer, session_of_packed
from proxy.stores.models.lowrank import changed, read_trained, tag_of
from proxy.stores.models.manner import MANNERS, Manner

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

TRAINED = Path(__file__).with_name("minilm-reader.npz")
LAYERS = 6
QUESTION_TOKENS, PAIR_TOKENS = 64, 128  # as in the training
_MAX_CHARS = 1_000  # of either text, for the tokenizer's time
# What the file of trained values holds beside changes of published tensors, in the packed file's order.
OWN = ("segment", "hidden", "hidden_bias", "output", "direct", "constant")


@dataclass(frozen=True, slots=True)
class Pair:
    """A memory to read beside the question, and what is known of the two: their cosine, and the shares of
    ports.Told."""

    content: str
    cosine: float
    terms: float
    weight: float


class AnswerReader:
    """Reads pairs; synchronous, may be called from several threads."""

    def __init__(
        self, session: "InferenceSession", tokenizer: "Tokenizer", bars: Mapping[Manner, float]
    ) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._session, self._tokenizer = session, tokenizer
        self._bars = bars
        self._first, self._between = (tokenizer.token_to_id(mark) for mark in ("[CLS]", "[SEP]"))

    def bar(self, manner: Manner) -> float:
        """Return what most log-odds are above that belong to a question with an answer."""
        return self._bars[manner]

    def log_odds(self, question: str, pairs: Iterable[Pair], *, enough: float = math.inf) -> float | None:
        """Return the log-odds that one of the memories answers the question, against none of them; None where
        that cannot be said, since the question is longer than what is read, or the end of a memory may answer
        it. They are read in order; each can only add, so that none is read once there is more than `enough`.
        Raises EmbeddingFailed."""
        total, is_cut = -math.inf, False
        try:
            asked = self._tokens(question)
            if len(asked) > QUESTION_TOKENS:
                return None
            for pair in pairs:
                told = self._tokens(embed_text(pair.content))
                is_cut |= len(told) > (room := PAIR_TOKENS - 3 - len(asked))
                total = float(np.logaddexp(total, self._read(asked, told[:room], pair)))
                if total > enough:
                    break
        except Exception as e:  # the errors of onnxruntime and tokenizers have no base class of their own
            raise EmbeddingFailed(f"the reader failed: {type(e).__name__}") from e
        if math.isnan(total):
            raise EmbeddingFailed("the reader returned no number")
        return None if is_cut and total <= enough else total

    def _read(self, asked: Sequence[int], told: Sequence[int], pair: Pair) -> float:
        """Return the log-odds of one pair. No two are read in one run, see `encoder`."""
        tokens = [self._first, *asked, self._between, *told, self._between]
        segments = [0.0] * (len(asked) + 2) + [1.0] * (len(told) + 1)
        feed = {
            "input_ids": np.array([tokens], np.int64),
            "segments": np.array([segments], np.float32),
            "beside": np.array([[pair.terms, pair.weight, pair.cosine]], np.float32),
        }
        (log_odds,) = self._session.run(["log_odds"], feed)
        return float(np.asarray(log_odds, np.float32).reshape(-1)[0])

    def _tokens(self, text: str) -> list[int]:
        text = text[:_MAX_CHARS].encode("utf-8", "replace").decode()  # lone surrogates are no text
        found: list[int] = self._tokenizer.encode(gloss(text).text, add_special_tokens=False).ids
        return found


def load_reader(models_dir: Path, path: Path | None = None) -> AnswerReader:
    """Return the reader. `path`: where the published weights that it is made of may be, if not in the
    package. Blocks: 0.2 s with the packed file in `models_dir`, 0.5 s the first time. Raises
    EmbeddingFailed, also where these weights are not on this machine."""
    directory = published_minilm(path)
    packs = (partial(pack_minilm, directory), partial(pack_reader, directory))
    session = session_of_packed(weights.READER.graph, models_dir, packs)
    with np.load(TRAINED) as file:
        bars = {manner: float(file[f"bar_{manner}"]) for manner in MANNERS}
    reader = AnswerReader(session, read_tokenizer(directory), bars)
    reader.log_odds("ready?", [Pair("ready", 0, 0, 0)])
    return reader


def pack_reader(directory: Path, into: Path) -> Path:
    """Return the packed file of the reader made of the published weights in `directory`; one of other trained
    values is packed again. Raises EmbeddingFailed."""
    target = into / weights.READER.packed_name
    return weights.ensure_packed(directory / weights.SOURCE_NAME, target, tensors, tag=tag_of(TRAINED))


def tensors(source: Path) -> Iterator[tuple[str, weights.Array]]:
    """Yield (name, array) of what the reader does not share with the embedder."""
    trained = read_trained(TRAINED)
    yield from ((name, trained[name]) for name in OWN)
    yield from weights.transformer(changed(weights.read_safetensors(source), trained), LAYERS)
