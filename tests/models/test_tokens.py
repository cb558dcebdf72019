"""Token counts are exact with the tables and near without them, and counting never waits."""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.models.tokens import CL100K, O200K, TABLES, Tokens, estimate, table_of, tables_dir
from tests.support.examples import examples

# Text, tokens in o200k_base, tokens in cl100k_base: by tiktoken with its own tables.
COUNTED = [
    ("The user's budget for the Hawaii vacation is $10,000, and the flight leaves on 14 March.", 22, 23),
    ("用户的预算是一万元，打算三月去夏威夷度假，不喜欢坐红眼航班。", 25, 40),
    (
        "def top(query: str, n: int = 5) -> list[Memory]:\n    return [m for m in found if m.score > n]\n",
        32,
        32,
    ),
    ('{"type": "semantic", "content": "likes hiking", "confidence": 0.9, "tags": ["sport"]}', 28, 27),
    ("Shipped! 🎉🚀 See you — “tomorrow” ✅", 15, 18),
]


@pytest.fixture(scope="module")
def exact():
    tokens = Tokens()
    if not all(tokens.exact(table) for table in TABLES):
        pytest.skip(f"no token tables in {tables_dir()}: run scripts/fetch-models")
    return tokens


@pytest.fixture
def estimating(tmp_path):
    return Tokens(tmp_path)


@pytest.mark.parametrize(("text", "o200k", "cl100k"), COUNTED)
def test_counts_are_exact_with_the_tables_and_near_without(exact, estimating, text, o200k, cl100k):
    assert (exact.count(text, "gpt-4o"), exact.count(text, "gpt-4")) == (o200k, cl100k)
    assert estimating.count(text, "gpt-4o") == pytest.approx(o200k, rel=0.2)
    assert estimating.count(text, "gpt-4") == pytest.approx(cl100k, rel=0.25)


@settings(max_examples=examples(30))
@given(st.text(st.characters(codec=None)))  # lone surrogates, too
def test_any_text_has_a_count(exact, text):
    assert (exact.count(text, "gpt-4o") > 0) == bool(text)
    for table in TABLES:
        assert (estimate(text, table.name) > 0) == bool(text)


def test_a_model_finds_its_encoding():
    for model in ("gpt-4o", "gpt-4.1", "gpt-4.5-preview", "gpt-5-mini", "o3", "llama-3.1-70b", ""):
        assert table_of(model) is O200K
    for model in ("gpt-4", "gpt-4-turbo", "openai/gpt-4-0613", "azure/gpt-35-turbo", "ft:gpt-3.5-turbo:acme"):
        assert table_of(model) is CL100K


@pytest.mark.parametrize("table", TABLES, ids=lambda t: t.name)
def test_our_tables_are_tiktokens(table, monkeypatch):
    """Name in its cache, hash and pattern: taken from tiktoken without its download."""
    from tiktoken_ext import openai_public

    def loaded(url, expected_hash):
        assert hashlib.sha1(url.encode()).hexdigest() == table.file
        assert expected_hash == table.sha256
        return {}

    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", loaded)
    assert getattr(openai_public, table.name)()["pat_str"] == table.pattern


def test_counting_does_not_wait_for_a_table(tmp_path):
    # A pipe instead of the table: reading it blocks until the test writes.
    os.mkfifo(tmp_path / O200K.file)
    tokens, text = Tokens(tmp_path), "counted while the table is loading"
    with ThreadPoolExecutor(1) as pool:
        counted = pool.submit(tokens.count, text, "gpt-4o")
        try:
            assert counted.result(timeout=30) == estimate(text, O200K.name)
            assert not tokens.start(O200K).done()
        finally:
            (tmp_path / O200K.file).write_bytes(b"")
    assert not tokens.exact(O200K)
