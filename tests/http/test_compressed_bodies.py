"""Compressed request bodies: decoded within bounds, refused by name."""

import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from proxy.domain.errors import ClientError, InvalidRequest, TooLarge, UnsupportedMedia
from proxy.http.router import FREE_BYTES, decoded, encodings_of
from proxy.wire.http import MAX_CODINGS
from tests.e2e.conftest import context
from tests.support.serving import ask


def _raw_deflate(data: bytes) -> bytes:
    made = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return made.compress(data) + made.flush()


ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda data: brotli.compress(data, quality=4),
    "zstd": lambda data: zstandard.ZstdCompressor().compress(data),
}
MANY = 50_000_000
TEXT = json.dumps({"messages": [{"role": "user", "content": "Where do I live? " * 3_000}]}).encode()


def refused(raw: bytes, *encodings: str, max_bytes: int = MANY) -> ClientError:
    with pytest.raises(ClientError) as caught:
        decoded(raw, encodings, max_bytes)
    return caught.value


@given(st.binary(max_size=2_000), st.lists(st.sampled_from(sorted(ENCODERS)), max_size=MAX_CODINGS))
def test_what_was_encoded_comes_back(data, encodings):
    raw = data
    for name in encodings:
        raw = ENCODERS[name](raw)
    assert decoded(raw, encodings, MANY) == data


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_several_members_are_one_body(name):
    assert decoded(ENCODERS[name](TEXT) + ENCODERS[name](b"!"), [name], MANY) == TEXT + b"!"


def test_bare_deflate_is_read():
    assert decoded(_raw_deflate(TEXT), ["deflate"], MANY) == TEXT


@pytest.mark.parametrize("name", ENCODERS)
def test_a_damaged_body_is_refused(name):
    whole = ENCODERS[name](TEXT)
    for raw in (whole[:-1], whole[: len(whole) // 2], whole[:3], TEXT, b"{", whole + b"rubbish"):
        error = refused(raw, name)
        assert isinstance(error, InvalidRequest), raw[:9]
        assert (error.param, error.code) == ("content-encoding", "invalid_encoding")
        assert name in error.message


ZEROS = bytes(60_000_000)


def _zstd_blocks() -> bytes:
    """Return a frame of blocks of 4 bytes that each decode to 128 kB."""
    head = zstandard.FRAME_HEADER + bytes([0x00, 0x70])  # no checksum, no size; a window of 16 MiB / 2
    block = ((131_072 << 3) | (1 << 1)).to_bytes(3, "little") + b"a"
    return head[:4] + bytes([0x00, 0x68]) + block * 50_000


@pytest.mark.parametrize("name", [*ENCODERS, "blocks", "gzip in gzip"])
def test_a_bomb_is_refused_in_constant_memory(name):
    codings = ["zstd"] if name == "blocks" else name.split(" in ")
    bomb = _zstd_blocks() if name == "blocks" else ENCODERS[codings[0]](ZEROS)
    for outer in codings[1:]:
        bomb = ENCODERS[outer](bomb)
    tracemalloc.start()
    error = refused(bomb, *codings)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(error, TooLarge)
    assert peak < 20 * FREE_BYTES


def test_encodings_are_read_in_any_spelling():
    headers = [(b"content-encoding", b"GZip, identity ,"), (b"content-encoding", b" BR,x-gzip")]
    assert encodings_of(headers) == ["gzip", "br", "gzip"]
    assert encodings_of([(b"content-encoding", b"identity")]) == []


@pytest.mark.parametrize(
    "value", [b"compress", b"gzip, aes128gcm", b"gzip;q=1", b"gzip,gzip,gzip,gzip", b"\xff"]
)
def test_an_encoding_that_cannot_be_read_is_refused(value):
    with pytest.raises(UnsupportedMedia):
        encodings_of([(b"content-encoding", value)])


# ---------------------------------------------------------------- the whole proxy
async def test_a_compressed_request_has_memory_and_reaches_the_upstream_decoded(house):
    asked = json.loads(TEXT) | context("alice") | {"model": "m"}
    added = {"content": "User owns a boat.", "user_id": "alice"}
    async with house(memory={"extraction": "off"}) as h:
        for name in ("zstd", "gzip, br"):
            headers = (b"content-type: application/json", b"content-encoding: " + name.encode())
            raw, memory = json.dumps(asked).encode(), json.dumps(added).encode()
            for step in name.split(", "):
                raw, memory = ENCODERS[step](raw), ENCODERS[step](memory)
            for path in (b"chat/completions", b"responses"):
                head, _ = await ask(h.origin, b"POST /v1/" + path, headers, raw)
                assert head.split()[1] == b"200"
                request = h.upstream.requests[-1]
                assert request.header(b"content-encoding") is None
                assert "memory_context" not in request.json
            head, _ = await ask(h.origin, b"POST /v1/memory", headers, memory)
            assert head.split()[1] in (b"200", b"201")
        await ask(h.origin, b"POST /v1/embeddings", headers, raw)  # another route passes untouched
        request = h.upstream.requests[-1]
        assert (request.body, request.header(b"content-encoding")) == (raw, name.encode())


async def test_an_undecodable_body_never_reaches_the_upstream(house):
    kind = b"content-type: application/json"
    async with house(server={"max_body_bytes": 1_000_000}) as h:
        for encoding, raw, status in (
            (b"compress", TEXT, b"415"),
            (b"gzip", gzip.compress(TEXT)[:-4], b"400"),
            (b"gzip", gzip.compress(ZEROS), b"413"),
        ):
            for path in (b"chat/completions", b"responses", b"memory", b"responses/input_tokens"):
                headers = (kind, b"content-encoding: " + encoding)
                head, body = await ask(h.origin, b"POST /v1/" + path, headers, raw)
                assert head.split()[1] == status, (path, encoding, body)
                assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}
                assert (b"accept-encoding: gzip, deflate, br, zstd" in head) is (status == b"415")
                assert (b"server.max_body_bytes" in body) is (status == b"413")
        assert h.upstream.requests == []
