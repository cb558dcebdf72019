"""An embedder with scripted vectors, for tests of what callers do with them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from proxy.domain.errors import EmbeddingFailed
from proxy.domain.ports import EmbeddingModel

MODEL = EmbeddingModel("scripted", 3, similarity_threshold=0.25, related_threshold=0.3)
ONE_AXIS = np.array([1, 0, 0], np.float32).tobytes()


@dataclass
class ScriptedEmbedder:
    """Implements ports.Embedder; by default it reads Latin script, and all texts are alike."""

    vector: Callable[[str], bytes] = lambda text: ONE_AXIS
    reads: Callable[[str], bool] = str.isascii
    failing: bool = False
    model: EmbeddingModel = MODEL
    embedded: list[str] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)

    async def embed_query(self, text: str) -> bytes:
        return (await self.embed([text]))[0]

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        if self.failing:
            raise EmbeddingFailed
        self.embedded += texts
        return [self.vector(text) for text in texts]

    def begin(self, text: str) -> None:
        self.begun.append(text)

    def understands(self, text: str) -> bool:
        return self.reads(text)
