"""Whether a memory helps with a message: by the cosine of their vectors alone, so far."""

from collections.abc import Sequence

import numpy as np

from proxy.errors import EmbeddingFailed
from proxy.stores.models.heads import HeadFile, sigmoid


class RelevanceHead:
    """Judges (message, memory) by a logistic curve over the cosine. `cosine` of its file: slope and
    constant."""

    def __init__(self, file: HeadFile) -> None:
        arrays = file.arrays()
        try:
            self._slope, self._constant = arrays["cosine"].tolist()
        except (KeyError, ValueError, TypeError) as e:
            raise EmbeddingFailed(f"{file.path.name} does not hold what its head needs") from e

    def judge(self, message: bytes, memories: Sequence[bytes]) -> list[float]:
        """Return for each memory's vector whether it helps with the message of this vector."""
        if not memories:
            return []
        asked = np.frombuffer(message, np.float32)
        cosines = np.stack([np.frombuffer(memory, np.float32) for memory in memories]) @ asked
        return [float(chance) for chance in sigmoid(self._slope * cosines + self._constant)]
