"""The bytes that passed by: every coding that is known, any cut, and no bomb."""

import gzip
import zlib

import pytest

from proxy.wire import tapped
from proxy.wire.tapped import decoded, json_values, usage_of

PLAIN = b"data: some text that repeats, repeats, repeats\n\n" * 50


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("coding", "packed"),
    [
        ("", PLAIN),
        ("identity", PLAIN),
        ("gzip", gzip.compress(PLAIN, mtime=0)),
        ("X-GZip", gzip.compress(PLAIN, mtime=0)),
        ("identity, gzip", gzip.compress(PLAIN, mtime=0)),
        ("gzip", gzip.compress(PLAIN[:99], mtime=0) + gzip.compress(PLAIN[99:], mtime=0)),
        ("deflate", zlib.compress(PLAIN)),
        ("deflate", raw_deflate(PLAIN)),
    ],
)
def test_known_codings_are_undone_however_the_bytes_are_cut(coding: str, packed: bytes) -> None:
    assert b"".join(decoded([packed], coding)) == PLAIN
    assert b"".join(decoded([b"", *(packed[i : i + 1] for i in range(len(packed)))], coding)) == PLAIN


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, br", "gzip, gzip", "nonsense"])
def test_an_unknown_coding_gives_nothing(coding: str) -> None:
    assert list(decoded([PLAIN], coding)) == []


def test_a_compressed_stream_that_was_cut_gives_what_had_been_flushed() -> None:
    packer = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    first = packer.compress(PLAIN) + packer.flush(zlib.Z_SYNC_FLUSH)
    second = packer.compress(PLAIN) + packer.flush()
    assert b"".join(decoded([first, second[:3]], "gzip")).startswith(PLAIN)


def test_damage_ends_the_text_and_raises_nothing() -> None:
    packed = gzip.compress(PLAIN, mtime=0)
    assert b"".join(decoded([packed, b"trailing garbage"], "gzip")) == PLAIN
    assert list(decoded([b"not gzip at all"], "gzip")) == []
    assert list(decoded([b"\xff not deflate"], "deflate")) == []


def test_a_bomb_is_unfolded_only_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tapped, "MAX_DECODED_BYTES", 3_000_000)
    bomb = gzip.compress(b"\0" * 20_000_000)
    pieces = list(decoded([bomb, bomb], "gzip"))
    assert sum(map(len, pieces)) == 3_000_000
    assert max(map(len, pieces)) <= 1 << 20


def test_values_that_json_cannot_spell_are_left_out() -> None:
    stream = [b"data: [DONE]\n\ndata: {", b'"a":1}\n\ndata: 3\n\ndata: ' + b"[" * 200_000 + b"\n\n"]
    assert json_values(stream, "text/event-stream", "") == (True, [{"a": 1}])


def test_a_stream_is_known_by_its_bytes_where_the_type_is_wrong() -> None:
    assert json_values([b" \n", b'data: {"a":1}\n\n'], "text/plain", "")[0] is True
    assert json_values([b" \n", b' {"a":1}'], "text/plain", "") == (False, [{"a": 1}])


def test_tokens_that_nobody_counted_are_no_usage() -> None:
    assert usage_of([{"usage": {"prompt_tokens": 3, "completion_tokens": 0}}]) == (3, 0)
    assert usage_of([{"usage": {"prompt_tokens": -1, "completion_tokens": 4}}]) is None
    counted = {"usage": {"input_tokens": 3, "output_tokens": 4}}
    uncounted = {"response": {"usage": {"input_tokens": 3, "output_tokens": -1}}}
    assert usage_of([counted, uncounted]) == (3, 4)
