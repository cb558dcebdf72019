"""memory-e5-small-v1: the packed graph computes what the fine-tuned layers say, and its files are checked."""

import importlib.util
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proxy.domain.errors import EmbeddingFailed
from proxy.models import vocabulary, weights
from proxy.models.embedder import Encoder
from proxy.models.load import LoadedEmbedder, load_embedder, our_encoder
from tests.models.questions import WHERE_DO_I_LIVE

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
def encoder(fetched: Path) -> Encoder:
    return our_encoder(fetched)


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
    for file in sorted((ROOT / "evals/personas/blind").glob("*.json")):
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
        if file.name == vocabulary.WORDS_NAME:
            (copy / file.name).hardlink_to(file)  # 117 MB, never written to
        else:
            shutil.copy(file, copy)
    monkeypatch.setattr("proxy.models.load.fetched_dir", lambda: copy)
    return copy


def loaded(tmp_path: Path) -> LoadedEmbedder:
    found = load_embedder(tmp_path / "models", threads=1)
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
    words, tokenizer = reference.words_of(fetched), vocabulary.read(fetched)
    with np.load(weights.TUNED) as held:
        tuned = {name: held[name] for name in held.files}
    asked = ["query: " + text for text in texts]
    expected = [reference.reference(tuned, words, tokenizer.ids(text)) for text in asked]
    cosines = np.sum(np.array(encoder.encode(asked)) * np.array(expected), axis=1)
    assert len(cosines) >= 200
    assert cosines.mean() >= 0.996
    assert cosines.min() >= 0.99
    assert (cosines >= 0.995).mean() >= 0.9


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("Где я живу?", [0, 105267, 784, 18884, 105, 32, 2]),
        ("ｆｕｌｌ　ｗｉｄｔｈ", [0, 4393, 6, 146984, 2]),
        ("e\u0301te\u0301", [0, 5325, 2]),
        ("a\x01b", [0, 1563, 2]),
        ("a\u200bb", [0, 10, 876, 2]),
        ("½ cup, ﬁne", [0, 78660, 45364, 4, 5885, 2]),
        ("line\nline\ttab", [0, 13315, 13315, 20928, 2]),
        ("👩‍👩‍👧 hi", [0, 6, 244785, 6, 244785, 6, 245719, 1274, 2]),
        ("私はどこに住んでいますか", [0, 65579, 55325, 202042, 12219, 1894, 2]),
        ("What does my sister eat?", [0, 4865, 14602, 759, 114015, 73203, 32, 2]),
    ],
)
def test_a_text_has_the_tokens_of_the_published_tokenizer(fetched: Path, text: str, ids: list[int]) -> None:
    """As `tokenizers` reads the published tokenizer.json."""
    assert vocabulary.read(fetched).ids(text) == ids


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
    file = copied / vocabulary.NAME
    file.write_bytes(file.read_bytes()[:-100])
    found = loaded(tmp_path)
    assert found.embedder is None
    assert f"{file.name} in {copied} is damaged: run scripts/install" in found.notes[0]


def test_missing_files_are_named_with_the_remedy(copied: Path, tmp_path: Path) -> None:
    (copied / vocabulary.NAME).unlink()
    assert f"{vocabulary.NAME} in" in loaded(tmp_path).notes[0]
    assert "is missing: run scripts/install" in loaded(tmp_path).notes[0]
    (copied / vocabulary.WORDS_NAME).unlink()
    assert f"{vocabulary.WORDS_NAME} in {copied} is missing: run scripts" in loaded(tmp_path).notes[0]


@pytest.mark.parametrize("content", [None, b"PK of another version"])
def test_layers_that_are_missing_or_of_another_version_are_refused(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    other = tmp_path / "layers.npz"
    if content is not None:
        other.write_bytes(content)
    monkeypatch.setattr(weights, "TUNED", other)
    found = loaded(tmp_path)
    assert found.embedder is None
    assert "layers.npz is " in found.notes[0]
    assert "install memory-proxy again" in found.notes[0]


def test_packed_layers_that_are_damaged_are_packed_again(copied: Path, tmp_path: Path) -> None:
    packed = copied / weights.PACKED_NAME
    good = packed.read_bytes()
    packed.write_bytes(good[:5_000_000])
    assert loaded(tmp_path).embedder is not None
    assert packed.read_bytes() == good


def test_only_the_published_pieces_become_a_vocabulary(tmp_path: Path) -> None:
    with pytest.raises(EmbeddingFailed, match="not the pieces of the published"):
        vocabulary.write(tmp_path, [("a", 0.0)])
    assert list(tmp_path.iterdir()) == []


def test_of_a_long_text_both_ends_are_read(fetched: Path) -> None:
    words = vocabulary.read(fetched)
    whole = words.ids("first " + "and so on " * 20_000 + "last")
    assert len(whole) == vocabulary.MAX_TOKENS
    assert whole[:3] == words.ids("first and")[:3]
    assert whole[-2:] == words.ids("on last")[-2:]
    assert words.ids("a b c", 4) == [*words.ids("a")[:2], *words.ids("c")[-2:]]


def test_what_no_piece_covers_is_one_unknown_token(fetched: Path) -> None:
    words = vocabulary.read(fetched)
    assert words.ids("a 𓀀𓀁𓀂") == [0, 10, 6, 3, 2]
    assert [unknown for _, unknown in words.pieces("a 𓀀𓀁𓀂")] == [False, False, True]
    assert words.ids("") == words.ids(" \n") == [0, 2]


@pytest.mark.parametrize("graph", [weights.GRAPH, weights.PAIR_GRAPH])
def test_the_committed_graphs_point_at_exactly_what_the_packer_writes(graph: Path) -> None:
    content = graph.read_bytes()
    assert len(content) < 30_000, "a graph holds no weights"
    placed = list(weights.place(weights.layer_tensors()))
    # An external_data entry is a key and a value, each with its length before it. The last two are the words.
    for key, written in (
        ("offset", [tensor.offset for tensor in placed]),
        ("length", [tensor.array.nbytes for tensor in placed]),
    ):
        entries = re.findall(rb"\n.%s\x12(.)(\d+)" % key.encode(), content, re.DOTALL)
        assert [int(digits[: size[0]]) for size, digits in entries][:-2] == written


def test_quantised_matrices_leave_the_eighth_bit_free() -> None:
    matrices = [t.array for t in weights.place(weights.layer_tensors()) if t.array.dtype == np.int8]
    assert {int(np.abs(matrix).max()) for matrix in matrices} == {63}
