"""What a statement says has changed, word by word: what must be shared, and what keeps two facts apart."""

import pytest

from proxy.background.write_gate.claims import claims_change
from proxy.background.write_gate.whose import about_others

CHANGES = [
    # another value of the same kind, said of the same thing
    ("Lantern, the new intake form, is due on 21 April", "Lantern was postponed to 16 June"),
    ("The rent of user's flat is 6200 a month", "Rent of user's flat rose to 6800 a month"),
    ("Atlas runs Kubernetes 1.29", "Atlas runs Kubernetes 1.31 since 25 April 2026"),
    # an end
    ("User eats fish about twice a week", "User no longer eats fish"),
    ("User has a sailing boat, a Neptun 22", "User sold the sailing boat"),
    # a name that the other takes the place of
    ("User's editor is vim", "User switched from vim to Zed as editor"),
    ("Paco Ferrer brings the fish on Tuesdays", "Vicent Mora brings the fish now; Paco retired"),
    # a plan that came to be
    ("User plans to adopt the kitten Gravy", "User adopted the kitten Gravy on 6 June"),
    ("星图的预算是 30 万", "星图的预算加到 40 万"),
    ("用户每天喝美式咖啡", "用户已戒咖啡"),
]
NO_CHANGES = [
    # another value of another thing
    ("User's rent is $1,450 a month", "User's gym now costs $65 a month"),
    ("Lantern's designer is Mateo", "Lantern's launch was postponed to 16 June"),
    # the same of another's
    ("Lantern is due on 21 April", "Beacon was postponed to 16 June"),
    ("User drinks coffee every morning", "User's husband no longer drinks coffee"),
    ("星图的预算是 30 万", "云帆的预算加到 40 万"),
    # an end of something else, or on some days only
    ("User gave up smoking in 2020", "User gave up alcohol in 2025"),
    ("User uses Slack for the Falcon team", "User stopped using Slack at weekends"),
    # one that holds beside it
    ("User has a dog named Pepper", "User now also has a dog named Salt"),
    # a name alone in common
    ("User and Theo live in Madison", "User and Theo sold the car"),
    ("User is going to Porto on 3 May", "User went to the dentist on 9 May"),
]


@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_a_statement_that_says_so_changes_what_it_speaks_of(old: str, new: str) -> None:
    assert claims_change(old, new, None)


@pytest.mark.parametrize(("old", "new"), NO_CHANGES)
def test_a_change_of_something_else_leaves_the_fact_alone(old: str, new: str) -> None:
    assert not claims_change(old, new, None)


def test_a_month_is_no_maybe() -> None:
    assert claims_change("Lantern is due on 3 May 2026", "Lantern was moved to 9 May 2026", None)


def test_relatives_and_named_things_are_others() -> None:
    assert about_others("User's sister lives in Lyon", "User lives in Ghent")
    assert about_others("Emma's birthday is on 3 May", "Max's birthday is on 3 May")
    assert not about_others("User's husband Theo is 40", "Theo turned 41")
    assert not about_others("User's manager is Olga", "Olga is the user's manager")
