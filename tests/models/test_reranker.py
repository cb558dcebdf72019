"""The cross-encoder is loaded like an embedder, runs in a thread, and reports what it cannot read."""

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from proxy.domain.errors import RerankFailed
from proxy.models.reranker import LoadedReranker, OnnxReranker, load_reranker
from tests.models.conftest import TINY_GRAPH


@pytest.fixture
def cross_encoder(tmp_path):
    """A directory with a model that finds 9 in a text that ends in "yes", and 0 in any other."""
    words = {"yes": 0, "no": 1, "question": 2, "[CLS]": 3}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="no"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        "[CLS] $A", pair="[CLS] $A [CLS] $B:1", special_tokens=[("[CLS]", 3)]
    )
    directory = tmp_path / "cross-encoder"
    (directory / "onnx").mkdir(parents=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "onnx/model.onnx").write_bytes(TINY_GRAPH)
    return directory


@pytest.fixture
def reranker(cross_encoder, tmp_path):
    loaded = load_reranker(tmp_path, str(cross_encoder))
    assert loaded.reranker is not None, loaded.note
    yield loaded.reranker
    loaded.reranker.close()


async def test_each_text_gets_its_own_logit_in_a_thread(reranker, monkeypatch):
    threads: list[str] = []
    score = OnnxReranker.score

    def watched(self, query, texts):
        threads.append(threading.current_thread().name)
        return score(self, query, texts)

    monkeypatch.setattr(OnnxReranker, "score", watched)
    assert await reranker.rerank("question", ["no", "yes", "no yes"]) == [0.0, 9.0, 9.0]
    assert await reranker.rerank("yes", ["no"]) == [0.0], "the question comes before the text"
    for text in ("", "\ud800", "y" * 100_000, "用户"):
        assert (await reranker.rerank(text or "question", [text]))[0] in (0.0, 9.0)
    assert all(name.startswith("rerank") for name in threads)


@pytest.mark.parametrize(
    ("result", "message"), [(lambda: float("nan"), "no number"), (lambda: 1 / 0, "ZeroDivisionError")]
)
async def test_a_failing_model_is_a_failed_rerank(reranker, result, message, monkeypatch):
    monkeypatch.setattr(reranker, "_session", SimpleNamespace(run=lambda *_: ([[result()]],)))
    with pytest.raises(RerankFailed, match=message):
        await reranker.rerank("question", ["yes"])
    reranker.close()
    with pytest.raises(RerankFailed, match="closed"):
        await reranker.rerank("question", ["yes"])


# ---------------------------------------------------------------- loading


def test_without_a_model_there_is_a_reason_unless_none_is_configured(tmp_path, hide):
    hide("fastembed")
    assert load_reranker(tmp_path, "none") == LoadedReranker(None, "")
    assert "holds no model.onnx" in load_reranker(tmp_path, str(tmp_path)).note
    assert "fastembed is not installed" in load_reranker(tmp_path, "Xenova/ms-marco-MiniLM-L-6-v2").note


@pytest.mark.parametrize("broken", ["onnx/model.onnx"])
def test_a_broken_file_is_a_reason_and_no_crash(cross_encoder, tmp_path, broken):
    (cross_encoder / broken).write_bytes(b"\x00 not what it says")
    loaded = load_reranker(tmp_path, str(cross_encoder))
    assert loaded.reranker is None
    assert Path(broken).name in loaded.note
