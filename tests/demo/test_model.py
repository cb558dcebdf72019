"""The scripted model, asked over a socket by the OpenAI SDK: it must look like the real thing."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI

from proxy.demo.answers import MODEL
from proxy.text.block import fence

QUESTION = "How much can we spend on the islands?"
BLOCK = fence(["[semantic 2026-01-14 #ab12cd34] User's budget for the Hawaii trip is $10,000"])
REMEMBERS = "From what I remember: your budget for the Hawaii trip is $10,000."


@pytest.fixture
def client(model_url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=model_url, api_key="none", max_retries=0, timeout=10) as client:
        yield client


def asking(*, remembering: bool) -> Any:
    block = [{"role": "system", "content": BLOCK}] if remembering else []
    return [*block, {"role": "user", "content": QUESTION}]


def test_quotes_the_remembered_line_that_answers(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="any", messages=asking(remembering=True))
    assert answer.choices[0].message.content == REMEMBERS
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage
    assert answer.usage.total_tokens > answer.usage.completion_tokens > 5


def test_without_a_memory_it_says_that_it_is_scripted_and_does_not_know(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="any", messages=asking(remembering=False))
    text = answer.choices[0].message.content or ""
    assert "do not know" in text
    assert "scripted" in text
    assert answer.model == MODEL
    assert "scripted" in (answer.system_fingerprint or "")


def test_a_stream_has_small_chunks_that_join_to_the_answer(client: OpenAI) -> None:
    chunks = list(client.chat.completions.create(model="m", messages=asking(remembering=True), stream=True))
    texts = [c.choices[0].delta.content or "" for c in chunks]
    assert "".join(texts) == REMEMBERS
    assert len(texts) > 10
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks[-2:]] == [None, "stop"]
    assert len({c.id for c in chunks}) == 1


def test_usage_is_streamed_only_if_asked_for(client: OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="m",
            messages=asking(remembering=True),
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert chunks[-1].choices == []
    assert chunks[-1].usage
    assert chunks[-1].usage.completion_tokens > 5
    assert all(c.usage is None for c in chunks[:-1])


def test_an_answer_stops_at_the_token_limit(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="m", messages=asking(remembering=True), max_tokens=3)
    assert answer.choices[0].finish_reason == "length"
    assert REMEMBERS.startswith(answer.choices[0].message.content or "-")
    assert answer.usage
    assert answer.usage.completion_tokens == 3


def test_reads_text_parts_and_a_block_inside_the_user_message(client: OpenAI) -> None:
    parts: Any = [{"type": "text", "text": f"{BLOCK}\n\n{QUESTION}"}]
    answer = client.chat.completions.create(model="m", messages=[{"role": "user", "content": parts}])
    assert answer.choices[0].message.content == REMEMBERS


def test_a_block_is_not_taken_for_what_the_user_states(client: OpenAI) -> None:
    said = fence(["[semantic 2026-01-14 #ab] My cat is called Miso."]) + "\n\nMy dog is called Rex."
    answer = client.chat.completions.create(model="m", messages=[{"role": "user", "content": said}])
    assert answer.choices[0].message.content == "Noted: your dog is called Rex."


def test_lists_its_one_model(client: OpenAI) -> None:
    assert [m.id for m in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": [{"role": "user", "content": "x"}]}, "model"),
        ({"model": "m"}, "messages"),
        ({"model": "m", "messages": []}, "messages"),
        ({"model": "m", "messages": ["x"]}, "messages[0]"),
        ({"model": "m", "messages": [{"role": "bot", "content": "x"}]}, "messages[0].role"),
        ({"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": 0}, "max_tokens"),
        (
            {"model": "m", "messages": [{"role": "user", "content": "x"}], "memory_config": {}},
            "memory_config",
        ),
        (
            {"model": "m", "messages": [{"role": "user", "content": "x"}], "memory_context": {}},
            "memory_context",
        ),
    ],
)
def test_bad_input_is_refused_as_openai_refuses_it(client: OpenAI, body: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.post("/chat/completions", body=body, cast_to=object)
    assert refused.value.param == param
    assert refused.value.type == "invalid_request_error"


def test_an_unknown_url_is_a_404_in_the_error_shape(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        client.post("/completions", body={}, cast_to=object)
    assert refused.value.type == "invalid_request_error"


def test_plays_the_extraction_model_for_the_proxy_only(client: OpenAI) -> None:
    said: Any = [
        {"role": "user", "content": "<conversation>\nuser: I'm allergic to peanuts.\n</conversation>"}
    ]
    headers = {"User-Agent": "memory-proxy/0.1 (memory_extraction)"}
    extracted = client.chat.completions.create(model="m", messages=said, extra_headers=headers)
    assert '"User is allergic to peanuts"' in (extracted.choices[0].message.content or "")
    plain = client.chat.completions.create(model="m", messages=said)
    assert '"facts"' not in (plain.choices[0].message.content or "")


def test_refuses_a_memory_role_that_it_cannot_play(client: OpenAI) -> None:
    headers = {"User-Agent": "memory-proxy/0.1 (memory_rewrite)"}
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="m", messages=asking(remembering=False), extra_headers=headers)


# Without an encoding_format the SDK asks for base64 and decodes it.
@pytest.mark.parametrize("options", [{}, {"encoding_format": "float"}])
def test_embeddings_are_deterministic_unit_vectors(client: OpenAI, options: Any) -> None:
    def embed(text: str) -> list[float]:
        return client.embeddings.create(model="m", input=text, **options).data[0].embedding

    tea = embed("green tea")
    assert tea == embed("green tea")
    assert tea != embed("black coffee")
    assert sum(x * x for x in tea) == pytest.approx(1)
