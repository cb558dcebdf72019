"""Facts of people whom nobody tuned for: what has changed is replaced, what holds beside it stays."""

from collections.abc import Sequence
from itertools import pairwise

import pytest

from proxy.background.write_gate.compare import Relation, relate
from proxy.domain import Candidate, Create, Supersede
from tests.background.support import memory
from tests.background.test_decide import decide, kinds, said

NEAR = 0.8
# old, new, their cosine: a value, a name, a plan or a habit that is no longer so
CHANGED = (
    (
        "The Tailrace Band charges £320 for a wedding.",
        "From April 2026 the band charges £365 for a wedding.",
        0.74,
    ),
    ("The user's choir is called the Larks.", "The choir, formerly the Larks, is now called Aubade.", 0.7),
    ("User is allergic to latex.", "User is allergic to nickel, not to latex.", 0.76),
    (
        "User repairs lifts for Corven in Cardiff.",
        "User starts at Harbour Lifts in June, leaving Corven.",
        0.63,
    ),
    ("User has booked flights to Porto for August.", "User's trip to Porto has been called off.", 0.59),
    ("L'utilisatrice court vingt kilomètres par semaine.", "L'utilisatrice ne court plus ; elle nage.", 0.5),
    ("L'utilisatrice est intolérante au lactose.", "C'est le gluten ; ce n'est pas le lactose.", 0.6),
    ("用户的女儿八岁。", "用户的女儿今年九岁,叫薛一诺。", None),
    ("用户打算7月带孩子去敦煌,机票还没买。", "用户取消了七月去敦煌的旅行,因为孩子要上夏令营。", None),
)
# They share words with a statement that something changed, and are about something else.
APART = (
    ("L'utilisatrice s'appelle Solène.", "L'utilisatrice a déménagé à Rezé, 5 quai Léon Sécher.", 0.39),
    (
        "L'utilisatrice a un chat qui s'appelle Miso.",
        "L'utilisatrice ne court plus à cause de son genou.",
        0.2,
    ),
    ("L'utilisatrice veut être tutoyée.", "L'utilisatrice ne mange plus de viande.", 0.2),
    ("用户的铺子房租每月6500元。", "用户的铺子搬到了沙坡尾艺术西区二楼。", None),
    ("“宋式七弦”项目的客户是泉州的陈先生。", "“宋式七弦”项目的预算提高到五万六千元。", None),
    (
        "User is mixing an album for the label Pale Harbour.",
        "Tom is the contact, since Rebecca Lund left the label.",
        0.3,
    ),
    (
        "User's day rate for Undertow is £410.",
        "The master of Slack Water (formerly Undertow) is due on 8 May.",
        0.35,
    ),
)


@pytest.mark.parametrize(("old", "new", "cosine"), CHANGED, ids=[c[1][:30] for c in CHANGED])
def test_what_is_no_longer_so_is_recognised(old: str, new: str, cosine: float | None) -> None:
    assert relate(old, new, cosine, near=NEAR) is Relation.UPDATE


@pytest.mark.parametrize(("old", "new", "cosine"), APART, ids=[c[1][:30] for c in APART])
def test_a_change_of_something_else_closes_nothing(old: str, new: str, cosine: float | None) -> None:
    assert relate(old, new, cosine, near=NEAR) is Relation.APART


POSTPONED = (
    (
        "User's Level 4 exam is on 12 March 2030.",
        "User's Level 4 exam has been postponed to 2 April 2030.",
        0.88,
    ),
    (
        "Le permis moto de l'utilisatrice est le 6 mars 2030.",
        "Le permis moto est reporté au 27 mars 2030.",
        0.9,
    ),
)


@pytest.mark.parametrize(("old", "new", "cosine"), POSTPONED)
def test_an_event_that_is_still_to_come_can_be_postponed(old: str, new: str, cosine: float) -> None:
    planned, moved = memory(old, type="episodic"), said(new, type="episodic")
    assert kinds(decide(moved, known=(planned,), cosine=cosine)) == [Supersede]


def test_an_event_that_took_place_is_not_postponed() -> None:
    happened = memory("User's exam took place on 12 March 2020.", type="episodic")
    later = said("User's next exam was postponed.", type="episodic")
    assert kinds(decide(later, known=(happened,), cosine=0.85)) == [Create]


def test_an_event_that_is_postponed_twice_leaves_its_last_day() -> None:
    days: Sequence[str] = (
        "The harvest fair is on 3 May 2030.",
        "The harvest fair has been postponed to 17 May 2030.",
        "The harvest fair has been postponed again, to 31 May 2030.",
    )
    for old, new in pairwise(days):
        candidate: Candidate = said(new, type="episodic")
        assert kinds(decide(candidate, known=(memory(old, type="episodic"),), cosine=0.9)) == [Supersede]
