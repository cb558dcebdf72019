"""What two personas of strangers found: facts that others of the same person seemed to end."""

import pytest

from proxy.background.write_gate.claims import claims_change


@pytest.mark.parametrize(
    ("fact", "later"),
    [
        (
            "User has stand B14 at the Harrogate Craft Fair, 18 to 20 April 2026.",
            "At the Harrogate fair user sold 212 pieces over three days; best was the small teapot.",
        ),
        (
            "User has a stand at the farmers' market every Saturday.",
            "User sold 20 mugs at the farmers' market.",
        ),
        ("User works at Acme in Berlin.", "User closed 3 deals at Acme in Berlin."),
    ],
)
def test_so_many_of_something_that_are_sold_end_nothing_else(fact: str, later: str) -> None:
    assert not claims_change(fact, later, 0.6)


@pytest.mark.parametrize(
    ("fact", "later"),
    [
        ("User takes 2 tablets of Zolin a day.", "User stopped the 2 tablets of Zolin."),
        ("User works at Acme in Berlin.", "User left Acme after 3 years."),
    ],
)
def test_what_is_counted_in_both_is_ended(fact: str, later: str) -> None:
    assert claims_change(fact, later, 0.7)
