"""What can only be asked about the world."""

import pytest

from proxy.pipeline.decision.world import worldly
from proxy.pipeline.decision.worldly import Worldly
from proxy.pipeline.roles import names_their_thing


@pytest.mark.parametrize(
    "text",
    [
        "How long do hedgehogs sleep?",
        "What language is spoken in Chile?",
        "How many ounces in a pound?",
        "Tell me about the Byzantine Empire.",
        "Who is the author of The Old Man and the Sea?",
        "松鼠一般能活几年？",
        "秘鲁的首都是哪里？",
        "的的喀喀湖在哪里？",
        "HTTP和HTTPS有什么区别？",
    ],
)
def test_kinds_matters_and_places_are_the_worlds(text: str) -> None:
    assert worldly(text) is Worldly.SURE


@pytest.mark.parametrize(
    "text",
    [
        "How long does Biscuit sleep?",
        "How long did the hedgehog sleep?",
        "Who moved to Chile?",
        "wann war griechenland",
        "When does the Chile trip begin?",
        "Tell me about Helios.",
        "Do penguins suit the birthday theme?",
        "豆豆一般睡几小时？",
        "猫粮在哪买的？",
        "花生能吃吗？",
        "秘鲁的客户是谁？",
        "李江有多高？",
    ],
)
def test_what_has_a_name_or_happens_to_somebody_is_not(text: str) -> None:
    assert worldly(text) is Worldly.NO


def test_a_definite_plural_of_romance_languages_may_be_somebodys() -> None:
    assert worldly("¿Los perros ven en color?") is Worldly.LIKELY
    assert worldly("¿El perro ve en color?") is Worldly.NO


@pytest.mark.parametrize(
    "text",
    [
        "Können Hunde mit ins Ferienhaus?",
        "Warum ist Eis im Tank?",
        "Comment fonctionne une inscription à la cantine ?",
        "¿Cómo se llama el fontanero?",
        "去年爬的山在哪里？",
        "佛山的工厂在哪里？",
        "外婆的药有什么作用？",
    ],
)
def test_a_kind_beside_a_thing_or_a_person_of_somebodys_is_not_the_worlds(text: str) -> None:
    assert worldly(text) is Worldly.NO


@pytest.mark.parametrize("text", ["el gato", "Le mur de Berlin est tombé", "die Erde", "Ask the plumber."])
def test_no_thing_is_somebodys_that_the_tables_know(text: str) -> None:
    assert not names_their_thing(text)


@pytest.mark.parametrize("text", ["el tatuaje", "à l'école du village", "beim Klempner", "qui a vu la fuite"])
def test_a_definite_article_before_another_word_names_somebodys_thing(text: str) -> None:
    assert names_their_thing(text)
