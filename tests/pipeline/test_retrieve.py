"""From a query to its vector: an imagined answer may lead, and must not lead astray."""

from collections.abc import Sequence

import numpy as np
import pytest

from proxy.pipeline.retrieve import pooled, retrieve
from proxy.pipeline.rewrite import Query
from tests.pipeline.conftest import MODEL, NOW, SCOPE, Shelf


def unit(*components: float) -> bytes:
    values = np.array(components, np.float32)
    return (values / np.linalg.norm(values)).astype(np.float32).tobytes()


class Axes:
    """An embedder of three words."""

    def __init__(self) -> None:
        self.model = MODEL
        self.known = {"question": unit(1, 0, 0), "near": unit(1, 1, 0), "far": unit(0, 0, 1)}

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        return [self.known[text] for text in texts]

    def understands(self, text: str) -> bool:
        return text in self.known


async def searched(query: Query) -> list[float]:
    shelf = Shelf()
    await retrieve(query, SCOPE, None, now=NOW, memories=shelf, embedder=Axes())
    return np.frombuffer(shelf.asked[0].vector, np.float32).tolist()


async def test_an_imagined_answer_moves_the_search_towards_itself():
    alone, led = await searched(Query("question", ())), await searched(Query("question", (), "near"))
    assert alone == [1, 0, 0]
    assert led[1] > 0
    assert np.linalg.norm(led) == pytest.approx(1.0)


@pytest.mark.parametrize("imagined", ["far", "not understood", ""])
async def test_an_imagined_answer_to_something_else_is_left_out(imagined):
    assert await searched(Query("question", (), imagined)) == [1, 0, 0]


def test_opposite_vectors_have_no_mean_and_leave_the_first():
    assert pooled(unit(1, 0), unit(-1, 0), least=0.2) == unit(1, 0)
