"""The text of messages: halves of emojis, wherever they come from."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.body import clean

UNITS = st.sampled_from(["a", "é", "水", "\ud83d", "\ude00", "😀", "\x00"])


@given(st.lists(UNITS, max_size=12).map("".join))
def test_halves_are_joined_or_replaced_as_a_decoder_would(text: str) -> None:
    assert clean(text) == text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
