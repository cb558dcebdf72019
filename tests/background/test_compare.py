"""The pairs were written by hand, and some of them showed faults of the rules: they are no held-out set."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from proxy.background.write_gate.compare import Relation, relate
from proxy.embedtext import embed_text
from proxy.ports import Embedder

# How many of the 153, 134 and 44 labelled pairs may be taken for something else: what was reached.
MOST_WRONG = {"A": 1, "U": 7, "S": 3}

APART = [
    ("User is allergic to walnuts", "User is allergic to penicillin"),
    ("User has a cat named Whiskers", "User has a cat named Pixel"),
    ("Emma's birthday is on May 3", "Max's birthday is on June 14"),
    ("User's budget for the Portugal trip is $7,500", "User's budget for the Iceland trip is $9,000"),
    ("User's flight to Oslo is on 3 May", "User's flight back from Oslo is on 17 May"),
    ("User's sister lives in Lyon", "User lives in Ghent"),
    ("User likes jazz", "User likes techno"),
    ("User visited Rome in 2019", "User visited Rome in 2023"),
    ("On project Orion changes are approved by Ines", "On project Vega changes are approved by Raymond"),
    ("User speaks Portuguese", "User speaks Italian"),
    ("User's mother is 74", "User's mother is on warfarin"),
    ("User's car is a 2014 Outback", "User's car is in the garage until Friday"),
    ("User's team is hiring", "User's team is based in Ghent"),
    ("User's laptop is slow", "User's laptop is a ThinkPad"),
    ("User lives in Ghent", "User plans to move to Porto in May"),
    ("User's mother takes warfarin", "User takes lisinopril"),
    ("I work at Acme", "I also work at Globex"),
    ("I work at Acme", "My brother works at Globex now"),
    ("I work at Acme", "I work at night now"),
    ("On Mondays I work at Acme", "On Tuesdays I work at Globex"),
    ("Mornings work for me", "Evenings work for me"),
    ("My dentist is Dr. Ohm", "My cardiologist is Dr. Volt"),
    ("用户有一只叫小黑的猫", "用户有一只叫小白的猫"),
    ("用户对花生过敏", "用户对青霉素过敏"),
    ("用户住在杭州", "用户的父母住在宁波"),
]
UPDATED = [
    ("User's budget for the Japan trip is $4,000", "User's budget for the Japan trip is $5,500"),
    ("User lives in Leeds", "User moved to Ghent"),
    ("User's manager is Olga", "User's manager is Daniel"),
    ("I work at Acme", "I work at Globex now"),
    ("I work for Acme", "I now work for Globex"),
    ("I report to Ana", "I report to Ben now"),
    ("My dentist is Dr. Ohm", "My dentist is now Dr. Volt"),
    (
        "User's deadline for the thesis is May 3 (stated 2026-01-02)",
        "User's deadline for the thesis is June 1",
    ),
    ("User drinks coffee every morning", "User no longer drinks coffee"),
    ("User likes cilantro", "User does not like cilantro"),
    ("User wakes up at 6:00", "User wakes up at 7:30"),
    ("用户住在杭州", "用户搬到了上海"),
    ("用户的经理是李娜", "用户的经理是王强"),
    ("OrderHub 的上线窗口是每周四 21:00", "OrderHub 的上线窗口改为每周二 20:00"),
]
SAME = [
    ("User's dog is called Biscuit", "Biscuit is the user's dog"),
    ("User is allergic to peanuts", "The user has a peanut allergy"),
    ("User lives in Ghent.", "user lives in ghent"),
    ("User lives in Ghent (stated 2026-01-02).", "User lives in Ghent (stated 2026-05-02)."),
]


def _relation(embedder: Embedder, old: str, new: str) -> Relation:
    if not (embedder.understands(old) and embedder.understands(new)):
        return relate(old, new, None, near=embedder.model.duplicate_threshold)
    a, b = asyncio.run(embedder.embed([embed_text(old), embed_text(new)]))
    cosine = float(np.frombuffer(a, np.float32) @ np.frombuffer(b, np.float32))
    return relate(old, new, cosine, near=embedder.model.duplicate_threshold)


@pytest.mark.parametrize(("old", "new"), APART)
def test_facts_that_hold_side_by_side_are_kept_apart(embedder: Embedder, old: str, new: str) -> None:
    assert _relation(embedder, old, new) is Relation.APART
    assert _relation(embedder, new, old) is Relation.APART


@pytest.mark.parametrize(("old", "new"), APART)
def test_facts_are_kept_apart_however_near_a_model_finds_them(old: str, new: str) -> None:
    assert relate(old, new, 0.84, near=0.8) is Relation.APART


def test_one_word_of_contrast_outweighs_any_nearness() -> None:
    old, new = "User's flight to Oslo is on 3 May", "User's flight back from Oslo is on 17 May"
    assert relate(old, new, 0.97, near=0.8) is Relation.APART


@pytest.mark.parametrize(("old", "new"), UPDATED)
def test_a_changed_value_is_an_update(embedder: Embedder, old: str, new: str) -> None:
    assert _relation(embedder, old, new) is Relation.UPDATE


@pytest.mark.parametrize(("old", "new"), SAME)
def test_the_same_fact_is_the_same_in_other_words(embedder: Embedder, old: str, new: str) -> None:
    assert _relation(embedder, old, new) is Relation.SAME


# ------------------------------------------------------------ the labelled pairs
PAIRS = [
    (*line.split("|")[0].split(), *line.split("|")[1:])
    for line in (Path(__file__).parent / "fact_pairs.txt").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
]


def wrong_among(embedder: Embedder, label: str, *accepted: Relation) -> list[str]:
    """Return the pairs with this label whose relation is none of those accepted."""
    pairs = [(language, old, new) for given, language, old, new in PAIRS if given == label]
    assert len(pairs) > 40
    return [
        f"{language} {relation.name}: {old} | {new}"
        for language, old, new in pairs
        if (relation := _relation(embedder, old, new)) not in accepted
    ]


def test_of_facts_that_hold_side_by_side_next_to_none_is_closed(embedder: Embedder) -> None:
    wrong = wrong_among(embedder, "A", Relation.APART)
    assert len(wrong) <= MOST_WRONG["A"], "\n".join(wrong)


def test_most_changed_facts_are_recognised_without_a_models_help(embedder: Embedder) -> None:
    wrong = wrong_among(embedder, "U", Relation.UPDATE)
    assert len(wrong) <= MOST_WRONG["U"], "\n".join(wrong)


def test_most_rewordings_leave_one_fact(embedder: Embedder) -> None:
    wrong = wrong_among(embedder, "S", Relation.SAME, Relation.UPDATE)
    assert len(wrong) <= MOST_WRONG["S"], "\n".join(wrong)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Maria plays the cello.", "Maria sold her car."),
        ("Maria wants a quiet room.", "Maria now wants R code in data.table."),
        ("Maria is allergic to nuts and carries a pen.", "Maria now codes in R, in no other language."),
        ("Maria sings in a choir in Leeds.", "Maria moved from Sweden, her home, four years ago."),
        ("Maria booked a cottage for 2,350 euros.", "Maria raised the trip budget to 7,200 euros."),
        ("Sam is in Berlin.", "Sam now drives a Volvo."),
        ("小王对花生过敏。", "小王已把第一笔款付给装修队。"),
        ("Maria works at Acme.", "Maria has moved to a new flat."),
        ("My sister is allergic to nuts.", "My sister has moved to a new flat."),
        ("User's sister is called Ana.", "User's sister moved to Rome."),
        ("User's sister works at Acme.", "My sister Ana moved to Rome."),
        ("User's mother has two cats.", "User's mother switched to a vegan diet."),
        ("Tom's wife plays the violin.", "Tom's wife has moved to a new flat."),
        (
            "La hermana del usuario es alérgica a las nueces.",
            "La hermana del usuario se mudó a un piso nuevo.",
        ),
        ("Ma sœur travaille chez Acme.", "Ma sœur a déménagé à Rome."),
        ("Die Schwester des Nutzers spielt Geige.", "Die Schwester des Nutzers wohnt jetzt in Rom."),
        ("用户的妹妹对坚果过敏。", "用户的妹妹搬到了罗马。"),
        ("User's dog Rex is allergic to chicken.", "User's dog switched to a new food."),
        ("Dr. Ohm works at the Lindenhof clinic.", "Dr. Ohm switched to a vegan diet."),
        ("The user's ex-wife plays the violin.", "The user's ex-wife has moved to a new flat."),
        ("User's mother-in-law hates flying.", "User's mother-in-law switched to a vegan diet."),
        ("我老婆在阿里工作。", "我老婆改吃素了。"),
        ("My sister Ana lives in Lyon.", "My sister Eva moved to Rome."),
        ("L'utilisateur habite à Lyon.", "La sœur de l'utilisateur a déménagé à Rome."),
    ],
)
def test_what_changed_for_somebody_closes_nothing_else_that_is_known_of_them(old: str, new: str) -> None:
    assert relate(old, new, 0.6, near=0.8) is Relation.APART


def test_what_happened_once_does_not_end_what_holds_however_near() -> None:
    holds, happened = "Maria is a midwife and tells of births.", "Maria gave a talk at a school about births."
    assert relate(holds, happened, 0.81, near=0.8) is Relation.APART
    assert relate(happened, holds, 0.81, near=0.8) is Relation.APART


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Sam drinks coffee.", "Sam no longer drinks coffee."),
        ("Sam works at Solvex.", "Sam now works at Brandt."),
        ("小王住在长沙。", "小王搬到了武汉。"),
        ("Sam takes 5 mg of ramipril.", "Sam now takes 10 mg of ramipril."),
        ("Sam's exam is on 3 May.", "Sam's exam was moved to 10 May."),
        ("Lantern is due on 3 May.", "Lantern was moved to 10 May."),
        ("Rent is 800 euros.", "Rent was raised to 900 euros."),
        ("User's sister lives in Lyon.", "User's sister moved to Rome."),
        ("My sister Ana lives in Lyon.", "My sister moved to Rome."),
        ("My boss wants reports on Fridays.", "My boss now wants reports on Mondays."),
        ("User's manager is Olga.", "User's manager is now Daniel."),
        ("User's dog is called Rex.", "User's dog is now called Max."),
        ("User's mother takes 5 mg of ramipril.", "User's mother now takes 10 mg of ramipril."),
        ("Mi hermana vive en Lyon.", "Mi hermana se mudó a Roma."),
        ("用户的妹妹住在里昂。", "用户的妹妹搬到了罗马。"),
    ],
)
def test_what_changed_for_somebody_is_an_update_of_that(old: str, new: str) -> None:
    assert relate(old, new, 0.45, near=0.8) is Relation.UPDATE
