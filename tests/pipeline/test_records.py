"""What the world keeps a record of, and what a household does."""

import pytest

from proxy.pipeline.decision.decide import decide
from proxy.pipeline.decision.records import is_record
from tests.pipeline.conftest import turn


@pytest.mark.parametrize(
    "text",
    [
        "who came up with the accordion?",
        "what year did the tube open",
        "who invented the pendulum clock",
        "wer hat das transistorradio erfunden",
        "wann wurde das Akkordeon erfunden",
        "cuándo se inventó el acordeón",
        "quand a été inventé le scaphandre",
        "quand l'accordéon a-t-il été inventé",
        "qui a inventé la cocotte-minute",
        "二胡是谁发明的",
        "谁发明了手风琴",
        "北京地铁哪年开通的",
        "who was the first person to swim the Channel",
        "what was the worst Fastnet race in history",
        "who invented the wetsuit",
        "when were crampons invented",
        "seit wann gibt es die S-Bahn",
        "en qué año se abrió el metro",
        "wer ist der Erfinder der Posaune",
        "el reloj más antiguo del mundo cuál es",
        "what's the biggest pumpkin ever recorded",
    ],
)
def test_inventions_institutions_and_superlatives_of_the_world_are_records(text: str) -> None:
    assert is_record(text)
    assert not decide(turn(text)).search


@pytest.mark.parametrize(
    "text",
    [
        "who came up with the harness colours",
        "who invented that warm-up",
        "who invented the sock trick",
        "who thought of the clock for Ana",
        "who discovered the wasp nest",
        "who came up with the music for the finale",
        "who made the first puppet",
        "when did the metro job start",
        "what year was the accordion built",
        "when was the banjo bought",
        "when did the harbour job end",
        "wann hat die u-bahn-baustelle angefangen",
        "wer ist auf den namen gekommen",
        "wer hat das rad gebracht",
        "wer hat die uhr entdeckt, oma oder opa",
        "quién descubrió la gotera",
        "a quién se le ocurrió el disfraz",
        "quién inventó el apodo",
        "qui a eu l'idée du spectacle",
        "qui a inventé la recette du pâté",
        "qui a découvert la fuite",
        "谁想出来的店名",
        "谁发明的那道菜",
        "谁发现漏水的",
        "who invented the rota",
        "when was the piano built",
        "when did Spain end",
        "wer hat die orgel gebaut",
        "when did the choir start",
        "what year was the house built",
        "who thought of the quiz",
        "谁发明的这个游戏",
        "worst race in history for Tom",
        "the biggest cow in the herd",
        "who was the first person to reply",
        "record du monde de Léo au camping",
    ],
)
def test_what_the_user_s_people_made_or_began_is_none(text: str) -> None:
    assert not is_record(text)
    assert decide(turn(text)).search


@pytest.mark.parametrize(
    "text",
    [
        "who invented " * 7,
        "when was " * 11,
        "most xxx " * 11,
        "biggest in " * 9,
        "quand a " * 12,
        "谁" * 100,
        "是谁发明" * 25,
    ],
)
def test_no_text_keeps_the_rule_busy(text: str, benchmark_ms) -> None:
    assert benchmark_ms(lambda: is_record(text)) < 10
