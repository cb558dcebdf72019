"""Nobody is remembered who was never spoken of."""

import pytest

from proxy.pipeline.recall.persons import stranger
from tests.pipeline.conftest import lacks

MARTA = "User's sister is Marta, who lives in Porto."
CHRISTMAS = "User spent Christmas in the mountains."


@pytest.mark.parametrize(
    ("question", "memories"),
    [
        ("What did my mother cook at Christmas?", (MARTA, CHRISTMAS)),
        ("When is my younger sister's birthday?", (CHRISTMAS,)),
        ("我爸爸喜欢喝什么酒？", ("用户喜欢喝茶。", "用户的妈妈喜欢喝白酒。")),
        ("Où habite ma tante ?", ("L'utilisateur habite à Lyon.",)),
        ("Who is my aunt and who is my cousin?", (MARTA,)),
    ],
)
def test_a_person_whom_no_memory_speaks_of_is_a_stranger(question: str, memories: tuple[str, ...]) -> None:
    assert lacks(stranger, question, memories)


@pytest.mark.parametrize(
    ("question", "memories"),
    [
        ("Where does my sister live?", (MARTA,)),
        ("Where does my brother live?", ("User is the youngest of four siblings.",)),
        ("Where does my mother live?", ("User's parents moved to Leeds.",)),
        ("我爱人在哪里工作?", ("用户的妻子是护士。",)),
        ("What is my girlfriend allergic to?", ("Soo-ah can't go near cats.", "User is dating Soo-ah.")),
        ("Does our cleaner work on Fridays?", ("Fatou comes on Fridays.",)),  # told of by what she does
        ("When is my dentist appointment?", ("User gets a crown on 3 May.",)),
        ("A friend is cooking for me: what do I say?", (CHRISTMAS,)),  # asks about nobody
        ("What do the landlord and the vet want?", (CHRISTMAS,)),  # whose they are is not said
        ("What is my niece's name?", (MARTA,)),  # may be told of as a daughter of Marta's
        ("What does my dog eat?", ("Miso eats chicken.",)),
        ("Does my cat see the same vet as my brother's dog?", (CHRISTMAS,)),
        ("What is my budget?", (CHRISTMAS,)),
        ("What should I cook for my mother?", (CHRISTMAS,)),  # what the user cooks may help
        ("Write a card for my mother.", (CHRISTMAS,)),
    ],
)
def test_who_is_known_or_may_be_told_of_otherwise_is_none(question: str, memories: tuple[str, ...]) -> None:
    assert not lacks(stranger, question, memories)


@pytest.mark.parametrize(
    ("question", "memories"),
    [
        ("Where does Orla's mother live?", ("User's sister has a daughter, Orla.",)),
        ("What is my aunt's name?", ("Mum's sister is called Rosa.",)),
        ("Quel est le prénom de ma tante ?", ("La sœur de maman s'appelle Odile.",)),
        ("What's my cousin's name?", ("Aunt Jo's son is called Rex.",)),
        ("我老婆叫什么名字?", ("用户和李娜去年领证了。",)),
        ("Where do my parents live?", ("User's mother moved to Cork.",)),
        ("What does the son of my brother collect?", ("User's nephew collects minerals.",)),
        ("我的领导是谁?", ("发版需要用户的上级何峥同意。",)),
    ],
)
def test_a_relation_that_leads_to_the_person_is_enough(question: str, memories: tuple[str, ...]) -> None:
    assert not lacks(stranger, question, memories)
