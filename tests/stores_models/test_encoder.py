"""The encoder: vectors mean what they should, and a model knows what it cannot read."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proxy.errors import EmbeddingFailed
from proxy.stores.models.embedder import OnnxEmbedder
from proxy.stores.models.load import load_embedder


async def vectors(embedder: OnnxEmbedder, *texts: str) -> Any:
    return np.stack([np.frombuffer(v, np.float32) for v in await embedder.embed(texts)])


@pytest.mark.parametrize(
    ("question", "right", "wrong"),
    [
        ("How much can I spend on my holiday?", "My vacation budget is $10,000", "My vacation starts in May"),
        ("What should I not eat?", "I am allergic to peanuts", "I am a nurse in a hospital"),
        ("Which pet do I have?", "I live with a cat called Felix", "I live in an old house in Leipzig"),
        ("What is my job?", "I work as a nurse in a hospital", "I walk my dog in the park"),
        ("When do I meet my manager?", "The one-on-one with my boss is on Tuesdays", "My boss is called Ann"),
    ],
)
async def test_a_question_is_nearer_to_its_answer(
    minilm: OnnxEmbedder, question: str, right: str, wrong: str
) -> None:
    asked, answer, other = await vectors(minilm, question, right, wrong)
    assert float(asked @ answer) > float(asked @ other) + 0.05


async def test_similarities_are_those_of_the_published_model(minilm: OnnxEmbedder) -> None:
    """Cosines of the full-precision model, to within what int8 costs."""
    texts = ("my budget for Hawaii", "the cost of the vacation", "the cat sleeps")
    found = await vectors(minilm, *texts)
    assert found @ found.T == pytest.approx(
        np.array([[1, 0.449, 0.030], [0.449, 1, 0.034], [0.030, 0.034, 1]]), abs=0.03
    )


async def test_a_vector_depends_on_nothing_but_its_text(models_dir: Path) -> None:
    embedder = load_embedder(models_dir, cache_size=0).embedder
    assert embedder is not None
    texts = ["short", "a text of a few more words", "word " * 120]
    together = await embedder.embed(texts)
    assert together == [vector for text in texts for vector in await embedder.embed([text])]
    embedder.close()


@pytest.mark.parametrize(
    "text", ["", " \n", "\0", "a\ud800b", "?!", "🎉", "x" * 5_000_000, "wörter " * 9_999]
)
async def test_any_text_has_a_unit_vector(minilm: OnnxEmbedder, text: str) -> None:
    (vector,) = await vectors(minilm, text)
    assert vector.shape == (384,)
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        "What is my budget?",
        "Müller liebt Käse überall",
        "Zoë Ångström, naïve café",
        "Tôi yêu phở bò",
        "My boss is 王伟 from Shanghai",
        "🍕 I love pizza 🍕🍕🍕",
        "def f(x: int) -> int: return x**2  # área",
        "12345 – 67890 €",
        "我的预算是一万元",
        "用 React 和 TypeScript 写 dashboard",
    ],
)
def test_minilm_understands_latin_scripts_code_and_names(minilm: OnnxEmbedder, text: str) -> None:
    assert minilm.understands(text)


@pytest.mark.parametrize(
    "text",
    [
        "魑魅魍魉觊觎饕餮",
        "私の予算は一万円です",
        "わたしはねこがすきです",
        "제 예산은 얼마인가요",
        "ما هي ميزانيتي",
        "Какой у меня бюджет?",
        "Ποιος είναι ο προϋπολογισμός μου;",
        "मेरा बजट क्या है",
        "🎉🎉",
        "",
        " \n",
    ],
)
def test_minilm_does_not_claim_to_understand_what_it_only_spells(minilm: OnnxEmbedder, text: str) -> None:
    assert not minilm.understands(text)


def test_a_model_for_many_languages_reads_single_letters(tiny_model: Path) -> None:
    loaded = load_embedder(tiny_model.parent, model="many-languages", path=tiny_model)
    assert loaded.embedder is not None
    assert loaded.embedder.understands("я и ты")
    loaded.embedder.close()


async def test_token_vectors_are_averaged(tiny_model: Path) -> None:
    (tiny_model / "tokenizer.json").write_text(_without_cls(tiny_model))
    loaded = load_embedder(tiny_model.parent, model="tiny", path=tiny_model)
    assert loaded.embedder is not None
    found = await vectors(loaded.embedder, "a", "a b", "a a a b c")
    assert found[0] == pytest.approx([1, 0, 0, 0])
    assert found[1] == pytest.approx([0.5**0.5, 0.5**0.5, 0, 0])
    loaded.embedder.close()


async def test_a_model_that_pools_its_first_token_is_honoured(tiny_model: Path) -> None:
    (tiny_model / "1_Pooling").mkdir()
    (tiny_model / "1_Pooling/config.json").write_text('{"pooling_mode_cls_token": true}')
    loaded = load_embedder(tiny_model.parent, model="tiny", path=tiny_model)
    assert loaded.embedder is not None
    assert (await vectors(loaded.embedder, "a b c"))[0] == pytest.approx([0, 0, 0, 1])
    loaded.embedder.close()


async def test_a_text_without_direction_fails_and_is_not_stored(tiny_model: Path) -> None:
    (tiny_model / "tokenizer.json").write_text(_without_cls(tiny_model))
    loaded = load_embedder(tiny_model.parent, model="tiny", path=tiny_model)
    assert loaded.embedder is not None
    with pytest.raises(EmbeddingFailed):
        await loaded.embedder.embed([""])  # no tokens at all: there is nothing to average
    loaded.embedder.close()


def _without_cls(directory: Path) -> str:
    config = json.loads((directory / "tokenizer.json").read_text())
    config["post_processor"] = None
    return json.dumps(config)


@pytest.mark.parametrize(
    ("asked", "right", "wrong"),
    [
        ("Is there a medicine I must not take?", "我对青霉素过敏。", "我每周六打羽毛球。"),
        ("我对什么药过敏?", "I am allergic to penicillin.", "I play badminton on Saturdays."),
        ("¿Cuánto pago de alquiler?", "My rent is 900 euros a month.", "My dog eats lamb."),
        ("Wo wohnt meine Schwester?", "My sister lives in Oslo.", "My car is blue."),
        ("Quel est mon loyer ?", "Die Miete beträgt 980 Euro.", "Der Hund frisst Lamm."),
    ],
)
async def test_minilm_reads_other_languages_through_their_gloss(
    minilm: OnnxEmbedder, asked: str, right: str, wrong: str
) -> None:
    question, yes, no = (np.frombuffer(v, np.float32) for v in await minilm.embed([asked, right, wrong]))
    assert question @ yes > question @ no + 0.1
