"""Centring of embeddings: subtract the mean that a model's vectors lie around.

Some models put every text into a narrow cone: of E5 two texts that have nothing in common have a cosine of
.8, and all that a threshold could tell apart lies within .1. Seen from the middle of the cone, unrelated
texts have cosines of some .15, as with other models, thresholds mean something, and the search is better,
too: on 1,375 questions of 48 users recall@5 by cosine alone rose from .83 to .87 (multilingual-e5-small).
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from proxy.stores.models.catalog import Prompts
from proxy.stores.models.encoder import Encoder, Vector
from proxy.wordlists import sections

# Length of the mean of unit vectors: in all directions 0, of the same text 1. Of E5 it is .89; of
# all-MiniLM-L6-v2 .32, and it is searched no better from there.
NARROW = 0.5
_SAME = 0.999  # a model that says one thing of every text: there is no middle to look from
_ORDINARY = Path(__file__).with_name("ordinary.txt")


def centred(encoder: Encoder, prompts: Prompts) -> Encoder:
    """Return the encoder with vectors that lie around the origin: itself, where they nearly do. Raises
    EmbeddingFailed. Reads 120 short texts: .6 s for a model of twelve small layers."""
    ordinary = sections(_ORDINARY)
    told = _mean(encoder, prompts.passage, ordinary["told"])
    asked = _mean(encoder, prompts.query, ordinary["asked"])
    middle = np.asarray((told + asked) / 2, np.float32)
    return encoder.around(middle) if NARROW < np.linalg.norm(middle) < _SAME else encoder


def _mean(encoder: Encoder, prompt: str, texts: Sequence[str]) -> Vector:
    vectors = encoder.encode([prompt + text for text in texts])
    return np.asarray(np.mean(vectors, axis=0), np.float32)
