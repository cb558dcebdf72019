"""The first source with a model wins, and every other one gives its reason."""

import importlib.machinery
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from proxy.config import EmbeddingSettings
from proxy.models.load import LoadedEmbedder, load_embedder, row_of
from proxy.models.weights import ENCODER_NAME


def used(loaded: LoadedEmbedder) -> str:
    """Close what was loaded and return its source."""
    if loaded.embedder:
        loaded.embedder.close()
    return loaded.source


@pytest.fixture
def nothing_fetched(tmp_path, monkeypatch):
    absent = tmp_path / "absent"
    monkeypatch.setattr("proxy.models.load.fetched_dir", lambda: absent)
    return absent


def test_our_encoder_is_the_default_and_needs_no_torch(fetched, tmp_path):
    loaded = load_embedder(tmp_path)
    assert loaded.embedder.model == row_of(ENCODER_NAME).model
    assert EmbeddingSettings().model == ENCODER_NAME
    assert (used(loaded), loaded.notes) == ("installer", ())
    assert not {"torch", "onnx", "sentence_transformers"} & set(sys.modules)


def test_without_any_source_there_is_no_embedder_and_each_reason(tmp_path, nothing_fetched, hide):
    hide("fastembed")
    loaded = load_embedder(tmp_path, path=tmp_path / "nowhere")
    assert (loaded.embedder, loaded.source) == (None, "none")
    reasons = " | ".join(loaded.notes)
    assert "nowhere is not a directory" in reasons
    assert f"in {nothing_fetched} is missing: run scripts/install" in reasons
    assert "fastembed: does not offer" in reasons


def test_a_working_directory_comes_first_and_a_broken_one_is_skipped(fetched, tmp_path):
    assert used(load_embedder(tmp_path, path=fetched)) == "directory"
    loaded = load_embedder(tmp_path, path=tmp_path)
    assert used(loaded) == "installer"
    assert "is missing" in loaded.notes[0]


@pytest.mark.parametrize("allowed", [False, True])
def test_fastembed_is_asked_offline_first_and_downloads_only_if_allowed(allowed, tiny_model, monkeypatch):
    asked: list[bool] = []

    def text_embedding(_name, *, local_files_only, **_):
        asked.append(local_files_only)
        if local_files_only:
            raise ValueError("Could not load model from any source.")
        return SimpleNamespace(model=SimpleNamespace(_model_dir=tiny_model))

    stub: Any = ModuleType("fastembed")
    stub.__spec__ = importlib.machinery.ModuleSpec("fastembed", None)
    stub.TextEmbedding = text_embedding
    monkeypatch.setitem(sys.modules, "fastembed", stub)
    loaded = load_embedder(tiny_model.parent, model="tiny", allow_download=allowed)
    assert asked == ([True, False] if allowed else [True])
    assert used(loaded) == ("fastembed" if allowed else "none")
    assert allowed or "downloads are not allowed" in loaded.notes[-1]
