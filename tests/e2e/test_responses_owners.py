"""Stored responses and conversations belong to those who made them."""

from typing import Any

import pytest
from openai import APIStatusError, AsyncOpenAI, NotFoundError

from tests.e2e.chat_only import ChatOnly
from tests.e2e.conftest import context

ALICE: Any = context("alice")


async def absent(client: AsyncOpenAI, response_id: str) -> None:
    """Check every way in which a response could be seen or changed."""
    of = client.responses
    for look in (of.retrieve, of.delete, of.cancel, of.input_items.list):
        with pytest.raises(NotFoundError):
            await look(response_id)
    with pytest.raises(APIStatusError) as refused:
        await of.create(model="m", input="And?", previous_response_id=response_id)
    assert refused.value.code == "previous_response_not_found"


async def test_another_users_or_keys_response_is_absent(house):
    async with (
        house(ChatOnly()) as h,
        h.client(user="alice") as alice,
        h.client(user="bob") as bob,
        h.client("sk-1") as one,
        h.client("sk-2") as other,
    ):
        made = await alice.responses.create(model="m", input="Psst")
        await absent(bob, made.id)
        assert (await alice.responses.retrieve(made.id)).id == made.id
        for extra in ({}, ALICE):
            made = await one.responses.create(model="m", input="Psst", extra_body=extra)
            await absent(other, made.id)


async def test_a_client_that_names_its_user_only_when_it_creates_finds_the_response(house):
    async with house(ChatOnly()) as h, h.client() as client, h.client(user="bob") as bob:
        made = await client.responses.create(model="m", input="Psst", extra_body=ALICE)
        assert (await client.responses.retrieve(made.id)).id == made.id
        assert (await client.responses.input_items.list(made.id)).data
        later = await client.responses.create(model="m", input="And?", previous_response_id=made.id)
        assert len(h.model.last_messages) == 3
        await absent(bob, made.id)
        await client.responses.delete(made.id)
        await absent(client, made.id)
        assert (await client.responses.retrieve(later.id)).id == later.id


async def test_a_chain_may_begin_without_a_user_and_continue_for_one(house):
    async with house(ChatOnly()) as h, h.client() as client:
        last = None
        for text, extra in (("one", {}), ("two", {}), ("three", ALICE), ("four", ALICE)):
            made = await client.responses.create(
                model="m", input=text, previous_response_id=last, extra_body=extra
            )
            last = made.id
        said = [m["content"] for m in h.model.last_messages if m["role"] == "user"]
        assert said == ["one", "two", "three", "four"]


async def test_without_user_and_key_the_id_is_the_proof(house):
    async with house(ChatOnly()) as h, h.client() as keyed:
        made = (await h.post("/responses", {"model": "m", "input": "Hi"})).json()
        assert await h.get(f"/responses/{made['id']}") == made
        await absent(keyed, made["id"])
