"""Bytes to JSON objects: every coding, any cut, streams as servers send them, and bounds."""

import gzip
import json
import zlib
from collections.abc import Iterable
from typing import Any

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.answers import Values
from proxy.wire.answers import objects as objects_of
from proxy.wire.http import TooLong, Undecodable, Unpacker

PLAIN = b"data: some text that repeats, repeats, repeats\n\n" * 50


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def unpacked(packed: Iterable[bytes], coding: str, limit: int = 1 << 30) -> bytes:
    unpacker = Unpacker(coding, limit)
    pieces = [piece for chunk in packed for piece in unpacker.feed(chunk)]
    return b"".join([*pieces, *unpacker.end()])


# ---------------------------------------------------------------- codings
@pytest.mark.parametrize(
    ("coding", "packed"),
    [
        ("", PLAIN),
        ("X-GZip", gzip.compress(PLAIN, mtime=0)),
        ("gzip", gzip.compress(PLAIN[:99], mtime=0) + gzip.compress(PLAIN[99:], mtime=0)),
        ("deflate", zlib.compress(PLAIN)),
        ("deflate", raw_deflate(PLAIN)),
        ("br", brotli.compress(PLAIN)),
        ("zstd", zstandard.compress(PLAIN[:99]) + zstandard.compress(PLAIN[99:])),
        ("gzip, br", brotli.compress(gzip.compress(PLAIN, mtime=0))),
        # The header is missing, or wrong.
        ("", gzip.compress(PLAIN, mtime=0)),
        ("", brotli.compress(PLAIN)),
        ("br", gzip.compress(PLAIN, mtime=0)),
        ("", b"{}"),
    ],
)
def test_codings_are_undone_however_the_bytes_are_cut(coding, packed):
    plain = packed if packed == b"{}" else PLAIN
    assert unpacked([packed], coding) == plain
    assert unpacked([b"", *(packed[i : i + 1] for i in range(len(packed)))], coding) == plain


@pytest.mark.parametrize("coding", ["zstd", "gzip", "compress", "gzip, gzip, gzip, gzip"])
def test_what_is_not_in_its_coding_is_named(coding):
    with pytest.raises(Undecodable, match=coding.partition(",")[0]):
        unpacked([b"\x00\x01 damaged"], coding)


@pytest.mark.parametrize(
    ("coding", "bomb"),
    [
        ("gzip", gzip.compress(b"\0" * 20_000_000, mtime=0)),
        ("br", brotli.compress(b"\0" * 20_000_000)),
        ("zstd", zstandard.compress(b"\0" * 20_000_000)),
    ],
)
def test_a_bomb_is_unfolded_only_so_far(coding, bomb):
    sizes: list[int] = []
    unfolding = Unpacker(coding, 3_000_000).feed(bomb)
    with pytest.raises(TooLong):
        sizes.extend(len(piece) for piece in unfolding)
    assert sum(sizes) <= 3_000_000
    assert max(sizes, default=0) <= 2 << 20


# ---------------------------------------------------------------- streams
def values_of(chunks: Iterable[bytes], kind: str, coding: str) -> tuple[Values, list[Any]]:
    values = Values(kind, coding)
    return values, list(objects_of(values, chunks))


def objects(stream: bytes, kind: str = "text/event-stream") -> list[Any]:
    return values_of([stream], kind, "")[1]


@pytest.mark.parametrize(
    "stream",
    [
        b'data: {"a":1}\ndata: {"b":2}\n',  # single line feeds
        b'data: {"a":1}\n\ndata: {"b":2}',
        b'data:{"a":1}\r\rdata:{"b":2}\r\n\r\n',
        b'\xef\xbb\xbfdata: {"a":1}\n\nid: 7\nretry: 3\ndata: {"b":2}\n\ndata:[DONE]',
        b': comment\n\n:\ndata: {"a":\ndata: 1}\n\ndata: {\ndata: "b"\ndata: :2}\n\n: end',
        b'{"a":1}\n{"b":2}\n[DONE]\n',  # JSON lines
        b'event: x\ndata: {"a":1}\nevent: y\ndata: {"b":2}\n\n',
        b'data: [{"a":1},{"b":2}]\n\n',
        b'data: not json\n\ndata: 7\n\ndata: {"a":1}\n\ndata: {"b":2}\n\ndata: [DONE]\n\ndata: {"c":3}\n\n',
    ],
)
def test_streams_are_read_as_line_based_clients_read_them(stream):
    assert objects(stream) == [{"a": 1}, {"b": 2}]
    assert not values_of([stream], "", "")[0].ragged


@pytest.mark.parametrize(
    "rest", [b"dat", b"data:", b'data: {"a"', b'data: {"a"\n', b'event: x\ndata: {"a":\n\n']
)
def test_an_end_inside_an_event_is_seen(rest):
    values, found = values_of([b'data: {"a":1}\n\n' + rest], "text/event-stream", "")
    assert found == [{"a": 1}]
    assert values.ragged is not rest.endswith(b"\n\n")


PIECES = st.sampled_from(
    [
        *rb"""data: {"a":1}|data: {|data: }|{"b":2}|[DONE]||: c|event: error|data:x|data: [{}]|junk""".split(
            b"|"
        ),
        'data: {"c":"東"}'.encode(),
        b"\xef\xbb\xbfdata: {}",
        b'data: {"d":"\xff\x00"}',
    ]
)


@given(st.lists(st.tuples(PIECES, st.sampled_from([b"\n", b"\r", b"\r\n", b"\n\n"]))), st.data())
def test_every_split_of_the_bytes_gives_the_same_objects(lines, data):
    stream = b"data: {}\n" + b"".join(line + end for line, end in lines)
    stream = stream[: data.draw(st.integers(9, len(stream)))]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    whole, found = values_of([stream], "", "")
    split, again = values_of(chunks, "", "")
    assert again == found
    assert (split.done, split.ragged, split.trouble) == (whole.done, whole.ragged, whole.trouble)


# ---------------------------------------------------------------- documents
def test_what_a_body_is_its_bytes_decide():
    for kind in ("text/event-stream", "application/json", "text/plain", ""):
        assert values_of([b" \n", b'data: {"a":1}\n\n'], kind, "")[0].streamed is True
        values, found = values_of([b"\xef\xbb\xbf\n", b' {"a":', b"1}"], kind, "")
        assert (values.streamed, values.over, found) == (False, True, [{"a": 1}])
    pretty = json.dumps({"a": [1, {"b": 2}]}, indent=2).encode() + b"\n"
    assert values_of([pretty], "text/event-stream", "")[1] == [{"a": [1, {"b": 2}]}]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "empty"), (b" \n", "empty"), (b"<!doctype html><p>Hi", "page"), (b'{"a":', "could not be read"),
        (b'{"a":' * 200_000, "could not be read"), (b"[1]", "no JSON object"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_says_why(body, why):
    values, found = values_of([body], "application/json", "")
    assert found == []
    assert why in values.trouble
    assert not values.over


@pytest.mark.parametrize("start", [b'{"a": "', b'data: {"a": "', b"data: ", b"x"])
def test_what_is_too_long_is_not_held(start):
    values = Values("text/event-stream", "", limit_bytes=1 << 20)
    list(values.feed(start))
    for _ in range(20):
        list(values.feed(b"x" * 100_000))
    assert "longer than 1 MB" in values.trouble
    assert [*values.feed(b"x"), *values.end()] == []
