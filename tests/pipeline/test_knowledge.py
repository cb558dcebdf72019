"""What an encyclopedia holds, asked in few words, and what only looks so."""

import pytest

from proxy.pipeline.decision.decide import decide
from proxy.pipeline.decision.knowledge import is_knowledge
from tests.pipeline.conftest import turn


@pytest.mark.parametrize(
    "text",
    [
        # Science, the body, computing
        "wozu dient die leber",
        "para qué sirve el páncreas",
        "comment se forme la grêle",
        "qué es un iman",
        "was isn ein semaphor",
        "c quoi un dictionnaire",
        "why do penguins have wings",
        "les girafes ont des cornes ?",
        # Of any one of a kind, or how it is with all of them
        "wie viele saiten hat eine geige",
        "cuántas teclas tiene un piano",
        "unterschied zwischen zitrone und limette",
        "différence trompette trombone",
        "why does milk boil",
        "por qué se pone duro el queso",
        "combien de joueurs au rugby",
        # Countries, persons, events, in whatever case
        "capital de letonia",
        "welche währung hat dänemark",
        "langue officielle de la bolivie",
        "wer war frida kahlo",
        "en qué año nació Mozart",
        "when did the french revolution begin",
        "en quelle année a commencé la première guerre mondiale",
    ],
)
def test_what_an_encyclopedia_holds_is_not_searched(text: str) -> None:
    assert is_knowledge(text)
    assert not decide(turn(text)).search


@pytest.mark.parametrize(
    "text",
    [
        # One that both sides know, somebody's stock
        "cuántas cuerdas tiene la guitarra",
        "how many strings are on the violin",
        "why does the vaccine hurt",
        "de qué color es el burro",
        "wie viele spieler hat das team",
        "how much milk is there",
        "wie viele gitarren gibt es",
        "how many eggs are there",
        # When, where and who ask of one of them
        "wann ist die impfung",
        "cuándo es la vacuna",
        "wo ist die geige",
        "what language is the api written in",
        # A name
        "What is Jupiter written in?",
        "why is Koala so old",
        "wer ist martin koch",
        "who was martin koch",
        "quién fue Marta Ruiz",
        # One word that says more
        "capital de la empresa",
        "welche sprache spricht nadia",
        "difference between the two quotes",
        "wie alt ist der hund",
        "qué come el camaleón",
        "python",
        "",
    ],
)
def test_what_may_be_of_somebodys_life_is_searched(text: str) -> None:
    assert not is_knowledge(text)


@pytest.mark.parametrize("text", ["what " * 18, "l'" * 45, "der mond " * 10, "a" * 90, "é" * 90])
def test_no_text_keeps_the_rule_busy(text: str, benchmark_ms) -> None:
    assert benchmark_ms(lambda: is_knowledge(text)) < 5
