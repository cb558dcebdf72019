"""The scripted model's Responses API, asked over a socket by the OpenAI SDK."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI

from proxy.text.block import fence

QUESTION = "How much can we spend on the islands?"
BLOCK = fence(["[semantic 2026-01-14 #ab12cd34] User's budget for the Hawaii trip is $10,000"])
REMEMBERS = "From what I remember: your budget for the Hawaii trip is $10,000."
REMEMBERING: Any = [{"role": "system", "content": BLOCK}, {"role": "user", "content": QUESTION}]


@pytest.fixture
def client(model_url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=model_url, api_key="none", max_retries=0, timeout=10) as client:
        yield client


def test_answers_a_list_of_items_and_a_string(client: OpenAI) -> None:
    assert client.responses.create(model="m", input=REMEMBERING).output_text == REMEMBERS
    assert "do not know" in client.responses.create(model="m", input=QUESTION).output_text


def test_the_stream_has_openais_order_and_numbers_without_gaps(client: OpenAI) -> None:
    events: list[Any] = list(client.responses.create(model="m", input=REMEMBERING, stream=True))
    kinds = [e.type.removeprefix("response.") for e in events]
    deltas = kinds.count("output_text.delta")
    assert deltas > 10
    assert kinds == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        *["output_text.delta"] * deltas,
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == REMEMBERS
    assert all(e.delta for e in events if e.type == "response.output_text.delta")


def test_the_final_object_repeats_the_items_that_were_streamed(client: OpenAI) -> None:
    events: list[Any] = list(
        client.responses.create(
            model="m", input=REMEMBERING, stream=True, metadata={"a": "b"}, temperature=0.5
        )
    )
    first, last = events[0].response, events[-1].response
    done = [e.item for e in events if e.type == "response.output_item.done"]
    assert last.output == done
    assert first.id == last.id
    assert first.created_at == last.created_at
    assert first.output == []
    assert (last.metadata, last.temperature, last.status) == ({"a": "b"}, 0.5, "completed")
    assert last.usage.input_tokens_details.cached_tokens == 0


def test_the_token_limit_makes_it_incomplete(client: OpenAI) -> None:
    response = client.responses.create(model="m", input=REMEMBERING, max_output_tokens=2)
    assert response.status == "incomplete"
    assert response.incomplete_details
    assert response.incomplete_details.reason == "max_output_tokens"


def test_a_chain_remembers_what_was_said_in_it(client: OpenAI) -> None:
    first = client.responses.create(model="m", input="My dog is called Rex.")
    second = client.responses.create(model="m", input="What is my pet's name?", previous_response_id=first.id)
    assert second.output_text == "Earlier in this conversation you said: your dog is called Rex."
    assert client.responses.retrieve(second.id).output_text == second.output_text


def test_a_response_that_is_deleted_or_was_not_stored_is_gone(client: OpenAI) -> None:
    stored = client.responses.create(model="m", input="hi")
    client.responses.delete(stored.id)
    unstored = client.responses.create(model="m", input="hi", store=False)
    for gone in (stored.id, unstored.id):
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(gone)
        with pytest.raises(openai.BadRequestError) as refused:
            client.responses.create(model="m", input="hi", previous_response_id=gone)
        assert refused.value.code == "previous_response_not_found"


def test_unknown_fields_and_missing_input_are_refused(client: OpenAI) -> None:
    for body, param in (
        ({"model": "m", "input": "x", "memory_config": {}}, "memory_config"),
        ({"model": "m"}, "input"),
        ({"model": "m", "input": [{"role": "bot", "content": "x"}]}, "input[0].role"),
    ):
        with pytest.raises(openai.BadRequestError) as refused:
            client.post("/responses", body=body, cast_to=object)
        assert refused.value.param == param
