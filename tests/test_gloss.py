"""Other languages in English words."""

from pathlib import Path

import pytest

import proxy.gloss
from proxy.gloss import gloss, language, question_gloss


@pytest.mark.parametrize(
    "text",
    [
        "What's my budget for the trip?",
        "User no longer eats fish: since 1 March 2026 she is fully vegetarian.",
        "Convert 72 degrees Fahrenheit to Celsius.",
        "Atlas terraform plan",
        "",
        "def f(x): return x",
    ],
)
def test_english_and_code_stay_as_they_are(text: str) -> None:
    assert gloss(text).text == text
    assert gloss(text).known == 1.0


@pytest.mark.parametrize("text", ["Какой у меня бюджет?", "私の予算は一万円です", "제 예산은 얼마인가요"])
def test_languages_without_a_lexicon_stay_as_they_are(text: str) -> None:
    assert gloss(text).text == text


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("¿Cuándo tengo que pagar el alquiler?", "es"),
        ("Wann muss ich die Miete bezahlen?", "de"),
        ("Quand est-ce que je dois payer le loyer ?", "fr"),
        ("When do I have to pay the rent?", None),
        ("Marco Tomasini", None),
    ],
)
def test_the_language_is_told_by_its_common_words(text: str, name: str | None) -> None:
    assert language(text) == name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("用户对青霉素过敏。", {"penicillin", "allergy"}),
        ("¿Cuándo tengo que pagar el alquiler?", {"when", "pay", "rent"}),
        ("Wann muss ich die Miete bezahlen?", {"when", "must", "rent", "pay"}),
        ("Quand est-ce que je dois payer le loyer ?", {"when", "pay", "rent"}),
    ],
)
def test_a_gloss_says_the_words_in_english(text: str, words: set[str]) -> None:
    assert words <= set(gloss(text).text.split())


def test_a_phrase_with_an_apostrophe_is_known() -> None:
    assert gloss("D’habitude je dors mal, et toi aujourd'hui ?").text.split()[0] == "usually"
    assert "today" in gloss("Je pars aujourd'hui avec ma sœur").text


@pytest.mark.parametrize("name", proxy.gloss.SPACED)
def test_every_word_of_the_lexicon_can_be_met(name: str) -> None:
    known = proxy.gloss._lexicon().words[name]
    spelt = {word: [proxy.gloss._bare(t) for t in proxy.gloss._TOKEN.findall(word)] for word in known}
    dead = [
        word
        for word, tokens in spelt.items()
        if " ".join(tokens) != word or len(tokens) > proxy.gloss._PHRASE_WORDS
    ]
    assert not dead


def test_a_longer_chinese_word_wins_over_the_characters_in_it() -> None:
    assert "driver's licence" in gloss("我的驾照").text
    assert "car" not in gloss("我的驾照").text.split()


def test_a_german_compound_is_taken_apart() -> None:
    assert {"move", "house", "date"} <= set(gloss("Wann ist der Umzugstermin?").text.split())


def test_a_form_of_a_known_word_is_known() -> None:
    assert "live" in gloss("Wo wohnten wir damals mit den Kindern?").text


def test_names_stay_and_unknown_chinese_is_left_out_and_counted() -> None:
    glossed = gloss("OrderHub 的窗口是 20:00")
    assert {"OrderHub", "20:00"} <= set(glossed.text.split())
    assert glossed.known == 1.0
    rare = gloss("魑魅魍魉")
    assert rare.text == ""
    assert rare.known == 0.0


def test_a_chinese_name_in_an_english_text_is_a_small_share_of_it() -> None:
    assert 0.5 < gloss("My boss is 魑魍 from Shanghai").known < 1.0


def test_every_line_of_the_lexicon_has_a_meaning_and_four_columns() -> None:
    files = sorted((Path(proxy.gloss.__file__).parent / "lexicon").glob("*.txt"))
    lines = [line for file in files for line in file.read_text("utf-8").splitlines()]
    assert len(lines) > 1000
    for line in lines:
        meaning, *cells = line.split("|")
        assert meaning.strip(), line
        assert len(cells) == 4, line
        assert any(cells), line


def test_what_a_question_says_in_english_is_worked_out_once_for_all_rules() -> None:
    asked = "我的预算是多少?"
    assert question_gloss(asked) == gloss(asked)
    assert question_gloss(asked) is question_gloss(asked)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Ich habe mich für den Kurs angemeldet.", {"sign", "up"}),
        ("Der Nutzer hat Blut gespendet.", {"blood", "donate"}),
        ("Wer hat die Kinder um drei Uhr abgeholt?", {"pick", "up"}),
    ],
)
def test_a_german_participle_means_its_verb(text: str, words: set[str]) -> None:
    assert words <= set(gloss(text).text.split())


@pytest.mark.parametrize("word", ["gesund", "Gemüse", "zufällig"])
def test_a_german_word_that_merely_begins_like_a_participle_is_none(word: str) -> None:
    said = gloss(f"Der Nutzer ist nicht {word} und der Termin ist heute.").text.split()
    assert not {"due", "must"} & set(said)


def test_a_german_compound_of_three_parts_is_taken_apart() -> None:
    said = gloss("Das steht in meinem Zahnarztterminkalender.").text.split()
    assert {"dentist", "date", "calendar"} <= set(said)


@pytest.mark.parametrize("name", ["Wiessee", "Dortheim"])
def test_a_name_that_begins_like_a_word_of_grammar_is_no_form_of_it(name: str) -> None:
    said = gloss(f"Meine Schwester wohnt jetzt in {name} und der Bruder nicht.").text
    assert f" {name} " in said, said


def test_what_grammar_swallows_is_understood() -> None:
    assert "for" in gloss("Das Geschenk fürs Kind ist nicht da.").text.split()


def test_the_prefix_of_a_german_verb_says_nothing_of_its_own() -> None:
    said = gloss("Ich will das Rezept mit der Schwester nachkochen.").text.split()
    assert said.count("cook") == 1
    assert "after" not in said
    assert "to" not in said


def test_a_french_ligature_is_two_letters() -> None:
    assert "sister" in gloss("Ma sœur arrive quand ?").text.split()


@pytest.mark.parametrize(("text", "who"), [("¿Con quién vivo?", "I"), ("¿Cuándo viajamos?", "we")])
def test_a_spanish_verb_says_who_speaks(text: str, who: str) -> None:
    assert who in gloss(text).text.split()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("¿Qué juguete tiene el niño en la mesa?", "play"),
        ("¿Qué juguete tiene el niño en la mesa?", "month"),
        ("¿Cuándo es la venta del coche de mi hermano?", "come"),
        ("¿Dónde está el fuego en la cocina?", "was"),
        ("¿Quién es el hermano mayor de mi padre?", "May"),
    ],
)
def test_a_spanish_word_that_merely_begins_like_another_is_none_of_its_forms(text: str, word: str) -> None:
    assert word not in gloss(text).text.split()


def test_what_somebody_else_bought_is_not_what_i_buy() -> None:
    assert "I" in gloss("Siempre compro el pan en la tienda.").text.split()
    said = gloss("Mi hermana compró el pan en la tienda.").text.split()
    assert "buy" in said
    assert "I" not in said


def test_a_spanish_word_has_its_plural_and_its_persons() -> None:
    said = gloss("Las camas y los meses de mi hermana comen mucho en la tienda").text.split()
    assert {"bed", "month", "eat"} <= set(said)


def test_a_spanish_verb_keeps_its_meaning_with_a_pronoun_put_to_it() -> None:
    assert {"open", "me"} <= set(gloss("¿Quién puede abrirme la puerta de casa?").text.split())
    assert {"go", "up"} <= set(gloss("¿Puedo subirlo a casa de mi hermana?").text.split())


def test_chinese_is_cut_so_that_long_words_stay_whole() -> None:
    """The longest from the left would read 是什么|时候 and 我妈|妈."""
    assert gloss("我妈妈的生日是什么时候").text == "I mother birthday is when"
