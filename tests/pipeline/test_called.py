"""By which names a memory calls a role, in five languages; what only looks like a name."""

import pytest

from proxy.pipeline.recall.called import names_of
from proxy.pipeline.roles import roles_in
from proxy.terms import fold


def called(content: str, asked: str) -> set[str]:
    """Return the fullest form of every name that the content has for the roles asked about."""
    places = [place for role in roles_in(asked) for place in role.places(fold(content))]
    return {name.forms[0] for start, end in places for name in names_of(content, start, end)}


NAMED = [
    ("User's sister is called Marta.", "my sister", {"marta"}),
    ("User's younger sister, Marta, lives in Leeds.", "my sister", {"marta"}),
    ("Marta is the user's older sister.", "my sister", {"marta"}),
    ("Marta, User's sister, works in Leeds.", "my sister", {"marta"}),
    ("User's sisters are Marta and Ilse.", "my sisters", {"marta", "ilse"}),
    ("User has a dog, a whippet called Biscuit.", "the dog", {"biscuit"}),
    ("User is married to Saoirse.", "my wife", {"saoirse"}),
    ("User rents the flat from Mr. Abiola, the landlord.", "my landlord", {"abiola"}),
    ("User's boss at the theatre is Renske Vos.", "my boss", {"renske vos"}),
    ("User's dentist is Dr. Papadaki.", "my dentist", {"papadaki"}),
    ("User plays bass in a band called Gravel Pit.", "my band", {"gravel pit"}),
    ("User's cat Pickle hates Tuesdays.", "my cat", {"pickle"}),
    ("La hermana de la usuaria se llama Begoña.", "mi hermana", {"begona"}),
    ("El marido de la usuaria, Joaquín, es fontanero.", "mi marido", {"joaquin"}),
    ("La usuaria tiene una perra llamada Canela.", "la perra", {"canela"}),
    ("Die Frau des Nutzers heißt Henrike.", "meine Frau", {"henrike"}),
    ("Die Tochter des Nutzers, Jule, geht schwimmen.", "meine Tochter", {"jule"}),
    ("Die Chefin des Nutzers ist Frau Dr. Sommerlath.", "meine Chefin", {"sommerlath"}),
    ("La sœur de l'utilisatrice s'appelle Solenn.", "ma sœur", {"solenn"}),
    ("L'utilisatrice a un chat nommé Réglisse.", "mon chat", {"reglisse"}),
    ("用户的妹妹叫苏晴。", "我妹妹", {"苏晴"}),
    ("用户的哥哥是苏磊。", "我哥哥", {"苏磊"}),
    ("用户养了一只狗,名叫豆包。", "我家的狗", {"豆包"}),
    ("用户的爸爸方建国住在宝鸡。", "我爸", {"方建国"}),
    ("用户的牙医是贺医生。", "牙医", {"贺医生"}),
]


@pytest.mark.parametrize(("content", "asked", "names"), NAMED, ids=[content for content, _, _ in NAMED])
def test_a_role_is_called_by_its_name(content, asked, names):
    assert called(content, asked) == names


UNNAMED = [
    ("User's sister lives in Leeds.", "my sister"),
    ("User's sister is moving to Leeds.", "my sister"),
    ("User's sister met Dr. Papadaki.", "my sister"),
    ("User's cat hates Tuesdays.", "my cat"),
    ("La hermana de la usuaria vive en Teruel.", "mi hermana"),
    ("Die Tochter des Nutzers mag Erdbeeren.", "meine Tochter"),
    ("Die Tochter des Nutzers ist Lehrerin.", "meine Tochter"),
    ("用户的妹妹住在上海。", "我妹妹"),
    ("用户的女儿五岁。", "女儿"),
]


@pytest.mark.parametrize(("content", "asked"), UNNAMED, ids=[content for content, _ in UNNAMED])
def test_what_a_role_does_and_where_it_is_are_no_names(content, asked):
    assert called(content, asked) == set()


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("User's boss is Renske Vos.", "renske turns fifty on 2 september."),
        ("User's boss is Renske Vos.", "vos's birthday is in september."),
        ("用户的爸爸方建国住在宝鸡。", "建国在吃华法林。"),
    ],
)
def test_a_name_is_known_again_when_only_a_part_of_it_is_said(said, text):
    (place,) = [p for role in roles_in("my boss 我爸") for p in role.places(fold(said))]
    (name,) = names_of(said, *place)
    assert name.pattern.search(text)


def test_a_name_is_not_found_inside_a_longer_word():
    (name,) = names_of("User's aunt Ann", 7, 11)
    assert not name.pattern.search("the annual planning")
    assert name.pattern.search("ann's flat")


@pytest.mark.parametrize("asked", ["What time is it?", "Write a haiku about fog.", "现在几点?", ""])
def test_a_question_without_a_role_names_none(asked):
    assert roles_in(asked) == ()


@pytest.mark.parametrize(
    "asked", ["my mother-in-law's soup", "mi suegra", "meine Schwiegermutter", "ma belle-mère", "我婆婆"]
)
def test_one_role_has_a_word_in_each_language(asked):
    assert roles_in("my mother-in-law")[0] in roles_in(asked)
