"""The cross-encoder is loaded like an embedder, runs in a thread, and reports what it cannot read."""

import importlib.machinery
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

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
    ("result", "message"),
    [
        (lambda: float("nan"), "no number"),
        (lambda: float("inf"), "no number"),
        (lambda: 1 / 0, "ZeroDivisionError"),
    ],
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


@pytest.mark.parametrize("broken", ["onnx/model.onnx", "tokenizer.json"])
def test_a_broken_file_is_a_reason_and_no_crash(cross_encoder, tmp_path, broken):
    (cross_encoder / broken).write_bytes(b"\x00 not what it says")
    loaded = load_reranker(tmp_path, str(cross_encoder))
    assert loaded.reranker is None
    assert Path(broken).name in loaded.note


@pytest.mark.parametrize("allowed", [False, True])
def test_fastembed_is_asked_offline_first_and_downloads_only_where_allowed(
    allowed, cross_encoder, tmp_path, monkeypatch
):
    asked: list[bool] = []

    def text_cross_encoder(name, *, cache_dir, local_files_only, lazy_load):
        asked.append(local_files_only)
        assert (name, lazy_load) == ("acme/small", True)
        assert cache_dir == str(tmp_path / "fastembed")
        if local_files_only:
            raise ValueError("Could not load model from any source.")
        described = SimpleNamespace(model_file="onnx/model.onnx")
        return SimpleNamespace(model=SimpleNamespace(_model_dir=cross_encoder, model_description=described))

    stub_fastembed(monkeypatch, text_cross_encoder)
    loaded = load_reranker(tmp_path, "acme/small", allow_download=allowed)
    assert asked == ([True, False] if allowed else [True])
    if allowed:
        assert loaded.reranker is not None
        assert loaded.reranker.score("question", ["yes"]) == [9.0]
        loaded.reranker.close()
    else:
        assert "downloads are not allowed" in loaded.note


def stub_fastembed(monkeypatch: pytest.MonkeyPatch, text_cross_encoder: Callable[..., Any]) -> None:
    """Install modules with fastembed's names, of which only TextCrossEncoder works."""
    for name in ("fastembed", "fastembed.rerank", "fastembed.rerank.cross_encoder"):
        stub: Any = ModuleType(name)
        stub.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        stub.__path__ = []
        stub.TextCrossEncoder = text_cross_encoder
        monkeypatch.setitem(sys.modules, name, stub)
