"""What the scripted model takes from a user's words, sentence by sentence."""

import pytest

from proxy.demo.grammar import second_person, third_person
from proxy.demo.rules import facts, is_question
from proxy.demo.slots import Known

STATEMENTS = [
    ("My budget for the Hawaii trip is $10,000.", ["User's budget for the Hawaii trip is $10,000"]),
    ("I'm allergic to peanuts", ["User is allergic to peanuts"]),
    ("we moved to Madison", ["User moved to Madison"]),
    ("Call me Sam", ["User wants to be called Sam"]),
    ("I prefer window seats.", ["User prefers window seats"]),
    ("From now on answer in German.", ["User wants the assistant to answer in German"]),
    ("Please answer in French from now on.", ["User wants the assistant to answer in French"]),
    ("Don't ever use emojis", ["User wants the assistant to never use emojis"]),
    ("Hi! My name is Anna and I live in Berlin.", ["User's name is Anna", "User lives in Berlin"]),
    ("i live in berlin. my dog is called rex", ["User lives in berlin", "User's dog is called rex"]),
    ("I live in Oslo and work at Acme.", ["User lives in Oslo", "User works at Acme"]),
    ("My wife and I live in Oslo.", ["User and their wife live in Oslo"]),
    ("I moved here with my husband.", ["User moved here with their husband"]),
    ("My daughter Mia turns seven in June.", ["User's daughter Mia turns seven in June"]),
    ("Theo is my husband.", ["Theo is User's husband"]),
    ("Dr. Ohm is my dentist.", ["Dr. Ohm is User's dentist"]),
    ("My boss is Dr. Kern. I like him.", ["User's boss is Dr. Kern", "User likes him"]),
    ("I work at Acme Inc. in Berlin.", ["User works at Acme Inc. in Berlin"]),
    ("Call me Dr. Ohm.", ["User wants to be called Dr. Ohm"]),
    ("For dinner, I never eat meat.", ["For dinner, User never eats meat"]),
    ("I don't eat pork, and I have two cats.", ["User does not eat pork", "User has two cats"]),
    ("By the way, I can't eat gluten", ["User can't eat gluten"]),
    ("My flight is on March 3, what should I pack?", ["User's flight is on March 3"]),
    ("Since I'm vegan, what should I cook?", ["User is vegan"]),
    ("Remember that the wifi is called Blue Whale.", ["The wifi is called Blue Whale"]),
    ("Can you remember that I hate cilantro?", ["User hates cilantro"]),
    ("I was born at 8 a.m. in Dr. Brown's house.", ["User was born at 8 a.m. in Dr. Brown's house"]),
    ("I paid $10.50 for it at St. Mark's.", ["User paid $10.50 for it at St. Mark's"]),
    ("我叫小明，我住在上海。", ["用户叫小明", "用户住在上海"]),
    ("我喜欢跑步。我对花生过敏！", ["用户喜欢跑步", "用户对花生过敏"]),
    ("以后请用中文回答我", ["用户希望助手以后用中文回答"]),
]
NOTHING = [
    "Hi there!",
    "Thanks, that's great",
    "What is the capital of France?",
    "Hi, what's my budget?",
    "How much can we spend on the islands?",
    "If I had $500, where should I go?",
    "Can you book me a flight",
    "Tell me a joke about my boss",
    "I'd like to know how to cook rice",
    "I need help with my homework",
    "I have a question",
    "I'm sorry, I don't understand",
    "I love it",
    "I agree",
    "the weather is nice",
    "Remember to smile",
    "remember my name?",
    "```\nmy_budget = 3\nI am code. My dog is code.\n```",
    "> I live in a quotation",
    "我住在哪里？",
    "你好，我想问一下天气",
    "",
    "…",
]


@pytest.mark.parametrize(("said", "contents"), STATEMENTS)
def test_a_statement_becomes_third_person_facts(said: str, contents: list[str]) -> None:
    assert [f.content for f in facts(said)] == contents


@pytest.mark.parametrize("said", NOTHING)
def test_questions_requests_and_small_talk_yield_nothing(said: str) -> None:
    assert facts(said) == []


def test_evidence_is_the_verbatim_sentence() -> None:
    said = "Hello!  My name is Anna, and I live\nin Berlin. What's the weather?"
    assert {f.evidence for f in facts("Hi! I'm 34 years old and I use neovim. Ok?")} == {
        "I'm 34 years old and I use neovim."
    }
    assert all(f.evidence in said for f in facts(said))


@pytest.mark.parametrize(
    ("said", "type_"),
    [
        ("I hate cilantro", "preference"),
        ("From now on answer briefly", "preference"),
        ("I'm a nurse at night", "semantic"),
        ("Yesterday I went to the dentist", "episodic"),
        ("Last month we moved to Rome", "semantic"),  # a state that lasts, not an episode
        ("When I deploy, I run the smoke tests first and then tag the release", "procedural"),
    ],
)
def test_the_type_follows_from_cues(said: str, type_: str) -> None:
    assert [f.type for f in facts(said)] == [type_]


def test_a_hedged_statement_has_a_confidence_below_the_gate() -> None:
    assert [f.confidence < 0.6 for f in facts("I might move to Denver. I live in Austin.")] == [True, False]


KNOWN = (
    Known("m1", "User's budget for the Hawaii trip is $10,000"),
    Known("m2", "User lives in Austin"),
    Known("m3", "User's sister is a doctor"),
    Known("m4", "User's favourite color is teal"),
)


@pytest.mark.parametrize(
    ("said", "content", "replaces"),
    [
        ("My budget for the Hawaii trip is $12,000", "User's budget for the Hawaii trip is $12,000", "m1"),
        ("Actually, my budget is now $12,000.", "User's budget for the Hawaii trip is $12,000", "m1"),
        ("The budget is $12,000 now.", "User's budget for the Hawaii trip is $12,000", "m1"),
        ("My budget for the Rome trip is $900", "User's budget for the Rome trip is $900", None),
        ("We moved to Madison", "User moved to Madison", "m2"),
        ("I moved to tears", "User moved to tears", "m2"),  # rules do not understand
        ("My sister is pregnant", "User's sister is pregnant", None),
        ("My favourite color is green", "User's favourite color is green", "m4"),
        ("I live in Austin", "User lives in Austin", None),  # the same again replaces nothing
        ("我搬到上海了", "用户搬到上海了", "m2"),
    ],
)
def test_a_new_value_replaces_the_known_one_and_a_parallel_fact_does_not(
    said: str, content: str, replaces: str | None
) -> None:
    assert [(f.content, f.replaces) for f in facts(said, KNOWN)] == [(content, replaces)]


@pytest.mark.parametrize(
    ("said", "asks"),
    [
        ("What should I cook?", True),
        ("Hi, what's my budget", True),
        ("My dog is Rex. What should I feed him?", True),
        ("我住在哪里？", True),
        ("My dog is Rex.", False),
        ("Hello", False),
    ],
)
def test_tells_questions_from_statements(said: str, asks: bool) -> None:
    assert is_question(said) is asks


@pytest.mark.parametrize(
    ("first", "third", "second"),
    [
        ("I really love my job", "User really loves their job", "you really love your job"),
        ("we were late", "User was late", "you were late"),
        ("I have been learning", "User has been learning", "you have been learning"),
        ("I carry a bag and play", "User carries a bag and play", "you carry a bag and play"),
        ("I watch birds", "User watches birds", "you watch birds"),
        ("I said I was tired", "User said they were tired", "you said you were tired"),
        ("my boss likes me", "User's boss likes them", "your boss likes you"),
        ("I do not smoke", "User does not smoke", "you do not smoke"),
    ],
)
def test_the_person_changes_there_and_back(first: str, third: str, second: str) -> None:
    assert third_person(first) == third
    assert second_person(third) == second


def test_facts_of_any_wording_are_said_to_the_user() -> None:
    assert second_person("The user's cat is called Miso") == "your cat is called Miso"
    assert second_person("User wants the assistant to answer in German") == "you want me to answer in German"
    assert second_person("用户对花生过敏") == "你对花生过敏"
    assert second_person("The wifi is called Blue Whale") == "The wifi is called Blue Whale"
