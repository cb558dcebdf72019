"""The benchmark asks its users for what is stored of them."""

import random

from bench.seed import FACTS_A_USER, facts, question


def test_every_question_is_about_a_fact_of_its_user():
    chance = random.Random(1)
    for user in range(3):
        asked = {fact.question for fact in facts(user)}
        assert len(facts(user)) == len({fact.text for fact in facts(user)}) == FACTS_A_USER
        for number in range(20):
            said = question(chance, user, number)
            assert said.partition(" Keep it under ")[0] in asked


def test_no_two_requests_ask_the_same():
    chance = random.Random(1)
    assert len({question(chance, 7, number) for number in range(500)}) == 500
