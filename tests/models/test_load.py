"""Finding a model: the first source that works, and a clear reason for every one that did not."""

import importlib.machinery
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from proxy.models.load import LoadedEmbedder, load_embedder, row_of
from proxy.models.weights import ENCODER_NAME

Hide = Callable[[str], None]


def used(loaded: LoadedEmbedder) -> str:
    """Close what was loaded and return its source."""
    if loaded.embedder:
        loaded.embedder.close()
    return loaded.source


@pytest.fixture
def nothing_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the installer brought nothing."""
    absent = tmp_path / "absent"
    monkeypatch.setattr("proxy.models.load.fetched_dir", lambda: absent)
    return absent


def test_our_encoder_is_the_default(fetched: Path, tmp_path: Path) -> None:
    loaded = load_embedder(tmp_path)
    assert loaded.embedder is not None
    assert loaded.embedder.model == row_of(ENCODER_NAME).model
    assert (used(loaded), loaded.notes) == ("installer", ())


def test_loading_never_imports_torch(fetched: Path, tmp_path: Path) -> None:
    used(load_embedder(tmp_path))
    assert not {"torch", "onnx", "sentence_transformers"} & set(sys.modules)


def test_without_any_source_there_is_no_embedder_and_each_reason(
    tmp_path: Path, nothing_fetched: Path, hide: Hide
) -> None:
    hide("fastembed")
    loaded = load_embedder(tmp_path, path=tmp_path / "nowhere")
    assert (loaded.embedder, loaded.source) == (None, "none")
    reasons = " | ".join(loaded.notes)
    assert "nowhere is not a directory" in reasons
    assert f"in {nothing_fetched} is missing: run scripts/install" in reasons
    assert "fastembed: does not offer" in reasons


def test_a_directory_of_what_the_installer_brings_comes_first(
    fetched: Path, tmp_path: Path, nothing_fetched: Path
) -> None:
    assert used(load_embedder(tmp_path, path=fetched)) == "directory"


def test_a_directory_that_does_not_work_is_passed_over_with_its_reason(fetched: Path, tmp_path: Path) -> None:
    loaded = load_embedder(tmp_path, path=tmp_path)
    assert used(loaded) == "installer"
    assert "is missing" in loaded.notes[0]


@pytest.mark.parametrize("broken", ["model.onnx", "tokenizer.json"])
def test_a_broken_file_is_a_reason_and_no_crash(tiny_model: Path, broken: str) -> None:
    (tiny_model / broken).write_bytes(b"\x00 not what it says")
    loaded = load_embedder(tiny_model.parent, model="tiny", path=tiny_model)
    assert loaded.embedder is None
    assert broken in " | ".join(loaded.notes)


def test_a_model_of_ones_own_gets_cautious_thresholds_and_its_true_dimension(tiny_model: Path) -> None:
    loaded = load_embedder(tiny_model.parent, model="acme/own", path=tiny_model)
    assert loaded.embedder is not None
    model = loaded.embedder.model
    assert (model.name, model.dimension) == ("own", 4)
    assert model.similarity_threshold > 0.3
    assert "never measured" in loaded.notes[0]
    used(loaded)


def test_an_operator_s_threshold_stands_in_the_place_of_the_model_s(tiny_model: Path) -> None:
    plain = load_embedder(tiny_model.parent, model="acme/own", path=tiny_model)
    loaded = load_embedder(tiny_model.parent, model="acme/own", path=tiny_model, threshold=0.0)
    assert plain.embedder is not None
    assert loaded.embedder is not None
    assert loaded.embedder.model == replace(plain.embedder.model, similarity_threshold=0.0)
    used(plain)
    used(loaded)


def test_a_directory_of_another_dimension_than_the_models_is_refused(tiny_model: Path, hide: Hide) -> None:
    hide("fastembed")
    loaded = load_embedder(tiny_model.parent, model="all-MiniLM-L6-v2", path=tiny_model)
    assert loaded.embedder is None
    assert "384 dimensions, this has 4" in loaded.notes[0]


def test_another_model_is_never_replaced_by_ours(tmp_path: Path, hide: Hide) -> None:
    hide("fastembed")
    loaded = load_embedder(tmp_path, model="paraphrase-multilingual-MiniLM-L12-v2")
    assert loaded.embedder is None
    assert f"holds only {ENCODER_NAME}" in loaded.notes[0]


@pytest.mark.parametrize("allowed", [False, True])
def test_fastembed_is_asked_offline_first_and_downloads_only_where_allowed(
    allowed: bool, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def text_embedding(_name: str, *, local_files_only: bool, **_: Any) -> Any:
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


def test_the_files_of_fastembeds_cache_are_recognised(tiny_model: Path) -> None:
    shutil.move(tiny_model / "model.onnx", tiny_model / "model_optimized.onnx")
    assert used(load_embedder(tiny_model.parent, model="tiny", path=tiny_model)) == "directory"
