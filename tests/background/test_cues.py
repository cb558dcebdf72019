import pytest

from proxy.background.extraction.cues import is_explicit, is_personal, statements

PERSONAL = [
    "I'm vegan",
    "My budget is $10k",
    "I live in Seattle.",
    "we decided to use Postgres",
    "Hi, I'm Sam",
    "Call me Sam",
    "I don't eat meat but I do eat fish",
    "My daughter Emma turns 8 on Friday, any gift ideas?",
    "I'm planning a trip to Japan in May, where should I stay?",
    "我住在杭州",
    "我叫周屿,在栖木科技做后端",
    "Ich wohne in Berlin und arbeite als Ärztin.",
    "Soy vegetariano",
    "J'habite à Lyon",
    "Prefiero el té",
    "Moro em Lisboa e meu cachorro se chama Rex",
    "私は東京に住んでいます。",
    "저는 채식주의자예요",
    "Меня зовут Аня",
]
NOT_PERSONAL = [
    "What's my budget?",
    "Can you help me write an email to my boss?",
    "Where do I live?",
    "我该吃什么?",
    "我的预算是多少?",
    "Wo wohne ich?",
    "¿Cuál es mi presupuesto?",
    "I need help with my code",
    "I'm sorry to hear that.",
    "I see, thanks",
    "Thanks!",
    "What is the capital of France?",
    "Write a poem about how I love my dog",
    "Imagine I lived in Paris. I'd paint all day.",
    "假如我中了五百万,我就辞职",
    "I'm on the train and the battery is at 4%",
    "```\nI live in code\n```",
    'He says: "I live alone on the mudflat and I eat anything that wriggles."',
    "> I live in a quoted mail",
]


@pytest.mark.parametrize("text", PERSONAL)
def test_a_statement_about_oneself_is_personal(text: str) -> None:
    assert is_personal(text)


@pytest.mark.parametrize("text", NOT_PERSONAL)
def test_questions_requests_and_other_voices_are_not_personal(text: str) -> None:
    assert not is_personal(text)


@pytest.mark.parametrize(
    "text",
    [
        "Remember that my wife is called Ana",
        "Please note that the office is closed on Fridays",
        "ok, don't forget I'm allergic to nuts",
        "From now on answer in French",
        "Keep in mind that we ship on Tuesdays",
        "请记住我对花生过敏",
        "以后用中文回答",
        "Recuerda que soy celíaca",
        "Merk dir, dass ich Vegetarier bin",
        "N'oublie pas que je suis allergique",
        "覚えておいて、私は左利きです",
    ],
)
def test_an_ask_to_remember_is_explicit(text: str) -> None:
    assert is_explicit(text)


@pytest.mark.parametrize(
    "text",
    [
        "Do you remember my name?",
        "I remember when we had dial-up",
        "Remind me, what's the difference between SFTP and FTPS?",
        "What did I tell you?",
        "I can't remember the word",
        "你还记得吗?",
        "Remember when we talked about Rome?",
    ],
)
def test_talk_about_memory_is_not_explicit(text: str) -> None:
    assert not is_explicit(text)


def test_of_a_question_only_the_stated_clause_is_kept() -> None:
    text = "I'm planning a trip to Japan in May, where should I stay?"
    assert statements(text) == ["I'm planning a trip to Japan in May"]


def test_a_huge_paste_is_read_in_bounded_time_and_its_end_counts() -> None:
    assert is_personal("lorem ipsum " * 100_000 + "\nI live in Ghent.")
