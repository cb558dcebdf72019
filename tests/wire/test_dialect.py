"""What holds for both APIs: inserting a block and reading the conversation again shows the same one."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.authorship import fence
from proxy.wire.body import clean, dump, parse
from proxy.wire.dialect import CHAT, MAX_MODEL_CHARS, PLACEMENTS, RESPONSES

BLOCK = fence(["[semantic 2026-01-14 #ab12cd34] User's budget is 10,000"])
texts = st.text(alphabet=st.sampled_from("ab \n<>é我\ud83d"), max_size=6)
anything = st.none() | st.integers() | texts
placements = st.sampled_from(sorted(PLACEMENTS))


def contents(*kinds: str) -> st.SearchStrategy[Any]:
    known = st.builds(lambda kind, text: {"type": kind, "text": text}, st.sampled_from(kinds), texts)
    odd = anything | st.dictionaries(st.sampled_from(["type", "text", "image_url"]), anything)
    return texts | st.lists(known | odd, max_size=3) | anything


def messages(roles: list[Any], *kinds: str) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({"role": st.sampled_from(roles), "content": contents(*kinds)})


chat_entries = messages(["system", "developer", "user", "assistant", "tool", "function", "odd", None], "text")
items = messages(
    ["system", "developer", "user", "assistant", None], "input_text", "output_text"
) | st.sampled_from(
    [
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "42"},
        {"type": "reasoning", "summary": []},
        {"type": "item_reference", "id": "i"},
    ]
)
chat_bodies = st.fixed_dictionaries({"messages": st.lists(chat_entries | anything, max_size=6)})
responses_bodies = st.fixed_dictionaries(
    {"input": texts | st.lists(items | anything, max_size=6)}, optional={"instructions": texts | st.none()}
)


@given(st.tuples(st.just(CHAT), chat_bodies) | st.tuples(st.just(RESPONSES), responses_bodies), placements)
def test_a_conversation_with_the_block_in_it_reads_the_same(given, placement):
    dialect, body = given
    before = copy.deepcopy(body)
    with_block = dialect.insert(body, BLOCK, placement)
    assert dialect.messages(with_block) == dialect.messages(body)
    assert dialect.conversation_key(with_block) == dialect.conversation_key(body)
    assert body == before
    assert parse(dump(with_block)) == with_block
    for message in dialect.messages(with_block):
        message.text.encode()  # it can be stored


@pytest.mark.parametrize("dialect", [CHAT, RESPONSES])
def test_what_is_longer_than_any_models_name_is_none(dialect):
    longest = "m" * MAX_MODEL_CHARS  # it is stored with every exchange
    assert dialect.model({"model": longest}) == longest
    assert dialect.model({"model": longest + "m"}) == ""


UNITS = st.sampled_from(["a", "é", "水", "\ud83d", "\ude00", "😀", "\x00"])


@given(st.lists(UNITS, max_size=12).map("".join))
def test_halves_are_joined_or_replaced_as_a_decoder_would(text):
    assert clean(text) == text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
