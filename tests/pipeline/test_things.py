"""Everyday things that are told by few words, and the questions of nobody's memory."""

import gc
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.gloss import gloss
from proxy.pipeline.recall import things
from proxy.pipeline.recall.attributes import untold
from proxy.pipeline.recall.beside import asked_part
from proxy.pipeline.recall.named import missing
from proxy.pipeline.recall.persons import stranger
from proxy.pipeline.recall.things import asked_for
from tests.pipeline.conftest import lacks

CORPUS = Path(__file__).parent / "corpus"
PERSONAS = Path(__file__).parents[2] / "evals" / "personas" / "extra"
CAT = "User's cat Biscuit hates car travel."


def _closed(question: str, contents: list[str]) -> bool:
    return any(lacks(rule, question, contents) for rule in (missing, stranger, untold))


def _current(persona: str) -> dict[str, str]:
    """Return the facts of a persona that hold today."""
    facts = [
        f for s in json.loads((PERSONAS / f"{persona}.json").read_text())["sessions"] for f in s["facts"]
    ]
    ended = {fact["supersedes"] for fact in facts}
    return {fact["id"]: fact["content"] for fact in facts if fact["id"] not in ended}


def _questions(half: str) -> Iterator[tuple[str, dict]]:
    """Yield the corpus' personas whose facts are in this repository."""
    for persona, asked in json.loads((CORPUS / f"abstain_{half}.json").read_text()).items():
        if (PERSONAS / f"{persona}.json").exists():
            yield persona, asked


@pytest.mark.parametrize(
    "asked",
    [
        "Which dermatologist did I see in spring?",
        "What did the plumber charge?",
        "What time does our flight to Lisbon leave?",
        "我的健身房在哪里?",
        "¿A qué hora sale nuestro tren a Madrid?",
        "Wann läuft mein Reisepass ab?",
    ],
)
def test_a_thing_that_no_memory_names_is_missing(asked: str) -> None:
    assert lacks(missing, asked, [CAT])


def test_an_hour_is_told_where_the_thing_is() -> None:
    flight = "User flies to Lisbon on 9 May."
    asked = "What time does our flight to Lisbon leave?"
    assert lacks(missing, asked, [flight, "Rehearsals begin at 7 pm."])
    assert not lacks(missing, asked, [flight, "The flight to Lisbon leaves at 7:40."])
    assert not lacks(missing, "When is our flight to Lisbon?", [flight])


def test_of_a_thing_at_an_event_both_must_be_told() -> None:
    dinner = "User had goose for dinner at Marta's."
    assert lacks(missing, "What did we eat at the Christmas dinner?", [dinner])
    assert not lacks(
        missing, "What did we eat at the Christmas dinner?", [dinner, "User spent December at home."]
    )


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("What's the wifi password?", "The router key is plum-tree-9."),
        ("What's the wifi password?", "Guests get online with bluewhale77."),  # wifi itself is not told
        ("How much did the flights cost?", "User paid 240 for the TAP flights."),
        ("How much is my rent?", "The flat costs User 950 a month."),
        ("What's my shoe size?", "User wears EU 43."),
    ],
)
def test_one_told_of_what_names_the_thing_together_is_enough(asked: str, told: str) -> None:
    assert lacks(missing, asked, [CAT])
    assert not lacks(missing, asked, [CAT, told])


def test_a_date_is_no_price() -> None:
    assert lacks(missing, "How much did the flights cost?", ["User flies to Lisbon on 12 May."])


def test_what_is_asked_of_somebody_is_left_to_what_is_told_of_them() -> None:
    asked = "When is my mother's birthday?"
    assert "birth" in " ".join(thing.told_by for thing in asked_for(asked))
    assert asked_for(asked, of_somebody=True) == []
    assert not lacks(missing, asked, ["User's mother is a Gemini, 2 June."])
    assert lacks(untold, asked, ["User's mother paints."])
    assert not lacks(untold, asked, ["User's mother is a Gemini, 2 June."])


def test_a_memory_is_glossed_once_for_all_rules_and_only_its_beginning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    glossed: list[str] = []
    monkeypatch.setattr(things, "gloss", lambda text: glossed.append(text) or gloss(text))
    asked = "What is Nora's phone number and her birthday, for the dentist?"
    told = ["Nora es la esposa del usuario. " * 100, "Nora vive en Vigo."]
    lack = [rule(part) for part in (asked, asked_part(asked)) for rule in (missing, untold)]
    assert [one(told) for one in lack if one]
    assert sorted(map(len, glossed)) == [18, 600]


def test_what_was_read_is_forgotten_with_the_question() -> None:
    asked = "When is Nora's birthday?"
    lack = missing(asked)
    assert lack is not None
    assert lack(["Nora vive en Vigo."])
    assert things.reading_for(asked).holds == 1
    del lack
    gc.collect()
    assert things.reading_for(asked).holds == 0


@pytest.mark.parametrize(
    "asked",
    [
        "What should I wear to the wedding?",  # taste may tell
        "Can I take the cat on the train?",
        "How do I renew my passport?",
        "What is safe for me to eat on a cruise?",  # any cruise
        "Was könnt ich dem Toni zum Geburtstag schenken, was treibt er denn?",
        "妈妈生日送她什么",
    ],
)
def test_what_would_be_good_may_follow_from_other_things(asked: str) -> None:
    assert not lacks(missing, asked, [CAT])


def test_a_thing_is_asked_for_in_the_singular_and_the_plural() -> None:
    assert asked_for("where are the bridesmaids?") == asked_for("who is the bridesmaid?") != []


@pytest.mark.parametrize("half", ["dev", "held_out"])
def test_no_answerable_question_of_the_corpus_is_closed(half: str) -> None:
    for persona, asked in _questions(half):
        facts = _current(persona)
        known = [q["query"] for q in asked["answerable"] if all(a in facts for a in q["answer_facts"])]
        assert [query for query in known if _closed(query, list(facts.values()))] == []


def test_few_questions_are_closed_that_memory_answers_in_other_words() -> None:
    """Written blind, to be hidden by such rules: synonyms, things mentioned, people by another name."""
    answered = json.loads((CORPUS / "answered.json").read_text())
    hidden = [
        one["question"]
        for one in answered
        if any(
            lacks(rule, one["question"], one["memories"])
            and lacks(rule, asked_part(one["question"]), one["memories"])
            for rule in (missing, stranger, untold)
        )
    ]
    assert len(answered) == 592
    assert len(hidden) <= 12, hidden


@pytest.mark.parametrize("half", ["dev", "held_out"])
def test_more_than_half_of_what_memory_cannot_answer_is_closed(half: str) -> None:
    closed = [
        _closed(question, list(_current(persona).values()))
        for persona, asked in _questions(half)
        for question in asked["abstain"]
    ]
    assert len(closed) > 20
    assert sum(closed) > len(closed) / 2
