"""What `memory-proxy doctor` says of single settings."""

from pathlib import Path

from proxy import doctor
from proxy.settings import Settings, load


def settings(tmp_path: Path, rerank: str) -> Settings:
    return load(None, {}, {"storage": {"data_dir": tmp_path}, "retrieval": {"rerank": rerank}})


def test_without_a_reranker_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert list(doctor._reranker(settings(tmp_path, "none"))) == []


def test_a_reranker_that_cannot_be_loaded_is_to_be_fixed(tmp_path: Path) -> None:
    (finding,) = doctor._reranker(settings(tmp_path, str(tmp_path / "absent")))
    assert finding.mark == doctor.BAD
    assert "holds no model.onnx" in finding.text
