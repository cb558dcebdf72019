"""Our encoder's files: the packed graph computes what the layers say, and a bad file never survives a
start."""

import importlib.util
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proxy.domain.errors import EmbeddingFailed
from proxy.models import vocabulary, weights
from proxy.models.load import LoadedEmbedder, load_embedder, our_encoder
from proxy.models.weights import Array

ROOT = Path(__file__).parents[2]
TAG = b"version1"
WHERE_DO_I_LIVE = (
    *("Where do I live?", "我住在哪里？", "¿Dónde vivo?", "Wo wohne ich?", "Où est-ce que j'habite ?"),
    *("私はどこに住んでいますか", "Где я живу?", "أين أسكن؟", "저는 어디에 살아요?"),
)


@pytest.fixture(scope="session")
def encoder(fetched):
    return our_encoder(fetched)


@pytest.fixture
def copied(fetched, tmp_path, monkeypatch):
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


# ---------------------------------------------------------------- packing
def named() -> Iterator[tuple[str, Array]]:
    yield "matrix", np.arange(100_000, dtype=np.int8)
    yield "vector", np.ones(5, np.float32)


def never() -> Iterator[tuple[str, Array]]:
    raise AssertionError("the file is whole")


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        lambda content: b"version0" + content[8:],
    ],
)
def test_a_damaged_or_older_packed_file_is_packed_again(damage, tmp_path):
    target = weights.ensure(tmp_path / "packed", TAG, named)
    good = target.read_bytes()
    target.write_bytes(damage(good))
    assert not weights.is_whole(target, TAG)
    weights.ensure(target, TAG, named)
    assert target.read_bytes() == good
    weights.ensure(target, TAG, never)


# ---------------------------------------------------------------- the encoder's files
def test_a_damaged_file_is_named_with_the_remedy(copied, tmp_path):
    file = copied / vocabulary.NAME
    file.write_bytes(file.read_bytes()[:-100])
    found = loaded(tmp_path)
    assert found.embedder is None
    assert f"{file.name} in {copied} is damaged: run scripts/install" in found.notes[0]
    (copied / vocabulary.WORDS_NAME).unlink()
    assert f"{vocabulary.WORDS_NAME} in {copied} is missing: run scripts" in loaded(tmp_path).notes[0]


def test_damaged_packed_layers_are_packed_again(copied, tmp_path):
    packed = copied / weights.PACKED_NAME
    good = packed.read_bytes()
    packed.write_bytes(good[:5_000_000])
    assert loaded(tmp_path).embedder is not None
    assert packed.read_bytes() == good


def test_the_graph_computes_what_the_layers_compute_in_float32(fetched, encoder, monkeypatch):
    """Against the forward pass of scripts/dev/make_memory_e5.py, on texts that the smoothing has not seen."""
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    spec = importlib.util.spec_from_file_location("make", ROOT / "scripts/dev/make_memory_e5.py")
    assert spec.loader is not None
    script: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    words, tokenizer = script.words_of(fetched), vocabulary.read(fetched)
    with np.load(weights.TUNED) as arrays:
        tuned = {name: arrays[name] for name in arrays.files}
    texts: list[str] = list(WHERE_DO_I_LIVE)
    for file in sorted((ROOT / "evals/personas/blind").glob("*.json")):
        texts += re.findall(r'": "([^"\\\n]{15,300})"', file.read_text("utf-8"))[10:11]
    asked = ["query: " + text for text in texts]
    expected = [script.reference(tuned, words, tokenizer.ids(text)) for text in asked]
    cosines = np.sum(np.array(encoder.encode(asked)) * np.array(expected), axis=1)
    assert len(cosines) >= 12
    assert cosines.mean() >= 0.995
    assert cosines.min() >= 0.99


def test_a_question_finds_a_fact_in_another_language(encoder):
    facts = ["I live in Graz.", "I like tea.", "My cat is called Momo."]
    vectors = np.array(encoder.encode(["passage: " + fact for fact in facts]))
    for question in WHERE_DO_I_LIVE:
        assert encoder.understands(question)
        home, *others = vectors @ encoder.encode(["query: " + question])[0]
        assert home > 0.45, question
        assert home > max(others) + 0.25, question


# ---------------------------------------------------------------- the vocabulary
@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("Где я живу?", [0, 105267, 784, 18884, 105, 32, 2]),
        ("ｆｕｌｌ　ｗｉｄｔｈ", [0, 4393, 6, 146984, 2]),
        ("e\u0301te\u0301", [0, 5325, 2]),
        ("a\u200bb", [0, 10, 876, 2]),
        ("line\nline\ttab", [0, 13315, 13315, 20928, 2]),
        ("👩‍👩‍👧 hi", [0, 6, 244785, 6, 244785, 6, 245719, 1274, 2]),
        ("私はどこに住んでいますか", [0, 65579, 55325, 202042, 12219, 1894, 2]),
        ("a 𓀀𓀁𓀂", [0, 10, 6, 3, 2]),  # one unknown token
        (" \n", [0, 2]),
    ],
)
def test_a_text_has_the_tokens_of_the_published_tokenizer(fetched, text, ids):
    """As `tokenizers` reads the published tokenizer.json."""
    assert vocabulary.read(fetched).ids(text) == ids


def test_unknown_pieces_are_not_understood(fetched, encoder, tmp_path):
    pieces = vocabulary.read(fetched).pieces("a 𓀀𓀁𓀂")
    assert [unknown for _, unknown in pieces] == [False, False, True]
    assert not encoder.understands("😀 👍🏽 …")
    assert not encoder.understands("   ")
    with pytest.raises(EmbeddingFailed, match="not the pieces of the published"):
        vocabulary.write(tmp_path, [("a", 0.0)])
    assert list(tmp_path.iterdir()) == []
