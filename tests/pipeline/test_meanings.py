"""What words mean, what things are and how kinds differ, and what people label for themselves."""

import pytest

from proxy.pipeline.decision.decide import decide
from proxy.pipeline.decision.meanings import is_of_words
from tests.pipeline.conftest import turn


@pytest.mark.parametrize(
    "text",
    [
        "what does sotto voce mean",
        "sotto voce meaning",
        "qué es un albarán",
        "was ist ein Fugenkleber",
        "c'est quoi une tontine",
        "difference between jam and marmalade",
        "diferencia entre contralto y mezzo",
        "différence entre alto et mezzo",
        "unterschied zwischen alt und mezzo",
        "高筋粉和中筋粉的区别",
        "青花和釉里红的区别",
        "浸禮跟點水禮差在哪",
        "was heisst legato",
        "que quiere decir legato",
        "legato ça veut dire quoi",
        "what's the difference between a SAFE and a convertible note",
        "what's the difference between fostering and special guardianship",
        "comment marche une tontine",
        "cómo funciona un torno",
        "en qué se diferencia el cello de la viola",
        "worin unterscheiden sich Geige und Bratsche",
        "Was ist der Unterschied zwischen Lasur und Lack?",
        "quelle est la différence entre une fugue et un canon",
        "生宣和熟宣怎么区分",
        "how is cider different from perry",
    ],
)
def test_a_word_a_kind_and_how_two_kinds_differ_need_no_memory(text: str) -> None:
    assert not decide(turn(text)).search


@pytest.mark.parametrize(
    "text",
    [
        "difference between plan A and plan B",
        "difference between the two quotes",
        "what's the difference between the red and blue tags",
        "difference between Tom's and Ana's shifts",
        "was ist der unterschied zwischen den beiden angeboten",
        "qué diferencia hay entre el presupuesto de Luis y el de Ana",
        "différence entre le devis de Karim et celui de Paul",
        "A方案和B方案有什么区别",
        "我和小李的班有什么区别",
        "difference between our old kiln and the new one",
        "what does a yellow tag mean",
        "was heisst der neue",
        "qué es un ensayo de los martes",
        "c'est quoi un code du portail",
        "what's the difference between Mia and Leo's pills",
        "was ist ein Termin bei Frau Huber",
        "la diferencia entre lo de Juan y lo de Pedro",
        "difference between old and new boiler",
        "how is Ana different from Tom",
        "how is the new vet different from the old one",
        "两份合同有什么不同",
        "新旧报价差在哪",
    ],
)
def test_what_has_a_label_a_name_or_an_article_is_somebody_s(text: str) -> None:
    assert decide(turn(text)).search


@pytest.mark.parametrize(
    "text",
    [
        "difference between a and " * 4,
        "iff " * 27,
        "qué es un " * 11,
        "unterschied zwischen a und " * 4,
        "和区别" * 36,
        "的" * 110,
    ],
)
def test_no_text_keeps_the_rule_busy(text: str, benchmark_ms) -> None:
    assert benchmark_ms(lambda: is_of_words(text)) < 10
