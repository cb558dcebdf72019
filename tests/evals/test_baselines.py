"""The baselines' rankings, on three facts."""

import numpy as np

from evals.baselines import fuse, rank_bm25, rank_dense
from evals.data import Fact

FACTS = tuple(
    Fact(name, "semantic", content, (), None, hedged=False)
    for name, content in (("f1", "The cat sleeps."), ("f2", "The cat eats fish."), ("f3", "Ulm is far."))
)


def test_bm25_wants_a_shared_word_and_likes_the_rare_one():
    assert rank_bm25(FACTS, "Does the cat like fish?") == ["f2", "f1"]


def test_dense_ranks_everything_by_cosine():
    made = {FACTS[0].content: (0.5, 0), FACTS[1].content: (0, 1), FACTS[2].content: (0.9, 0)}
    vectors = {text: np.array(v, np.float32) for text, v in made.items()}
    assert rank_dense(FACTS, np.array((1, 0), np.float32), vectors) == ["f3", "f1", "f2"]


def test_fusion_prefers_what_both_lists_hold():
    assert fuse([["f1", "f2"], ["f3", "f2"]])[0] == "f2"
