"""Decode an answer that was relayed: undo its content coding, and parse it to JSON values.

The answer may have been cut at any byte, and nothing in it is ours to complain about: what cannot be
read is left out.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from proxy.wire.body import loads
from proxy.wire.sse import decode_all

MAX_DECODED_BYTES = 64 << 20  # a compressed answer may unfold a thousandfold
_PIECE_BYTES = 1 << 20
_BEFORE = b"\xef\xbb\xbf \t\r\n"  # a document: a byte order mark, white space
_GZIP, _ZLIB, _RAW_DEFLATE = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS


def json_values(
    chunks: Sequence[bytes], content_type: str, content_encoding: str
) -> tuple[bool, list[dict[str, Any]]]:
    """Return whether the answer is an event stream, and its JSON objects: one an event, or the document.

    The content type is believed only for event streams: some servers stream under another one.
    """
    plain = list(decoded(chunks, content_encoding))
    if "event-stream" in content_type.lower() or not _is_document(plain):
        return True, list(_objects(event.data.encode() for event in decode_all(plain)))
    return False, list(_objects([b"".join(plain)]))


def usage_of(values: Sequence[dict[str, Any]]) -> tuple[int, int] | None:
    """Return the tokens read and written that an answer tells of, the last time it does. Some servers say -1
    where they have not counted."""
    for value in reversed(values):
        response = value.get("response")
        usage = (response if isinstance(response, dict) else value).get("usage")
        if isinstance(usage, dict):
            read = usage.get("prompt_tokens", usage.get("input_tokens"))
            written = usage.get("completion_tokens", usage.get("output_tokens"))
            if type(read) is int and type(written) is int and read >= 0 and written >= 0:
                return read, written
    return None


def decoded(chunks: Iterable[bytes], content_encoding: str) -> Iterator[bytes]:
    """Yield the bytes without their content coding, at most MAX_DECODED_BYTES where there is one.

    What is cut short or damaged ends early; an unknown coding gives nothing.
    """
    codings = [name.strip() for name in content_encoding.lower().split(",")]
    codings = [name for name in codings if name not in ("", "identity")]
    if not codings:
        yield from chunks
    elif codings in (["gzip"], ["x-gzip"]):
        yield from _inflate(chunks, _GZIP)
    elif codings == ["deflate"]:
        pieces = [chunk for chunk in chunks if chunk]
        # RFC 9110 means zlib's format; some servers send the bare deflate stream. The low four bits tell.
        zlib_header = bool(pieces) and pieces[0][0] & 0x0F == 8
        yield from _inflate(pieces, _ZLIB if zlib_header else _RAW_DEFLATE)


def _inflate(chunks: Iterable[bytes], window_bits: int) -> Iterator[bytes]:
    stream = zlib.decompressobj(window_bits)
    left = MAX_DECODED_BYTES
    for chunk in chunks:
        pending = chunk
        while pending and left > 0:
            try:
                piece = stream.decompress(pending, min(left, _PIECE_BYTES))
            except zlib.error:
                return
            left -= len(piece)
            yield piece
            pending = stream.unconsumed_tail
            if stream.eof:  # gzip members may follow one another
                pending, stream = stream.unused_data, zlib.decompressobj(window_bits)


def _is_document(chunks: Iterable[bytes]) -> bool:
    start = next((text for chunk in chunks if (text := chunk.lstrip(_BEFORE))), b"")
    return start.startswith(b"{")


def _objects(texts: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for text in texts:
        try:
            value = loads(text)
        except (ValueError, RecursionError):  # "[DONE]", keep-alives, a document cut short
            continue
        if isinstance(value, dict):
            yield value
