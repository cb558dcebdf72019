"""Questions whose words their answers never hold: known by their form, in five languages."""

from dataclasses import replace

import pytest

from proxy.domain import Hit
from proxy.pipeline.decision.expect import Expectation
from proxy.pipeline.recall.aims import aims_of
from proxy.pipeline.recall.gate import gate_for
from proxy.pipeline.recall.rank import Asked, rank
from tests.pipeline.conftest import NOW, memory

PAIRS = [
    (
        "manner",
        "Draft the invitation the way I like.",
        "User wants replies of at most five lines, no emojis.",
    ),
    ("manner", "Explain recursion. You know my rules.", "User prefers short answers with one example."),
    ("manner", "写一份通知,按我的老规矩。", "用户要求助手回答不超过十行。"),
    ("manner", "Redáctame el aviso como siempre.", "La usuaria quiere textos de tres líneas, sin adjetivos."),
    ("manner", "Schreib mir die Einladung, wie ich es mag.", "Der Nutzer möchte Antworten ohne Stichpunkte."),
    ("manner", "Rédige le mot comme d'habitude.", "L'utilisatrice veut des phrases courtes."),
    ("undecided", "What was I in two minds about?", "User may sell the boat next year."),
    ("undecided", "我之前在犹豫什么?", "用户可能明年换工作。"),
    ("undecided", "¿En qué estaba dudando?", "El usuario está pensando si mudarse a Lugo."),
    ("undecided", "Was hatte ich mir neulich überlegt?", "Der Nutzer zieht vielleicht nach Kiel."),
    ("undecided", "J'hésitais à propos de quoi ?", "L'utilisateur envisage de vendre le bateau."),
    ("authority", "Whose say-so is needed before it goes out?", "Cheques need two signatures."),
    ("authority", "Who has to approve the menu?", "Petra decides what is served."),
    ("authority", "这件事谁拍板?", "活动经费由王姐批。"),
    ("authority", "¿Quién firma esto?", "Los gastos los autoriza Renata."),
    ("authority", "Wessen Wort zählt hier?", "Der Kantor bestimmt das Programm."),
    ("authority", "Qui valide la maquette ?", "Léa donne son accord pour les affiches."),
    ("caution", "Anna is cooking for us, what must she avoid?", "User is allergic to sesame."),
    ("caution", "点单的时候帮我避开什么?", "用户不吃香菜。"),
    ("caution", "¿Qué no puedo pedir?", "La usuaria tiene gastritis."),
    ("caution", "Worauf muss ich beim Essen aufpassen?", "Die Nutzerin verträgt keine Laktose."),
    ("caution", "Que dois-je éviter au restaurant ?", "Régime sans gluten."),
]


@pytest.mark.parametrize(("name", "question", "told"), PAIRS, ids=[p[1] for p in PAIRS])
def test_a_question_meets_what_it_aims_at(name: str, question: str, told: str) -> None:
    (aim,) = [aim for aim in aims_of(question) if aim.name == name]
    assert aim.meets(memory("m", told))
    assert not aim.meets(memory("m", "User's sister Marta lives in Porto."))


@pytest.mark.parametrize(
    "question",
    [
        "When does my sister's flight land?",
        "我妹妹住在哪?",
        "¿Dónde vive Marta?",
        "Wo wohnt Marta?",
        "Où habite Marta ?",
    ],
)
def test_most_questions_aim_at_nothing_known(question: str) -> None:
    assert aims_of(question) == ()


def test_what_was_told_with_a_doubt_is_undecided() -> None:
    (aim,) = aims_of("What was I in two minds about?")
    sure = memory("m", "User moves to Kiel.")
    assert not aim.meets(replace(sure, confidence=0.9))
    assert aim.meets(replace(sure, confidence=0.5))


def test_what_is_aimed_at_comes_before_what_is_a_little_nearer() -> None:
    gate = gate_for(expected=Expectation.STRONG, dense=True, model_threshold=0.25, asked=None)
    hits = [
        Hit(memory("near", "The booklet goes out in May."), 0.45, 0.0),
        Hit(memory("signed", "Cheques need two signatures."), 0.42, 0.0),
        Hit(memory("rest", "Something else."), 0.30, 0.0),
    ]
    aims = aims_of("Whose say-so is needed before it goes out?")
    found = [one.memory.id for one in rank(hits, Asked(aims=aims), gate, limit=9, now=NOW)]
    assert found[:2] == ["signed", "near"]
    assert [one.memory.id for one in rank(hits, Asked(), gate, limit=9, now=NOW)][:2] == ["near", "signed"]


LONG = "ﷺ" * 4_000


def test_a_memory_that_folding_makes_long_is_soon_read(benchmark_ms) -> None:
    aims = [aim for _, question, _ in PAIRS for aim in aims_of(question)]
    assert benchmark_ms(lambda: [aim.meets(memory("m", LONG)) for aim in aims]) < 20  # 70 ms and more


def test_memories_that_folding_makes_long_are_soon_ranked(benchmark_ms) -> None:
    hits = [Hit(memory(f"m{i}", f"{LONG}{i}"), 0.4, 1.0) for i in range(20)]
    gate = gate_for(expected=Expectation.STRONG, dense=True, model_threshold=0.25, asked=None)
    took_ms = benchmark_ms(lambda: rank(hits, Asked(("dinner",)), gate, limit=5, now=NOW))
    assert took_ms < 80  # 150 ms; 30 ms now
