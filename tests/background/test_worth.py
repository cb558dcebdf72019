"""Which sentences are kept without a model, in the languages that we know cues of."""

import pytest

from proxy.background.extraction.worth import statements


def contents(said: str) -> list[str]:
    return [p.content for p in statements(said)]


@pytest.mark.parametrize(
    "sentence",
    [
        "I'm vegan",
        "No, I'm vegan.",
        "The printer in Slovenia lost our slot, so delivery moved to 6 May.",
        "Atlas runs on EKS in eu-central-1.",
        "Never use emoji in my mails.",
        "我对花生过敏。",
        "弟弟小明帮我做琴轸,表弟拍照。",
        "对账批处理改到凌晨 4 点跑了。",
        "Soy celíaca.",
        "El restaurante abre los martes a las 13:00.",
        "Ich wohne in Leipzig.",
        "Der Bericht geht freitags an Frau Lund.",
        "J'habite à Lyon.",
        "私は東京に住んでいます。",
    ],
)
def test_an_assertion_about_the_user_or_their_world_is_kept(sentence: str) -> None:
    assert contents(sentence) == [sentence]


@pytest.mark.parametrize(
    "sentence",
    [
        "What should I eat?",
        "Quick one: what is a Deployment?",
        "Thanks, that was great!",
        "Brutal and right, thank you.",
        "Exactly how I like it.",
        "Write me a poem about bees.",
        "For the timeline I need you to tidy this log.",
        "Can you pull out the must-haves for me?",
        "I'll find the owner of that server.",
        "I'm typing this on the bus.",
        "Imagine I lived in Paris with nine cats.",
        "Between us, Kofi is interviewing at two other places.",
        "Here is the page:",
        "谢谢,太好了!",
        "帮我写一封邮件给老板。",
        "我现在在地铁上打字。",
        "我们组老梁刚查出糖尿病。",
        "Gracias, perfecto.",
        "Estoy en el metro, luego sigo.",
        "Kollege Bertram ist krankgeschrieben, das bleibt unter uns.",
        "Bin gerade auf der Autobahn.",
        "Merci beaucoup !",
        "Python's GIL keeps threads from running in parallel, right?",
        "レシピを教えてください。",
        "레시피 알려 주세요.",
    ],
)
def test_questions_requests_reactions_and_what_passes_are_not_kept(sentence: str) -> None:
    assert contents(sentence) == []


def test_a_sentence_that_leans_on_the_one_before_is_taken_with_it() -> None:
    assert contents("My dog Pickle is six. She's allergic to chicken.")[-1] == (
        "My dog Pickle is six. She's allergic to chicken."
    )
    assert contents("She's allergic to chicken.") == []


def test_numbered_steps_are_one_procedure_with_their_heading() -> None:
    said = "Write down how we drain a node:\n1. cordon it\n2. drain it\n3. end it\n\nThanks!"
    (statement,) = statements(said)
    assert statement.steps
    assert statement.content == said.removesuffix("\n\nThanks!")


def test_forms_and_pasted_texts_are_no_words_of_the_user() -> None:
    assert contents("BORROWER: D. Reyes\nEMPLOYER: Tidewell Inc.\nYEARS AT EMPLOYER: 5") == []
    assert contents("The article:\nAcme has 300 clinics in Ohio and grows by 20 a year.") == []


def test_a_fiction_ends_where_the_user_ends_it() -> None:
    said = "Imagine I won the lottery and moved to Lisbon. Anyway. I sing alto in a choir."
    assert contents(said) == ["I sing alto in a choir."]
    assert contents("Stop the role-play. I sing alto in a choir.") == ["I sing alto in a choir."]
    assert contents("要是我中了五百万就辞职。言归正传,我住在杭州。") == ["言归正传,我住在杭州。"]


def test_a_huge_text_is_judged_in_bounded_time() -> None:
    assert len(statements("I live in Ghent, 1. and so on. " * 20_000)) < 1_000
