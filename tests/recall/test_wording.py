"""What a model makes of a question: used where it is sound and in time, and never waited for in vain."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from proxy.domain.core import Message, Scope
from proxy.domain.errors import CompletionFailed
from proxy.domain.ports import CompletionRequest
from proxy.recall.query import query_of
from proxy.recall.rewrite import (
    ANSWER_TTL_S,
    MAX_QUESTION,
    OPEN_S,
    TRIP_AFTER,
    QueryRewriter,
    conversation,
    sound_note,
    sound_question,
    value_of,
)
from tests.recall.conftest import turn

EARLIER = "We plan our Portugal trip in May."
TALK = turn(EARLIER, "Lovely! Flights or hotel first?", "and how much?")
GOOD = '{"question": "How much is the hotel of our Portugal trip?"}'


@dataclass
class Model:
    """A completer that answers what the test wrote down, or hangs."""

    answer: str = GOOD
    hangs: bool = False
    failing: bool = False
    asked: list[CompletionRequest] = field(default_factory=list)

    async def complete(self, request: CompletionRequest) -> str:
        self.asked.append(request)
        if self.hangs:
            await asyncio.Event().wait()
        if self.failing:
            raise CompletionFailed("status 500")
        return self.answer


class Hours:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


async def improved(model: Model, of=TALK, *, wording: QueryRewriter | None = None, spent_s: float = 0.0):
    wording = wording or QueryRewriter(model, deadline_s=5)
    history = [EARLIER] if len(of.messages) > 1 else []
    async with asyncio.timeout(20):  # a test that hangs would tell nothing
        return await wording.improve(
            of, query_of(of.query, history[-1] if history else ""), history, spent_s=spent_s
        )


async def test_a_vague_question_is_searched_as_the_model_says_it_in_full():
    model = Model()
    query = await improved(model)
    assert query.text == "How much is the hotel of our Portugal trip?"
    assert {"hotel", "portugal"} <= set(query.terms)
    assert "Flights or hotel first?" in model.asked[0].user, "what the assistant said is part of it"
    assert model.asked[0].role == "memory_rewrite"


async def test_a_question_without_history_asks_no_model():
    model = Model()
    alone = turn("How much?")
    assert await improved(model, alone) == query_of("How much?")
    assert model.asked == []


@pytest.mark.parametrize("model", [Model(hangs=True), Model(failing=True), Model(answer="As an AI …")])
async def test_a_model_that_is_late_or_broken_or_confused_leaves_the_query_as_it_was(model):
    query = await improved(model, wording=QueryRewriter(model, deadline_s=0.02))
    assert query == query_of(TALK.query, EARLIER)


async def test_the_model_gets_a_share_of_the_time_that_is_left_and_none_where_none_is():
    model = Model(hangs=True)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await improved(model, wording=QueryRewriter(model, deadline_s=60.0), spent_s=59.9)
    assert loop.time() - began < 20, "0.6 of 0.1 s, not of the whole minute"
    await improved(model, wording=QueryRewriter(model, deadline_s=1.0), spent_s=1.5)
    assert len(model.asked) == 1


async def test_the_caller_s_own_deadline_is_not_swallowed():
    wording = QueryRewriter(Model(hangs=True), deadline_s=1000)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await improved(Model(), wording=wording)


async def test_the_same_question_after_the_same_conversation_is_asked_once():
    model, clock = Model(), Hours()
    wording = QueryRewriter(model, deadline_s=5, clock=clock)
    first = await improved(model, wording=wording)
    assert await improved(model, wording=wording, spent_s=100.0) == first, "even without any time left"
    assert len(model.asked) == 1
    clock.now += ANSWER_TTL_S + 1
    await improved(model, wording=wording)
    assert len(model.asked) == 2


async def test_another_user_or_another_conversation_shares_no_answer():
    model = Model()
    wording = QueryRewriter(model, deadline_s=5)
    await improved(model, wording=wording)
    await improved(model, replace(TALK, scope=Scope("default", "u2")), wording=wording)
    await improved(model, replace(TALK, scope=Scope("other", "u1")), wording=wording)
    await improved(model, turn(EARLIER, "Which hotel?", TALK.query), wording=wording)
    assert len(model.asked) == 4


async def test_an_unusable_answer_is_not_asked_for_again():
    model = Model(answer='{"question": ""}')
    wording = QueryRewriter(model, deadline_s=5)
    await improved(model, wording=wording)
    await improved(model, wording=wording)
    assert len(model.asked) == 1


async def test_a_model_that_keeps_failing_is_left_alone_for_a_while():
    model, clock = Model(failing=True), Hours()
    wording = QueryRewriter(model, deadline_s=5, clock=clock)
    for _ in range(TRIP_AFTER + 2):
        await improved(model, wording=wording)
    assert len(model.asked) == TRIP_AFTER
    clock.now += OPEN_S + 1
    model.failing = False
    assert (await improved(model, wording=wording)).text.startswith("How much is the hotel")


async def test_what_the_endpoint_is_shown_is_redacted():
    model = Model()
    wording = QueryRewriter(model, deadline_s=5, redact=lambda text: text.replace("Portugal", "[redacted]"))
    await improved(model, wording=wording)
    assert "Portugal" not in model.asked[0].user
    assert "[redacted]" in model.asked[0].user


async def test_a_long_message_is_shown_by_its_ends_and_cut_between_words():
    model = Model()
    long = "alpha " * 200 + "omega"
    await improved(model, turn(long, "Well.", "and how much?"))
    shown = model.asked[0].user
    assert "omega" in shown
    assert len(shown) < 1000
    assert " … alpha " in shown


@pytest.mark.parametrize(
    "told",
    [
        "The hotel costs $900 a night.",  # an answer
        "Is the hotel of our Portugal trip $900?",  # a number nobody said
        "Is the Portugal hotel the Ritz in Lisbon?",  # names nobody said
        "And how much for that one?",  # says no more than the user did
        "I'm sorry, could you clarify which service you mean?",
        "Which of these fine delicious recipes would Portugal cook?",  # mostly about something else
        "How much is the hotel\nof our Portugal trip?",
        "How much is the hotel of our Portugal trip? " * 8 + "?",
        "",
        None,
    ],
)
def test_what_is_no_question_about_the_conversation_is_refused(told):
    shown = f"user: {EARLIER}\nassistant: Lovely! Flights or hotel first?"
    assert sound_question(told, conversation=shown, question=TALK.query) is None


@pytest.mark.parametrize(
    ("said", "question", "told"),
    [
        ("user: We plan Portugal for $6,200.", "how much?", "How much of the $6,200 is for Portugal?"),
        ("user: 我们五月去葡萄牙旅行", "那是哪天?", "我们五月去葡萄牙旅行是哪天？"),
        (
            "user: My sister Ana moved to Porto",
            "since when?",
            "Since when has my sister Ana been in Porto?",
        ),
    ],
)
def test_a_question_of_the_conversation_s_own_words_is_accepted(said, question, told):
    assert len(told) <= MAX_QUESTION
    assert sound_question(told, conversation=said, question=question) == told


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ('{"question": "What is it?"}', "What is it?"),
        ('```json\n{"question": "What is it?"}\n```', "What is it?"),
        ('<think>{"question": "Wrong?"} hm</think>Sure: {"question": "What is it?"} Done.', "What is it?"),
        ("What is it?", "What is it?"),
        ('{"facts": []}', None),
        ('{"question": 7}', None),
        ('{"question": "What is', None),
        ("Sure!\nHere is the question.", None),
        ("<think>never ends", None),
    ],
)
def test_the_value_is_found_however_it_is_wrapped(answer, value):
    assert value_of(answer, "question") == value


def test_the_session_s_words_stand_in_where_the_request_has_no_history():
    assert conversation(turn("How much?"), [EARLIER]) == [Message("user", EARLIER)]
    assert [m.text for m in conversation(TALK, ["other"])] == [m.text for m in TALK.messages[:-1]]


async def test_an_imagined_answer_goes_beside_a_clear_question_and_only_where_it_is_asked_for():
    model = Model(answer='{"note": "User\'s flight to Porto leaves at 9."}')
    clear = turn("When does the plane to my sister's new town leave?")
    assert not (await improved(model, clear)).imagined
    query = await improved(model, clear, wording=QueryRewriter(model, deadline_s=5, hyde=True))
    assert query.imagined == "User's flight to Porto leaves at 9."
    assert query.text == clear.query
    assert not {"flight", "porto"} & set(query.terms), "made-up words are not looked up"


@pytest.mark.parametrize("told", [None, "", "What do you mean?", "x" * 401])
def test_what_is_no_statement_is_no_note(told):
    assert sound_note(told) is None
