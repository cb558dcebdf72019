"""What tells a fact that is being forgotten, and what does not."""

import time

import pytest

from proxy.storage.sql.forget_related import MentionMatcher

ISLAND = "The user will travel to Zanzibar in October."
STATED = [
    (ISLAND, "I will travel to Zanzibar in October, so which vaccines?"),
    (ISLAND, "What does one wear? It's hot. I'm travelling to Zanzibar, you know. In October, that is."),
    (ISLAND, "in october i travel to ZANZIBAR"),
    ("The user flies to Zanzibar on 2026-10-05 with Maria.", "Tomorrow I fly with Maria to Zanzibar: flies!"),
    ("User's budget is $7,500 for the kitchen.", "my kitchen budget of 7500 is gone"),
    ("User's sister Anna lives in Berlin.", "My sister Anna is living in Berlin"),
    ("User owns a cat, and a boat.", "my boat, which I own, and cats"),
    (
        "User goes to Zanzibar in July with her mother Ines.",
        "Mother and I, we go to Zanzibar in July: Ines insists",
    ),
    (
        "The dentist, Dr Weiss in Graz, wants to see the user's son again in May about braces.",
        "Dr Weiss in Graz will see Leo in May, for the braces",
    ),
    ("用户对花生过敏", "我对花生过敏，能吃什么？"),
    ("Der Nutzer wohnt in der Lindenstraße in Köln.", "Ich wohne ja in Köln, Lindenstraße 4."),
]
NOT_STATED = [
    (ISLAND, "I will travel to Madagascar in October."),
    (ISLAND, "I will travel in October. Where to? I ask you. It is far. As to spices: Zanzibar has some."),
    ("User's budget is $7,500 for the kitchen.", "my kitchen budget is 8000"),
    ("User's sister Anna lives in Berlin.", "My sister Anna works in Hamburg"),
    ("The user owns two cats and a house.", "Authors of housecats"),
    ("用户对花生过敏", "我对花生很感兴趣"),
]


@pytest.mark.parametrize(("fact", "text"), STATED)
def test_what_says_it_in_nearly_its_words_tells_a_fact(fact, text):
    assert MentionMatcher([fact], []).is_in(text, personal=False)


@pytest.mark.parametrize(("fact", "text"), NOT_STATED)
def test_other_values_other_things_and_words_far_apart_do_not(fact, text):
    assert not MentionMatcher([fact], []).is_in(text, personal=True)


def test_the_words_that_a_fact_was_learnt_from_tell_it_too():
    stated = MentionMatcher(["Has a nut allergy."], ["peanuts make me swell up", "yes"])
    assert stated.is_in("as I said, peanuts make me swell up", personal=False)
    assert not stated.is_in("yes, I do", personal=True)


def test_a_fact_of_few_words_is_found_only_in_statements_about_the_user():
    vegan = MentionMatcher(["The user is vegan."], [])
    assert vegan.is_in("I am vegan, by the way", personal=True)
    assert not vegan.is_in("Is there a vegan restaurant?", personal=False)
    trip = MentionMatcher(["User goes to Zanzibar in July"], [])
    assert trip.is_in("My cat is called Momo and we go to Zanzibar in July.", personal=True)
    assert not trip.is_in("My cat is called Momo and we go to Madagascar in July.", personal=True)
    assert not MentionMatcher(["User likes tea."], []).is_in("My teacher likes me", personal=True)
    assert not MentionMatcher(["User likes tea."], []).is_in("I do like it. Is it tea?", personal=True)


def test_long_texts_are_looked_at_in_time_linear_in_them():
    stated = MentionMatcher([ISLAND], [])
    apart = "I travel. To Zanzibar! Why not? In May. " * 5_000 + "Oh. Oh. Oh. October."
    begun = time.process_time()
    assert not stated.is_in(apart, personal=True)
    assert time.process_time() - begun < 4
