"""Two facts that look alike are two facts: the second must not be taken for the first and dropped."""

import pytest

from proxy.background.write_gate.compare import Relation, relate


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Daniel", "Daniela"),
        ("Fernando", "Fernanda"),
        ("Christian", "Christina"),
        ("Alexander", "Alexandra"),
        ("Posagali", "Posagade"),
    ],
)
@pytest.mark.parametrize("cosine", [0.75, 0.9, 0.97])
def test_friends_whose_names_begin_alike_are_two_friends(one: str, other: str, cosine: float) -> None:
    fact = "User has a friend named {}."
    assert relate(fact.format(one), fact.format(other), cosine, near=0.8) is Relation.APART


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("User is allergic to penicillin.", "User is allergic to penicillamine."),
        ("User takes methotrexate.", "User takes methotrimeprazine."),
        ("User works on the interface team.", "User works on the interferometry team."),
    ],
)
def test_words_that_begin_alike_are_two_words(one: str, other: str) -> None:
    assert relate(one, other, 0.85, near=0.8) is not Relation.SAME
