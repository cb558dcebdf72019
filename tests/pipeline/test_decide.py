"""What is searched and what is not: short real statements, several languages."""

import pytest

from proxy.pipeline.decision.decide import decide
from tests.pipeline.conftest import turn

GREETINGS = [
    "Hi",
    "hello there!",
    "Hellooo",
    "good morning! how are you",
    "thanks a lot!",
    "Thank you so much 😊",
    "ok",
    "OK, got it, thanks.",
    "bye, have a nice day",
    "你好",
    "谢谢!",
    "早呀~",
    "好的,谢谢你",
    "晚安",
    "¡Hola!",
    "muchas gracias",
    "moin!",
    "Guten Morgen",
    "danke schön",
    "Bonjour",
    "merci beaucoup",
    "à bientôt",
    "obrigado",
    "bom dia",
    "grazie mille",
    "buongiorno",
    "ありがとうございます",
    "こんにちは",
    "안녕하세요",
    "감사합니다",
    "Спасибо!",
    "👋 hey",
]
PERSONAL = [
    "Hi, what's my budget?",
    "thanks! and when do we fly?",
    "Am I allergic to anything?",
    "What year did I move?",
    "What is the capital of my home country?",
    "Which database do we use?",
    "What's 17% of my budget?",
    "我对什么过敏?",
    "你好,我的预算是多少",
    "帮我看看我的航班是哪天",
    "¿Cuál es mi presupuesto?",
    "Wie heißt meine Tochter?",
    "Quel est mon budget ?",
    "Qual é o meu orçamento?",
    "Qual è il mio budget?",
    "私の娘の名前は?",
    "내 딸 이름이 뭐야?",
    "Translate my last note into German: hello",
    "When did I visit Rome?",
    "I'm vegan",
    "dinner ideas for us",
]
POINTING = [
    "What's the db password again?",
    "When does the little tabby go off to her new family?",
    "that one. what is it now?",
    "How much?",
    "continue",
    "yes",
    "go on",
    "提测应该找谁?",
    "谁的?",
    "Who approves changes?",
    "Run the release process and tell me the result",
    "What's the weather like?",
    "Fix this bug: login fails on Atlas",
    "Make this shorter, the usual way: 'a long text here'",
    "When was Orla born?",
    "What does the build badge mean?",
    "Write a haiku about autumn",
    "How tall is Jude?",
]
GENERAL = [
    "What is the capital of Australia?",
    "What's the boiling point of ethanol?",
    "Who invented the telephone?",
    "Who won the 1998 World Cup?",
    "When did the Berlin Wall fall?",
    "How many moons does Jupiter have?",
    "What does RFC stand for?",
    "What is a monad?",
    "whats a mutex",
    "How do black holes form?",
    "Why is the sky blue?",
    "How many legs does a spider have?",
    "HTTP 429 是什么意思?",
    "法国的首都是哪里?",
    "什么是光合作用?",
    "柏林墙是哪一年倒塌的?",
    "¿Cuál es la capital de Francia?",
    "¿Quién escribió Don Quijote?",
    "Was ist die Hauptstadt von Australien?",
    "Wer hat das Telefon erfunden?",
    "Quelle est la capitale de l'Italie ?",
    "Quem pintou a Mona Lisa?",
    "日本の首都はどこですか",
]
SELF_CONTAINED = [
    "Translate: good morning",
    "Translate 'good morning' into Italian",
    "What is 17% of 2340?",
    "12 * 7",
    'Make this shorter: "I wanted to ask whether you might have had a chance to look at my document."',
    'Fix the typos: "The otterr whent down too the watter"',
    'Convert this to YAML: {"name": "web"}',
    "把这句翻成英文:会议改到下午三点。",
    "2340的17%是多少?",
    "Convert 72 Fahrenheit to Celsius",
    "Übersetze: Ich habe Hunger",
]
LIVE = [
    "What's the temperature in Madison at this very minute?",
    "What time is it in Tokyo?",
    "北京今天天气怎么样?",
    "What's the euro at against the pound right now?",
    "run kubectl get nodes and paste me the output",
    "Wie ist das Wetter heute in Berlin?",
]


@pytest.mark.parametrize("text", GREETINGS)
def test_only_a_greeting_is_not_searched(text):
    assert decide(turn(text)).reason == "greeting"


@pytest.mark.parametrize("text", [*PERSONAL, *POINTING])
def test_what_could_be_about_the_user_is_searched(text):
    assert decide(turn(text)).search


@pytest.mark.parametrize("text", GENERAL)
def test_a_general_fact_is_not_searched(text):
    assert decide(turn(text)).reason == "general_fact"


@pytest.mark.parametrize("text", SELF_CONTAINED)
def test_a_message_that_holds_all_it_needs_is_not_searched(text):
    assert decide(turn(text)).reason == "self_contained"


@pytest.mark.parametrize("text", LIVE)
def test_what_only_a_tool_knows_is_not_searched(text):
    assert decide(turn(text)).reason == "tool_answers"


def test_a_forced_tool_call_is_not_searched():
    assert decide(turn("What's my budget?", tool_forced=True)).reason == "tool_forced"


@pytest.mark.parametrize("text", ["", "  \n"])
def test_no_words_are_not_searched(text):
    assert decide(turn(text)).reason == "no_query"


def test_ok_after_a_question_is_an_answer():
    assert decide(turn("flights?", "Shall I look for an aisle seat?", "ok")).search
    assert not decide(turn("flights?", "Here they are.", "ok")).search


def test_tell_me_is_not_about_me_and_my_is():
    assert decide(turn("Tell me what is the capital of Peru?")).reason == "general_fact"
    assert decide(turn("Tell me my budget")).search


def test_the_country_us_is_not_us():
    assert decide(turn("What is the capital of the US?")).reason == "general_fact"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Is it snowing in Oslo this very minute?", "tool_answers"),
        ("外面现在几度?", "tool_answers"),
        ("¿Qué hora es en Lima?", "tool_answers"),
        ("Wo steht der DAX gerade?", "tool_answers"),
        ("音速是多少?", "general_fact"),
        ("Wie viele Kantone hat die Schweiz?", "general_fact"),
        ("How many states are there in Mexico?", "general_fact"),
        ('Put this in the present tense: "She sold the boat."', "self_contained"),
        ("把这句话改得正式一点:明天不来了。", "self_contained"),
        ("hey, me again", "greeting"),
        ("haha, love it", "greeting"),
        ("jaja, me encanta", "greeting"),
        ("Schönen guten Abend!", "greeting"),
        ("haha, j'adore", "greeting"),
        ("哈哈,有意思", "greeting"),
        ("What's 48 divided by 6?", "self_contained"),
        ("Wie viel ist 48 geteilt durch 6?", "self_contained"),
        ("48除以6等于几?", "self_contained"),
        ("Translate into Spanish: Where is the station?", "self_contained"),
        ('Pon esta frase en pasado: "Ella canta bien."', "self_contained"),
        ("Count the words: one two three four", "self_contained"),
        ("What causes tides?", "general_fact"),
        ("When was the printing press invented?", "general_fact"),
        ("In what year did the Titanic sink?", "general_fact"),
        ("¿Cuál es el río más largo de Europa?", "general_fact"),
        ("Wie heißt der längste Fluss Afrikas?", "general_fact"),
        ("Qui a écrit Les Misérables ?", "general_fact"),
        ("Combien de côtés a un octogone ?", "general_fact"),
        ("钾的化学符号是什么?", "general_fact"),
        ("What's today's date?", "tool_answers"),
        ("¿A cuánto está el dólar hoy?", "tool_answers"),
        ("Wie warm ist es gerade in Hamburg?", "tool_answers"),
        ("Quel temps fait-il à Lyon en ce moment ?", "tool_answers"),
    ],
)
def test_what_memory_cannot_help_with_is_skipped_in_several_languages(text, reason):
    assert decide(turn(text)).reason == reason


@pytest.mark.parametrize(
    "text",
    [
        "Resume el pedido: cuántas cajas, cuánto cuesta y para cuándo.",
        "Fasse den Auftrag zusammen: wer liefert, wann und was kostet es?",
        "How many people are in our team in Mexico?",
        "Is it warm enough outside for the beans?",
        "Who was the last person to call?",
        "Who is president of the club?",
        "Which language is Copper's client written in?",
        "What day is it on that the choir meets?",
        "¿Cuál fue la ciudad más cara del viaje?",
        "Wer schrieb die Rechnung?",
        "Wie heißt der längste Fluss der Tour?",
        "Quelle a été la ville la plus chère du voyage ?",
        "这份报告是谁写的?",
        "OrderHub的全称是什么?",
        "Why did the importer fail?",
        "What's the difference between staging and production?",
    ],
)
def test_questions_after_a_colon_are_no_text_and_ours_is_not_the_worlds(text):
    assert decide(turn(text)).search


@pytest.mark.parametrize(
    "text",
    [
        # Of a person by a role, with or without an article.
        "¿Cómo se llama la profesora de piano?",
        "¿En qué año nació el abuelo?",
        "In welchem Jahr ist Papa in Rente gegangen?",
        "En quelle année mamie est née ?",
        "What does grandma's ring symbol stand for?",
        "妈妈是哪一年出生的？",
        "表妹哪年去世的？",
        # Of somebody by a name.
        "¿Qué significa el tatuaje de Marta?",
        "¿En qué año se mudó Carmen a Francia?",
        "In welchem Jahr zog Lena nach Deutschland?",
        "Wer hat Lena geschrieben?",
        "Comment Zoé a supporté les vaccins ?",
        "Wie waren die Impfungen von Ben?",
        "Who painted Tom's shed?",
        "How old is Emma Clark?",
        "When was Blue Door founded?",
        "小雨的名字是什么意思？",
        # Of a thing that is no subject of the world.
        "¿Quién pintó la cocina?",
        "¿Quién descubrió la fuga?",
        "Wer hat das Empfehlungsschreiben geschrieben?",
        "Was bedeutet der Aufkleber am Sicherungskasten?",
        "Können Hunde mit ins Ferienhaus?",
        "Qui a écrit la lettre de recommandation ?",
        "Que veut dire le mot de la maîtresse ?",
        "Comment fonctionne une chaudière au gîte ?",
        "Who invented the recipe?",
        "What does a yellow tag mean?",
        "合同里的第三条是什么意思？",
        "冰箱上的便条是什么意思？",
        "海报是谁画的？",
        "餐桌直径是多少？",
        # Of a firm, or of a place where something is.
        "公司哪一年成立的？",
        "In welchem Jahr wurde die Firma gegründet?",
        "上海的房子是哪一年建成的？",
        "去上海的高铁几点？",
        "¿En qué año fueron a Italia?",
        # Of one of a kind, and not of the kind.
        "猫怎么不吃东西？",
        "狗能进民宿吗？",
        "空调为什么不制冷？",
        "钢琴有多重？",
        "¿Cómo os conocisteis?",
        "Are cats allowed?",
    ],
)
def test_what_fits_a_cathedral_and_a_kitchen_is_searched_of_the_kitchen(text):
    assert decide(turn(text)).search


@pytest.mark.parametrize(
    "text",
    [
        "¿Quién escribió La casa de los espíritus?",
        "¿Quién inventó la imprenta?",
        "¿En qué año terminó la Segunda Guerra Mundial?",
        '¿Qué significa la palabra "efímero"?',
        "Wer malte die Mona Lisa?",
        "Wer hat Die Zauberflöte komponiert?",
        "In welchem Jahr sank die Titanic?",
        "Was bedeutet ASAP?",
        "Qui a écrit Le Petit Prince ?",
        "En quelle année Napoléon est-il mort ?",
        "Que veut dire éphémère ?",
        "Chi ha dipinto La Gioconda?",
        "What does carpe diem mean?",
        "Who discovered gravity?",
        "Who invented the radio?",
        "画蛇添足是什么意思？",
        "404是什么意思？",
        "飞机是谁发明的？",
        "新中国是哪一年成立的？",
        "地球的直径是多少？",
        "企鹅为什么不会飞？",
    ],
)
def test_what_fits_a_cathedral_and_a_kitchen_is_skipped_of_the_cathedral(text):
    assert decide(turn(text)).reason == "general_fact"


@pytest.mark.parametrize("paste", ["'a " * 5000, "{" * 20000, "hi " * 20000, "what do " * 5000, "1+" * 9000])
def test_a_hostile_paste_costs_no_time(paste, benchmark_ms):
    assert benchmark_ms(lambda: decide(turn(paste))) < 50
