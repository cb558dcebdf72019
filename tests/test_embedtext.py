"""Facts as their owner would say them."""

import pytest

from proxy.embedtext import embed_text, first_person, without_note


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ("User's budget is $10,000", "My budget is $10,000"),
        ("User is vegan", "I am vegan"),
        ("The user doesn't eat meat", "I don't eat meat"),
        ("User no longer eats fish", "I no longer eat fish"),
        ("User watches birds and User tries pottery", "I watch birds and I try pottery"),
        ("User has a cat", "I have a cat"),
        ("User must get up", "I must get up"),
        ("User and Theo moved to Madison", "I and Theo moved to Madison"),
        ("Orla is the user's niece", "Orla is my niece"),
        ("Send invoices to the user on Friday", "Send invoices to me on Friday"),
        ("用户的女儿叫小满", "我的女儿叫小满"),
        ("ユーザーは東京に住んでいる", "私は東京に住んでいる"),
    ],
)
def test_a_fact_is_said_in_the_first_person(stored, said):
    assert first_person(stored) == said


@pytest.mark.parametrize(
    "text",
    ["Username is jonas", "Multi-user systems are hard", "Atlas runs on EKS", "They keep their cat", ""],
)
def test_text_about_nobody_is_left_alone(text):
    assert first_person(text) == text


def test_when_it_was_noted_is_not_embedded():
    assert embed_text("User's fee is £1,800 flat (stated 2026-01-22).") == "My fee is £1,800 flat."
    assert embed_text("User's course (£240) is in May") == "My course (£240) is in May"


@pytest.mark.parametrize(
    "note",
    [
        "(stated 2026-01-22)",
        "(Stated 2026-01-22, not signed)",
        "(plan stated 2026-01-22)",
        "(as of 2026-01-22)",
        "(mentioned 2026-01-22)",
        "(dicho 2026-01-22)",
        "(Stand 2026-01-22)",
        "(2026-01-22)",
        "（2026-01-22 时）",
        "(2026-01-22 时的计划)",
    ],
)
def test_a_note_of_the_day_is_no_part_of_what_is_said(note):
    assert without_note(f"User's fee is £1,800 {note}.") == "User's fee is £1,800."
    assert without_note(f"User's fee is £1,800{note}") == "User's fee is £1,800"


@pytest.mark.parametrize(
    "told",
    [
        "User owns knives (set of six)",
        "User took the pill (decided against the cream)",
        "User takes the pill (since 2026-05-01)",
        "The report is for Mara (due 2026-05-01)",
        "User flies to Rome next Friday (2026-06-05).",
        "User moves tomorrow (2026-06-05)",
        "La usuaria empieza mañana (2026-06-05)",
        "Der Nutzer zieht am Freitag (2026-06-05) um",
        "L'utilisateur part vendredi prochain (2026-06-05)",
        "用户下周五 (2026-06-05) 去上海",
    ],
)
def test_a_date_that_says_which_day_is_meant_stays(told):
    assert without_note(told) == told


def test_a_bare_date_is_embedded_and_a_note_is_not():
    assert embed_text("User's festival is in Cork (2026-04-29).") == "My festival is in Cork (2026-04-29)."
    assert embed_text("User's festival is in Cork (stated 2026-04-29).") == "My festival is in Cork."
