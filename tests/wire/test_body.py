"""JSON bodies: every value survives, and nothing but InvalidRequest comes out of a bad one."""

import json
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
    ("raw", "written"),
    [
        (b'{"a":1e999}', b'{"a":Infinity}'),  # as it would be upstream
        (b'{"seed":123456789012345678901234567890}', b'{"seed":123456789012345678901234567890}'),
        (b'{"a":[NaN,null]}', b'{"a":[NaN,null]}'),
        (b'\xef\xbb\xbf{"a":1}', b'{"a":1}'),
        (b'{"x":' + b"[" * 1000 + b"]" * 1000 + b"}", b'{"x":' + b"[" * 1000 + b"]" * 1000 + b"}"),
    ],
    ids=range(5),
)
def test_odd_numbers_a_byte_order_mark_and_depth_are_written_as_they_were_read(raw, written):
    assert dump(parse(raw)) == written


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
