"""JSON bodies: every value survives, and nothing but InvalidRequest comes out of a bad one."""

import json
import math
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.domain.errors import InvalidRequest
from proxy.wire.body import dump, parse
from tests.support.examples import examples

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("\ud83d cut"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=examples(40))
@given(st.dictionaries(st.text(), json_values))
def test_every_value_that_python_can_spell_survives(body):
    raw = json.dumps(body).encode()
    assert json.dumps(json.loads(dump(parse(raw)))) == json.dumps(body)


@pytest.mark.parametrize(
    "literal", ["18446744073709551616", "123456789012345678901234567890", "9223372036854775807"]
)
def test_integers_beyond_64_bits_stay_integers(literal):
    raw = b'{"seed":' + literal.encode() + b"}"
    assert dump(parse(raw)) == raw


@pytest.mark.parametrize("literal", [b"NaN", b"Infinity", b"-Infinity"])
def test_what_is_not_finite_is_not_turned_into_null(literal):
    raw = b'{"a":[' + literal + b',null],"b":{"c":' + literal + b"}}"
    assert dump({**parse(raw)}) == raw


def test_a_number_too_big_for_a_float_is_infinite_as_it_would_be_upstream():
    assert math.isinf(parse(b'{"a":1e999}')["a"])
    assert dump(parse(b'{"a":1e999}')) == b'{"a":Infinity}'


def test_a_byte_order_mark_is_skipped():
    assert parse(b'\xef\xbb\xbf{"a":1}') == {"a": 1}


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "line 1, column 1"), (b"{", "line 1, column 2"), (b'{"a":1} x', "Extra data"),
        (b'{"a":"\xff"}', "not valid UTF-8 at byte 6"), (b'{"a":"\xed\xa0\xbd"}', "not valid UTF-8"),
        ('{"a":1}'.encode("utf-16"), "not valid UTF-8"), (b"[]", "must be a JSON object"),
        (b"null", "must be a JSON object"), (b"[" * 10_000_000, "nested too deeply"),
        (b'{"a":' + b"9" * 5_000 + b"}", "too many digits"),
    ],
)  # fmt: skip
def test_a_bad_body_is_refused_and_says_why(raw, says):
    with pytest.raises(InvalidRequest, match=says) as caught:
        parse(raw)
    assert caught.value.code == "invalid_json"
    assert caught.value.status == 400


def test_what_could_be_read_but_not_written_is_refused_too():
    deep: Any = "bottom"
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        dump({"a": deep})


def test_fifty_megabytes_are_read_and_written_in_a_moment():
    # An image that is sent inline. Of the processor's time: a busy machine takes longer, not more of it.
    raw = b'{"url":"data:image/png;base64,' + b"aZ09+/1234567890123" * 2_600_000 + b'"}'
    started = time.thread_time()
    assert dump(parse(raw)) == raw
    assert time.thread_time() - started < 3


def test_a_body_as_deep_as_can_be_read_can_be_written():
    raw = b'{"x":' + b"[" * 1000 + b"]" * 1000 + b"}"
    assert dump(parse(raw)) == raw
