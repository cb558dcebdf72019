"""Greetings in any wording, and what only begins like one."""

import pytest

from proxy.pipeline.decision.greeting import LONGEST, is_greeting
from proxy.wordlists import sections


@pytest.mark.parametrize(
    "text",
    [
        "hey there, hope you're well!",
        "Happy Thursday! How's everything going?",
        "thanks a ton for the help, have a wonderful evening 🌙",
        "🙏🙏",
        "大家早，祝各位工作顺利！",
        "¡Buenas! Espero que estés genial",
        "Guten Morgen, ich hoffe, du hattest ein gutes Wochenende",
        "Coucou, passe une belle journée",
    ],
)
def test_greetings_wishes_and_thanks_are_greetings(text: str) -> None:
    assert is_greeting(text)


@pytest.mark.parametrize(
    "text",
    [
        "mōrena! back again",
        "heita, morning",
        "¡Quiubo! ¿cómo amaneciste?",
        "Moin moin, na, alles frisch?",
        "na du, alles fit?",
        "嗨,下课了吗你",
        "早安午安晚安一起说啦~",
        "good evening, did you sleep well",
        "yo la forme ?",
        "désolé le téléphone sonnait, je suis de retour",
        "sorry, had to get the door. back now",
        "kenavo",
        "dumelang",
        "sawasdee krub",
        "صباح الخير",
        "Xin chào!",
        "pfiat di",
        "vanakkam, kaise hain",
        "evenin' campers",
        "wow that was fast",
        "q tal gente",
        "perdona, me llamaron",
        "pura vida mae",
        "venga, un abrazo",
        "guten moagn",
        "2000 dank",
        "du hast mir das leben gerettet",
        "ewig nix gesehen",
        "gude, wie?",
        "ça gaze ma poule",
        "toc toc y a quelqu'un",
        "bonne fête et surtout la santé",
        "总算下班了",
        "雷猴呀",
        "morning, how's tha keeping",
        "ey up, how's thee doing lad",
        "knackered but buzzin, cheers",
        "ah well, never mind then",
        "eee thank you pet",
        "night all",
        "gg wp",
        "haha get in",
        "ok thanks you my friend, have nice day",
        "thanks for putting up with me",
        "lekker bru, shot",
        "whit like the day",
        "fingers crossed for us",
        "jaja de una",
        "ay qué cosita jaja",
        "estoy muerta jaja",
        "bueno… gracias por escuchar",
        "y vos en qué andás",
        "qué ternura, gracias",
        "vamos con toda 💪",
        "hm ok. danke fürs zuhören",
        "drück mir die daumen",
        "ah ja, logisch",
        "hab so schiss",
        "mir is grad nicht nach reden",
        "merci vilmal, bisch en schatz",
        "hoi zäme",
        "wia geht's da heit",
        "tooor 🎉",
        "ben coudonc, c'est la vie hein",
        "génial, merci pour le coup de main !",
        "que du bonheur, bisous",
        "je suis crevée lol",
        "attache ta tuque lol",
        "哈哈哈绝了",
        "好美喔～",
        "唉，谢谢你听我说这些",
        "食咗飯未呀",
        "累瘫了，先睡了哈",
        "唔該晒",
        "謝謝老師喔",
    ],
)
def test_the_world_s_greetings_and_small_talk_ask_nothing_of_the_user(text: str) -> None:
    assert is_greeting(text)


@pytest.mark.parametrize(
    "text",
    [
        "hey there, hope you remember the boat",
        "hi, what's today?",
        "hey, how did it go with the boat",
        "morning! what's on today",
        "evening, anything for tomorrow",
        "hey, how's mum doing",
        "hi again, where were we",
        "back again: what's next for the shed",
        "¿qué hay hoy?",
        "buenas, ¿qué tal la entrevista?",
        "Und morgen?",
        "und jetzt?",
        "Opa?",
        "et moi ?",
        "là-bas ?",
        "今天上课吗",
        "早,猫吃了没",
        "你好,吃药了没",
        "coucou, comment va Léa",
        "na, wie war das spiel",
        "hope my parcel arrives",
        "Good restaurants?",
        "Thanks! And when is it?",
        "go on",
        "yes",
        "你好，预算是多少？",
        "快乐农场项目进展如何？",
        "Buen restaurante",
        "123",
        "qué tal Ana",
        "du hast mir das rezept gespart",
        "y a quelqu'un pour samedi",
        "perdona, me llamaron del taller",
        "总算下班了,几点的会",
        "how's Ana keeping",
        "how's the boiler keeping",
        "morning, how's the mare",
        "night all set for Friday?",
        "tired of rye, what flour was it",
        "knackered, when do I finish",
        "just saying, when is it",
        "thanks for the tip, which vet was it",
        "gracias por el dato, cuál era el taller",
        "danke für den tipp, wie hieß der laden",
        "merci pour l'info, c'était quand",
        "好累，明天几点的班",
        "谢谢，那几点",
        "estoy muerta de hambre, qué como",
        "hab schiss vor der prüfung, wann war die",
        "so ist das gericht",
    ],
)
def test_what_says_or_asks_more_is_not(text: str) -> None:
    assert not is_greeting(text)


def test_no_word_is_slow_however_often_it_is_said(benchmark_ms) -> None:
    """Twenty times 哈 kept the whole process busy for seconds: 哈哈 and 哈哈哈 are words, too."""
    for words in (*sections("greetings").values(), *sections("courtesies").values()):
        for word in words:
            for gap in ("", " "):
                said = ((word + gap) * LONGEST)[: LONGEST - 4] + "Tom"
                assert benchmark_ms(lambda said=said: is_greeting(said)) < 20, word
