"""memory-e5-small-v1: the packed graph computes what the fine-tuned layers say, and its files are checked."""

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from proxy.stores.models import memory_e5, weights
from proxy.stores.models.catalog import MEMORY_E5
from proxy.stores.models.encoder import Encoder
from proxy.stores.models.load import LoadedEmbedder, _memory_e5, fetched_dir, load_embedder
from tests.stores_models.questions import WHERE_DO_I_LIVE

ROOT = Path(__file__).parents[2]
OTHERS = [
    "Где я живу? Меня зовут Иван, и у меня аллергия на орехи.",
    "Мой поезд отходит в семь утра с Казанского вокзала.",
    "أين أسكن؟ أنا أعيش في القاهرة مع أختي.",
    "موعد طبيب الأسنان يوم الثلاثاء في الساعة الرابعة.",
    "私はどこに住んでいますか？猫の名前はモモです。",
    "来週の金曜日に大阪へ出張します。",
    "저는 서울에 살고 있고 땅콩 알레르기가 있어요.",
    "Quando parte il volo di mia sorella per Lisbona?",
    "Waar heb ik mijn fiets gestald, en wat kost de reparatie?",
    "Onde eu moro mesmo? O aluguel vence no dia 5.",
]


@pytest.fixture(scope="session")
def fetched() -> Path:
    """Where the installer put the model; skips where it could not."""
    whole = weights.is_whole(fetched_dir() / weights.E5.packed_name)
    if not whole or not memory_e5.is_vocabulary(fetched_dir() / memory_e5.VOCABULARY_NAME):
        pytest.skip("memory-e5-small-v1 is not here: run scripts/install multilingual")
    return fetched_dir()


@pytest.fixture(scope="session")
def encoder(fetched: Path) -> Encoder:
    return _memory_e5(fetched)


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Questions and facts of users that the smoothing was not calibrated on, in twelve languages."""
    found: dict[str, None] = {}

    def collect(value: Any) -> None:
        if isinstance(value, str) and 15 < len(value) < 300:
            found[value] = None
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            collect(inner)

    chosen: list[str] = []
    for file in sorted((ROOT / "evals/blind").glob("*.json")):
        found.clear()
        collect(json.loads(file.read_text("utf-8")))
        chosen += list(found)[:: max(1, len(found) // 16)]
    return chosen + OTHERS


@pytest.fixture
def copied(fetched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The installer's directory, to be damaged."""
    copy = tmp_path / "fetched"
    copy.mkdir()
    for file in fetched.iterdir():
        if file.name == weights.E5.packed_name:
            (copy / file.name).hardlink_to(file)  # 117 MB, never written to
        else:
            shutil.copy(file, copy)
    monkeypatch.setattr("proxy.stores.models.load.fetched_dir", lambda: copy)
    return copy


def loaded(tmp_path: Path) -> LoadedEmbedder:
    found = load_embedder(tmp_path / "models", model=MEMORY_E5)
    if found.embedder is not None:
        found.embedder.close()
    return found


def script() -> Any:
    """scripts/dev/make_memory_e5.py, which has the reference forward pass."""
    spec = importlib.util.spec_from_file_location("make_memory_e5", ROOT / "scripts/dev/make_memory_e5.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_graph_computes_what_the_layers_compute_in_float32(
    fetched: Path, encoder: Encoder, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    reference = script()
    words, tokenizer = reference.words_of(fetched), memory_e5.read_vocabulary(fetched)
    with np.load(memory_e5.TUNED) as held:
        tuned = {name: held[name] for name in held.files}
    asked = ["query: " + text for text in texts]
    expected = [reference.reference(tuned, words, tokenizer.ids(text)) for text in asked]
    cosines = np.sum(np.array(encoder.encode(asked)) * np.array(expected), axis=1)
    assert len(cosines) >= 200
    assert cosines.mean() >= 0.996
    assert cosines.min() >= 0.99
    assert (cosines >= 0.995).mean() >= 0.9


def test_sentencepiece_reads_the_tokens_of_the_published_tokenizer(fetched: Path, texts: list[str]) -> None:
    published = Tokenizer.from_file(str(fetched / "tokenizer.json"))
    ours = memory_e5.read_vocabulary(fetched)
    strange = [
        "ｆｕｌｌ　ｗｉｄｔｈ",
        "e\u0301te\u0301",
        "a\x01b",
        "a\u200bb",
        "½ cup, ﬁne",
        "line\nline\ttab",
        "👩‍👩‍👧 hi",
    ]
    for text in texts + strange:
        expected = published.encode(text.strip()).ids
        if len(expected) <= memory_e5.MAX_TOKENS:
            assert ours.ids(text) == expected, text


@pytest.mark.parametrize("question", WHERE_DO_I_LIVE)
def test_a_question_finds_a_fact_in_another_language(encoder: Encoder, question: str) -> None:
    assert encoder.understands(question)
    (asked,) = encoder.encode(["query: " + question])
    facts = ["I live in Graz.", "I like tea.", "My cat is called Momo."]
    home, *others = np.array(encoder.encode(["passage: " + fact for fact in facts])) @ asked
    assert home > 0.45
    assert home > max(others) + 0.25


@pytest.mark.parametrize(
    "text", ["word " * 200_000, "😀" * 5000, "</s><mask> \x00\ud800", "語Wort слово" * 900, "7" * 9999]
)
def test_any_text_has_a_vector(encoder: Encoder, text: str) -> None:
    (vector,) = encoder.encode([text])
    assert np.isfinite(vector).all()


def test_texts_without_letters_are_not_understood(encoder: Encoder) -> None:
    assert not encoder.understands("😀 👍🏽 …")
    assert not encoder.understands("   ")


def test_a_cut_vocabulary_is_named_with_the_remedy(copied: Path, tmp_path: Path) -> None:
    file = copied / memory_e5.VOCABULARY_NAME
    file.write_bytes(file.read_bytes()[:-100])
    found = loaded(tmp_path)
    assert found.embedder is None
    assert f"{file.name} in {copied} is damaged: run scripts/install multilingual" in found.notes[0]


def test_missing_files_are_named_with_the_remedy(copied: Path, tmp_path: Path) -> None:
    (copied / memory_e5.VOCABULARY_NAME).unlink()
    assert "multilingual-e5-small.model in" in loaded(tmp_path).notes[0]
    assert "is missing: run scripts/install multilingual" in loaded(tmp_path).notes[0]
    (copied / weights.E5.packed_name).unlink()
    assert f"{weights.E5.packed_name} in {copied} is missing: run scripts" in loaded(tmp_path).notes[0]


@pytest.mark.parametrize("content", [None, b"PK of another version"])
def test_layers_that_are_missing_or_of_another_version_are_refused(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    other = tmp_path / "layers.npz"
    if content is not None:
        other.write_bytes(content)
    monkeypatch.setattr(memory_e5, "TUNED", other)
    found = loaded(tmp_path)
    assert found.embedder is None
    assert "layers.npz is " in found.notes[0]
    assert "install memory-proxy again" in found.notes[0]


def test_packed_layers_that_are_damaged_are_packed_again(copied: Path, tmp_path: Path) -> None:
    packed = copied / weights.MEMORY_E5.packed_name
    good = packed.read_bytes()
    packed.write_bytes(good[:5_000_000])
    assert loaded(tmp_path).embedder is not None
    assert packed.read_bytes() == good


def test_a_vocabulary_is_made_only_of_the_published_tokenizer(copied: Path) -> None:
    file = copied / memory_e5.VOCABULARY_NAME
    good = file.read_bytes()
    file.unlink()
    memory_e5.write_vocabulary(copied)
    assert file.read_bytes() == good
    (copied / "tokenizer.json").write_text('{"model": {"vocab": [["a", 0.0]]}}')
    with pytest.raises(memory_e5.EmbeddingFailed, match="is not the published one"):
        memory_e5.write_vocabulary(copied)
    assert file.read_bytes() == good
