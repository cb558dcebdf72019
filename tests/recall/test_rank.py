"""Both lists count in the fused order; poor word matches do not outweigh the vectors."""

from dataclasses import replace

import pytest

from proxy.domain.core import Hit, Scope
from proxy.recall.search import DAY, Ranking, fused
from tests.recall.conftest import NOW, memory


def order(*hits: Hit, ranking: Ranking | None = None, project: str | None = None) -> list[str]:
    found = fused(hits, ranking or Ranking(), project=project, now=NOW)
    assert all(0 <= one.score <= 1 for one in found)
    return [one.hit.memory.id for one in found]


def hit(id: str, cosine: float | None, bm25: float = 0.0, **changes) -> Hit:
    return Hit(memory(id, f"Fact {id}.", **changes), cosine, bm25)


def test_a_strong_match_by_words_beats_a_slightly_nearer_vector_and_a_poor_one_does_not():
    assert order(hit("near", 0.42), hit("named", 0.38, 14.0), hit("far", 0.1)) == ["named", "near", "far"]
    assert order(hit("near", 0.42), hit("named", 0.33, 0.8), hit("far", 0.1)) == ["near", "named", "far"]
    assert order(hit("a", None, 1.0), hit("b", None, 3.0)) == ["b", "a"], "without vectors the words decide"


@pytest.mark.parametrize("field", ["weight", "importance", "confidence", "updated_at"])
def test_between_equals_weight_importance_confidence_and_recency_decide(field):
    worse, better = {"updated_at": (NOW - 300 * DAY, NOW)}.get(field, (0.4, 0.9))
    both = (hit("worse", 0.4, **{field: worse}), hit("better", 0.4, **{field: better}))
    assert order(*both, hit("low", 0.1))[0] == "better"


def test_memories_of_the_request_s_project_come_first():
    ours = hit("ours", 0.3)
    ours = replace(ours, memory=replace(ours.memory, scope=Scope("t", "u", "apollo")))
    both = (hit("general", 0.32), ours, hit("far", 0.1))
    assert order(*both)[0] == "general"
    assert order(*both, project="apollo")[0] == "ours"
