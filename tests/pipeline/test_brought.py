"""What a message asks of the text that it brings, and what only looks so."""

import pytest

from proxy.pipeline.decision.brought import brings_its_own
from proxy.pipeline.decision.decide import decide
from proxy.pipeline.decision.sums import is_calculation
from tests.pipeline.conftest import turn


@pytest.mark.parametrize(
    "text",
    [
        # An order that points at what follows, whatever its verb is.
        "Put these in alphabetical order: viola, tuba, oboe, harp, cornet, bassoon",
        "Put this in capital letters: bring your own chair and a plate",
        "Jumble these up: stone, river, lamp",
        "Braille this: keep left",
        "uppercase this for me -> please do not feed the ducks",
        "make a table out of this: Mon 5, Tue 7, Wed 3",
        "把下面这句改成更客气的说法:你下午必须把报告给我。",
        "下面的按颜色归类：西瓜皮、辣椒、黄瓜",
        "这句有语病吗?通过这次活动,使大家明白了道理。",
        'Pásame esto a inglés: "Las piezas salen del horno mañana por la tarde."',
        "Baraja lo siguiente: as, rey, sota",
        "Schreib das hier rückwärts: Lagerregal",
        'klingt das unhöflich? "Wie bereits gesagt, war die Frist Montag."',
        "Mets ceci au passé : il part et il rit",
        # Only a heading, and the text behind it, whether or not a sign parts them.
        "menos brusco: No voy a repetirlo otra vez.",
        "etwas netter bitte: Das habe ich doch schon dreimal gesagt!",
        "plus poli stp : Rends-moi mes clés !",
        "in kleinbuchstaben - BITTE NICHT RAUCHEN",
        "complète : la pluie ___ sur le toit",
        "lücke ergänzen: der hund ___ im garten",
        "liste : lun riz, mar soupe, mer pâtes",
        'para un niño de 8 años: "La inflación erosiona el poder adquisitivo."',
        "en 12 mots : Nous serons fermés du 3 au 9 pour inventaire, merci de votre patience.",
        "supprime les doublons chat chien chat lapin",
        "sortiere alphabetisch birne apfel kirsche",
        "改成被动句 大风吹倒了那棵树。",
        # Letters counted, an error explained, a pattern written
        'cuántas eses hay en "susurros"',
        'wie viele t in "Bettwäsche"',
        "was bedeutet der fehler ValueError: invalid literal for int()",
        "write a regex for hex colours such as #ff8800",
        "dame un csv con nombre Eva, edad 41, ciudad Lima",
        # An order of a few words that names something done to texts.
        "sort ascending 44 3 19 -7 102 8",
        "Proofread: Its a shame that there dog ran of again.",
        "turn into passive voice: The mayor opened the new bridge.",
        'anagram of "listen"',
        "弄成表格:周一 跑步 周二 游泳",
        "语气太冲了,改改:这方案根本不行,重做!",
        "agrupa por color -> limón, tomate, plátano",
        'tres sinónimos de "cansado"',
        "in einem Satz: Der Rat hat gestern nach vier Stunden Debatte den Plan beschlossen.",
        "aus du mach sie: kannst du mir dein foto schicken?",
        "du plus petit au plus grand 44 3 19 -7 102",
        "3 synonymes de fatigué",
        "What does this error mean: IndexError: list index out of range",
        # What it is about stands first.
        "bonjour, je voudrais un café ----- what does that say",
        '"Je voudrais réserver une table pour deux" bedeutet?',
    ],
)
def test_what_is_done_to_the_text_that_follows_needs_no_memory(text: str) -> None:
    assert brings_its_own(text)
    assert not decide(turn(text)).search


@pytest.mark.parametrize(
    "text",
    [
        # What it means for the user, and what only the user's life can answer.
        "Does this clash with the trip: dinner on the 4th",
        "does this clash with my trip: dinner on the 4th",
        "Which of these can Mia eat: nuts, rice, soy",
        "Check this against the plan: 3 eggs, 2 apples",
        'Answer this email: "Can you come on Thursday?"',
        "Reply politely to this: 'When can we meet?'",
        "Put these in the calendar: dentist, vet",
        "Add these to the shopping list: milk, eggs",
        "Remember this: the locker code is blue",
        "Pick one of these for dad: tie, book",
        "Cook this: leeks, eggs",
        "回复下面这封:你周四能来吗",
        "这些里面哪个小宝能吃:花生、米饭",
        "按老规矩改下面这句:你好",
        "¿Esto choca con el viaje: cena el 4?",
        "Apunta esto: la cita es el lunes",
        'Schreib das an Jonas: "bin spät"',
        'Rewrite this for Marta: "hello"',
        "Passt das zum Termin: Montag 9 Uhr",
        "Réponds à ceci : « Tu viens ? »",
        # No text is worked on.
        "Fix this bug: login fails on Atlas",
        "what's wrong: pump (the left one) leaks",
        "Find: boots",
        "Order: two pizzas",
        "title: what was it?",
        "标题:上次定的啥",
        "the basics: when do we leave, what do we pack",
        '"Blue Door", what is that',
        'Is "Falcon" done?',
        "today: what's left",
        "把我那三次旅行按时间排一下",
        "Une amie veut qu'on sorte mardi soir. Je me lève à quelle heure le lendemain ?",
        # A heading of what is agreed; what leads to something of the user's
        "more milk: what kind",
        "más tarde: llama a Ana",
        "plus tard : rappelle Marc",
        "liste: was brauchen wir noch",
        "asunto: ¿cuál era?",
        "quita los duplicados de la lista de invitados",
        "trie par type les factures de Paul",
        'how many rooms in "Blue Door"',
        "regex für unsere bestellnummern",
        "regex for the order numbers",
        "write a table with prices, sizes, colours",
    ],
)
def test_what_depends_on_the_user_is_searched(text: str) -> None:
    assert decide(turn(text)).search


@pytest.mark.parametrize(
    "text",
    [
        "sqrt of 7225",
        "racine de 2809",
        "400 F a centígrados",
        "350 fahrenheit in grad",
        "how many days between 3 march 2024 and 19 june 2024",
        "tage zwischen 3.2.2024 und 17.5.2024",
        "qué es mayor, 3/7 o 0,42",
        "5/8 ou 0,61 lequel est plus grand",
        "186,40 durch 4 plus 10 prozent trinkgeld",
        "20:15 CET in new york time?",
        "14h à paris ça fait quelle heure à montréal",
        "15:30东京时间是北京时间几点",
        "0x1F in decimal",
        "C4 hexadecimal a binario",
        "0b1101 in dezimal",
        "512转八进制",
        "6 kilos de patatas a 2 euros el kilo, total",
        "960块打七五折是多少",
        "2025年3月1日到2025年4月9日差几天",
        "五个人AA 640块,每人多少",
        "5/6和0.8哪个大",
        "180 mg/dl in mmol/l umrechnen bitte",
        "pásame 180 mg/dl a mmol/l",
        "welche pace brauche ich für 42,195 km in 3:45",
        "a qué ritmo tengo que ir para 42,195 km en 3:45",
        "21,1 km en 1h52, ça donne quelle allure au km",
        "280 jours après le 14 mars 2025 ?",
    ],
)
def test_sums_conversions_and_spans_with_all_their_numbers_are_calculations(text: str) -> None:
    assert is_calculation(text)


@pytest.mark.parametrize(
    "text",
    [
        "how many days between the vet and the dentist",
        "how many weeks from 3 march to the due date",
        "10 mg or 20 mg, which is it",
        "hours until kickoff",
        "3 or 4 eggs",
        "the 17:42 in Leeds",
    ],
)
def test_a_span_that_the_user_has_to_complete_is_none(text: str) -> None:
    assert not is_calculation(text)


@pytest.mark.parametrize(
    "text",
    [
        "sort " + "1" * 590,
        "sort " + "1 " * 290 + "x1",
        "sort " + "1,.-" * 145 + "1",
        "put this" + " " * 580 + "x",
        "this -> " * 74,
        "put " * 148,
        "the text " * 65 + ": x",
        "这句？" * 198,
        "please " * 84,
        '"' * 590,
        "synonym" + "s" * 580,
        "1" * 590 + " days between",
        "3 march 2024 " * 45,
        "menos " * 98,
        "how many " * 65,
        "sortiere alphabetisch" + " a" * 280,
        "write a table with " + "a, " * 190,
        "error " * 98,
        "0x" + "f" * 580,
        "1 a a a 1 " * 58,
    ],
)
def test_no_text_keeps_the_rules_busy(text: str, benchmark_ms) -> None:
    """Digits that each could begin a number, a row of ones: minutes, before what counts was atomic."""
    assert benchmark_ms(lambda: brings_its_own(text)) < 60
    assert benchmark_ms(lambda: is_calculation(text)) < 60
