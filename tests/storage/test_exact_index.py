"""The arrays against plain Python: exact scores, whatever order the rows came in."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.domain.core import Search, Stamp
from proxy.storage.exact_index import Row, build, pack, term_hash
from tests.support.examples import examples

WORDS = "a b c d e f".split()
texts = st.lists(st.sampled_from(WORDS), max_size=6)


def row(seq, words=(), *, vec=None, current=True, type_="semantic", project=None, expires_at=None):
    return Row(seq, type_, project, expires_at, current, vec, pack(words))


def bm25(docs, query):
    """Robertson's formula, term by term."""
    mean = max(sum(map(len, docs)) / len(docs), 1.0)
    scores = []
    for doc in docs:
        score = 0.0
        for term in set(query):
            df, tf = sum(term in d for d in docs), doc.count(term)
            idf = math.log(1 + (len(docs) - df + 0.5) / (df + 0.5))
            score += idf * tf * 2.2 / (tf + 1.2 * (1 - 0.4 + 0.4 * len(doc) / mean))
        scores.append(score)
    return scores


@settings(max_examples=examples(60))
@given(st.lists(texts, min_size=1, max_size=12), texts, st.data())
def test_scores_are_those_of_the_formula_also_after_rows_came_one_by_one(docs, query, data):
    cut = data.draw(st.integers(0, len(docs)))
    rows = [row(n, doc) for n, doc in enumerate(docs)]
    index = build(rows[:cut], Stamp(0, 0))
    for version, later in enumerate(rows[cut:], 1):
        index = index.changed([later], Stamp(0, version))
    found = {f.seq: f.bm25 for f in index.search(None, Search(None, tuple(query), limit=99))}
    expected = {n: s for n, s in enumerate(bm25(docs, query)) if s > 0}
    assert found == pytest.approx(expected, rel=1e-4)


def test_cosines_are_exact_after_the_matrix_has_grown():
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((100, 8)).astype(np.float32)
    rows = [row(n, vec=v.tobytes()) for n, v in enumerate(vectors)]
    index = first = build(rows[:3], Stamp(0, 0))
    for n, later in enumerate(rows[3:], 1):
        index = index.changed([later], Stamp(0, n))
    query = rng.standard_normal(8).astype(np.float32)
    found = {f.seq: f.cosine for f in index.search(None, Search(query.tobytes(), (), limit=100))}
    assert found == pytest.approx(dict(enumerate((vectors @ query).tolist())), rel=1e-4)
    assert len(first.search(None, Search(query.tobytes(), (), limit=100))) == 3


def test_term_hashes_never_change():
    # They are on disk: another value would lose every stored word.
    assert term_hash("tea") == -8015135494872013382
