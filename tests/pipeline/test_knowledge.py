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


@pytest.mark.parametrize(
    "text",
    [
        "Wie viele Inseln hat Griechenland",
        "how far ahead of London is Tokyo",
        "C'est quoi la hauteur du mont Ventoux ?",
        "how many islands does Greece have",
        "how many hours is Perth ahead of Greenwich",
        "is Perth nearer Bali than Sydney",
        "how high is Ben Nevis",
        "distance between Leeds and Bristol",
        "qué altura tiene el Teide",
        "cuántas islas tiene Grecia",
        "a qué distancia está Cali de Bogotá",
        "wie hoch ist der Watzmann",
        "wie weit ist es von Graz nach Wien",
        "combien d'habitants à Dakar",
        "quelle est la distance entre Lyon et Genève",
        "how tall is the Eiffel Tower",
        "how long is the Severn",
        "wie tief ist der Bodensee",
        "decalage horaire entre Paris et Montréal",
        "longueur de la Loire",
        "cuántos habitantes tiene Cali",
        "Ben Nevis height",
        "wie lang ist die Donau",
        "how many states does Mexico have",
        "what's the time difference between Lagos and Toronto",
        "combien de kilomètres entre Dakar et Abidjan",
    ],
)
def test_what_an_atlas_holds_is_not_searched(text: str) -> None:
    assert not decide(turn(text)).search


@pytest.mark.parametrize(
    "text",
    [
        "how far is Leeds",
        "how long in Paris",
        "wie weit noch nach Wien",
        "when is Lyon",
        "how high is Luna",
        "Paris or Lyon",
        "wann war griechenland",
        "how much was Lyon",
        "what time is the Leeds train",
        "wie lange nach wien",
        "how deep is the pond",
        "wie hoch ist die hecke",
        "how far from Leeds to the cottage",
        "cork height",
        "how tall is Florence",
        "how big is Victoria",
        "cuanto mide Florencia",
        "is Sofia taller than Paris now",
        "how tall is Sofia",
        "how far did we get, Leeds or York",
        "Cali o Bogotá, adónde era",
        "how long is the Leeds trip",
        "which hotel in Lyon",
        "how many days in Greece",
        "wie viele Tage in Griechenland",
        "combien de jours en Grèce",
    ],
)
def test_one_place_alone_and_people_called_like_cities_are_no_atlas_s(text: str) -> None:
    assert decide(turn(text)).search


@pytest.mark.parametrize("text", ["what " * 18, "l'" * 45, "der mond " * 10, "a" * 90, "é" * 90])
def test_no_text_keeps_the_rule_busy(text: str, benchmark_ms) -> None:
    assert benchmark_ms(lambda: is_knowledge(text)) < 5
