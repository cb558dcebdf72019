"""Server-sent events: the standard's rules, and the same events for every split of the bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.answers import Decoder, ServerEvent, decode_all


def events(*chunks: bytes) -> list[tuple[str, str]]:
    return [(event.name, event.data) for event in decode_all(chunks)]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\n", [("message", "a")]),
        (b"data: a\r\n\r\n", [("message", "a")]),
        (b"data: a\r\r", [("message", "a")]),
        (b"data: a\r\n\ndata: b\r\r\n", [("message", "a"), ("message", "b")]),
        (b"data: a\ndata: b\ndata\n\n", [("message", "a\nb\n")]),
        (b"event: ping\ndata:x\n\ndata:y\n\n", [("ping", "x"), ("message", "y")]),
        (b"event: ping\n\ndata: y\n\n", [("message", "y")]),
        (b"event: a\nevent\ndata: y\n\n", [("message", "y")]),
        (b": comment\n:\ndata: a\n: more\n\n", [("message", "a")]),
        (b"\xef\xbb\xbfdata: a\n\n", [("message", "a")]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []),
        (b"\n\xef\xbb\xbfdata: a\n\n", []),
        (b"data:  two spaces\n\n", [("message", " two spaces")]),
        (b"data:\n\n", [("message", "")]),
        (b"data: a:b\nid: 1\nretry: 2\nother: 3\n\n", [("message", "a:b")]),
        (b" data: a\n\n", []),
        (b"data: cut", []),
        (b"data: a\n\ndata: cut\n", [("message", "a")]),
        (b"data: \xff\xe6\x88\n\n", [("message", "\ufffd\ufffd")]),
        ("data: a\u2028b\x0bc\x85d\n\n".encode(), [("message", "a\u2028b\x0bc\x85d")]),
        (b"", []),
    ],
)
def test_the_rules_of_the_standard(stream: bytes, expected: list[tuple[str, str]]) -> None:
    assert events(stream) == expected
    assert events(*(stream[i : i + 1] for i in range(len(stream)))) == expected


lines = st.lists(
    st.sampled_from(
        [
            "data: a",
            "data:é 我 👩",
            "data",
            "event: x",
            ": c",
            "",
            "id: 1",
            "\ufeffdata: b",
            "junk",
            "data: {}",
        ]
    ).map(str.encode)
    | st.binary(max_size=6)
)
ends = st.sampled_from([b"\n", b"\r", b"\r\n"])
streams = st.lists(st.tuples(lines, ends)).map(lambda parts: b"".join(e.join([*ls, b""]) for ls, e in parts))


@given(streams, st.data())
def test_every_split_of_the_bytes_gives_the_same_events(stream: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert events(*chunks) == events(stream)
    assert events(*(stream[i : i + 1] for i in range(len(stream)))) == events(stream)


@given(st.lists(st.text().map(lambda text: text.replace("\r", ""))), ends)
def test_what_is_encoded_by_the_rules_is_decoded(texts: list[str], end: bytes) -> None:
    stream = b"".join(
        b"".join(b"data: " + line.encode() + end for line in text.split("\n")) + end for text in texts
    )
    assert [data for _, data in events(stream)] == texts


def test_an_event_comes_out_with_the_bytes_that_complete_it() -> None:
    decoder = Decoder()
    assert decoder.feed(b"data: a\n") == []
    assert decoder.feed(b"\ndata: b") == [ServerEvent("message", "a")]
    assert decoder.feed(b"\r\r") == [ServerEvent("message", "b")]
    assert decoder.feed(b"\n") == []
    assert decoder.feed(b"data: c\n\n") == [ServerEvent("message", "c")]


def test_a_long_line_in_small_pieces_takes_linear_time() -> None:
    # 2 MB in pieces of 8 bytes: quadratic copying would move 250 GB.
    pieces = [b"data: ", *[b"x" * 8] * 250_000, b"\n\n"]
    assert [len(data) for _, data in events(*pieces)] == [2_000_000]
