"""The scripted model over a socket, called by the OpenAI SDK."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI

from proxy.demo.model import MODEL
from proxy.text.markup import fence

QUESTION = "How much can we spend on the islands?"
BLOCK = fence(
    [
        "[session 2026-01-14] user: I like tea. — assistant: Noted.",
        "[semantic 2026-01-14 #ab12cd34] My budget for the Hawaii trip is $10,000.",
        "[semantic 2026-01-14 #ef56ab78] I'm learning the cello.",
    ]
)
REMEMBERS = 'From memory: "My budget for the Hawaii trip is $10,000."'
ASKING: Any = [{"role": "system", "content": BLOCK}, {"role": "user", "content": QUESTION}]
SAYING: Any = {"model": "m", "messages": [{"role": "user", "content": "x"}]}


@pytest.fixture
def client(model_url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=model_url, api_key="none", max_retries=0, timeout=10) as client:
        yield client


def said(client: OpenAI, content: Any, **options: Any) -> str:
    messages: Any = [{"role": "user", "content": content}]
    answer = client.chat.completions.create(model="m", messages=messages, **options)
    return answer.choices[0].message.content or ""


def test_a_question_is_answered_with_the_first_memory(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="any", messages=ASKING)
    assert answer.choices[0].message.content == REMEMBERS
    assert (answer.model, answer.choices[0].finish_reason) == (MODEL, "stop")
    assert answer.usage
    assert answer.usage.total_tokens > answer.usage.completion_tokens > 5


def test_without_a_memory_it_does_not_know(client: OpenAI) -> None:
    assert "memory" in said(client, QUESTION)
    assert "Hawaii" not in said(client, QUESTION)


def test_it_greets_and_says_that_it_is_scripted(client: OpenAI) -> None:
    assert "script" in said(client, "Hi")


def test_a_block_inside_the_user_message_is_memory_and_no_statement(client: OpenAI) -> None:
    assert said(client, [{"type": "text", "text": f"{BLOCK}\n\n{QUESTION}"}]) == REMEMBERS
    assert "script" in said(client, f"{BLOCK}\n\nHi")


def test_a_stream_has_small_chunks_that_join_to_the_answer(client: OpenAI) -> None:
    chunks = list(client.chat.completions.create(model="m", messages=ASKING, stream=True))
    texts = [c.choices[0].delta.content or "" for c in chunks]
    assert "".join(texts) == REMEMBERS
    assert len(texts) > 8
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks[-2:]] == [None, "stop"]
    assert len({c.id for c in chunks}) == 1


def test_usage_is_streamed_only_on_request(client: OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="m", messages=ASKING, stream=True, stream_options={"include_usage": True}
        )
    )
    assert chunks[-1].choices == []
    assert chunks[-1].usage
    assert all(c.usage is None for c in chunks[:-1])


def test_an_answer_stops_at_the_token_limit(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="m", messages=ASKING, max_tokens=3)
    assert answer.choices[0].finish_reason == "length"
    assert REMEMBERS.startswith(answer.choices[0].message.content or "-")
    assert answer.usage
    assert answer.usage.completion_tokens == 3


def test_it_lists_its_one_model(client: OpenAI) -> None:
    assert [m.id for m in client.models.list()] == [MODEL]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": SAYING["messages"]}, "model"),
        ({"model": "m"}, "messages"),
        ({"model": "m", "messages": ["x"]}, "messages[0]"),
        ({"model": "m", "messages": [{"role": "bot", "content": "x"}]}, "messages[0].role"),
        (SAYING | {"max_tokens": 0}, "max_tokens"),
        (SAYING | {"memory_config": {}}, "memory_config"),
    ],
)
def test_bad_requests_are_refused_in_openais_error_shape(
    client: OpenAI, body: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.post("/chat/completions", body=body, cast_to=object)
    assert (refused.value.param, refused.value.type) == (param, "invalid_request_error")


def test_an_unknown_url_is_a_404_in_openais_error_shape(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        client.post("/completions", body={}, cast_to=object)
    assert refused.value.type == "invalid_request_error"


def test_it_extracts_only_for_the_proxy_and_refuses_other_memory_roles(client: OpenAI) -> None:
    def role(name: str) -> dict[str, str]:
        return {"User-Agent": f"memory-proxy/0.1 ({name})"}

    assert said(client, "<conversation>\n\n</conversation>", extra_headers=role("memory_extraction")) == (
        '{"facts":[]}'
    )
    assert "facts" not in said(client, "I like tea.")
    with pytest.raises(openai.BadRequestError):
        said(client, "x", extra_headers=role("memory_rewrite"))
