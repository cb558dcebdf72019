"""Decode compressed request bodies (RFC 9110, section 8.4) of routes that read them, within bounds.

`Content-Encoding` lists the encodings in the order in which the client applied them; they are undone from the
last to the first. Each step produces small pieces, pulled by the next, so that a decompression bomb costs
constant memory: it is refused as soon as a step has made more bytes than the limit, or (beyond FREE_BYTES)
more than MOST_TIMES what was sent. The app behind sees a plain body, without Content-Encoding.
"""

import asyncio
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import brotli
import zstandard

from proxy.domain.errors import InvalidRequest, TooLarge, UnsupportedMedia
from proxy.http.asgi import ASGIApp, ASGIScope, Header, Receive, Send, body_first, read_body, too_large

ACCEPTED = ("gzip", "deflate", "br", "zstd")
MOST_STEPS = 3
FREE_BYTES = 8 * 1024 * 1024
MOST_TIMES = 200  # text that repeats itself reaches 100; bombs of gzip have 1,000, others a million
_PIECE_BYTES = 64 * 1024
_MOST_WINDOW_BYTES = 8 * 1024 * 1024  # what RFC 9659 allows for zstd on the web

Pieces = Iterator[bytes]


@dataclass(frozen=True, slots=True)
class Decoded:
    """An app that gets the bodies of its requests decoded. A request without Content-Encoding costs one look
    at its headers."""

    app: ASGIApp
    max_bytes: int  # of the body, compressed and decoded

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        encodings = encodings_of(scope["headers"])
        if not encodings:
            await self.app(scope, receive, send)
            return
        raw = await read_body(receive, self.max_bytes)
        if raw is None:
            return  # the client left
        body = await asyncio.to_thread(decoded, raw, encodings, self.max_bytes)
        headers = [h for h in scope["headers"] if h[0] not in (b"content-encoding", b"content-length")]
        headers = [h for h in headers if h[0] != b"transfer-encoding"]
        headers.append((b"content-length", b"%d" % len(body)))
        await self.app({**scope, "headers": headers}, body_first(body, receive), send)


def encodings_of(headers: Sequence[Header]) -> list[str]:
    """Return the encodings of the body, in the order in which they were applied. Raises UnsupportedMedia."""
    values = [value for name, value in headers if name == b"content-encoding"]
    if not values:
        return []
    named = [part.strip().lower() for value in values for part in value.decode("latin-1").split(",")]
    found = [name.removeprefix("x-") if name == "x-gzip" else name for name in named]
    found = [name for name in found if name not in ("", "identity")]
    if unknown := [name for name in found if name not in ACCEPTED]:
        raise _unsupported(f"'{unknown[0][:32]}' cannot be read. Accepted: {', '.join(ACCEPTED)}.")
    if len(found) > MOST_STEPS:
        raise _unsupported(f"is applied {len(found)} times; at most {MOST_STEPS} are read.")
    return found


def _unsupported(reason: str) -> UnsupportedMedia:
    error = UnsupportedMedia(
        f"Content-Encoding {reason}", param="content-encoding", code="unsupported_encoding"
    )
    error.headers = ((b"accept-encoding", ", ".join(ACCEPTED).encode()),)
    return error


def decoded(raw: bytes, encodings: Sequence[str], max_bytes: int) -> bytes:
    """Return the body without its encodings. Raises TooLarge for a bomb, InvalidRequest for a body that is
    cut off or not encoded so. No bytes at all are an empty body, whatever their encoding."""
    if not raw:
        return raw
    pieces: Pieces = iter((raw,))
    for name in reversed(encodings):
        pieces = _bounded(_stepwise(pieces, _DECODERS[name], name), len(raw), max_bytes)
    return b"".join(pieces)


def _bounded(pieces: Pieces, raw_bytes: int, max_bytes: int) -> Pieces:
    made, most = 0, min(max_bytes, max(FREE_BYTES, raw_bytes * MOST_TIMES))
    for piece in pieces:
        made += len(piece)
        if made > max_bytes:
            raise too_large(max_bytes)
        if made > most:
            raise TooLarge(
                f"The compressed body is larger than {MOST_TIMES} times what was sent: send it plain.",
                param="content-encoding",
                code="body_too_large",
            )
        yield piece


def _unreadable(name: str, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"The request body could not be decoded as {name}: {why}.",
        param="content-encoding",
        code="invalid_encoding",
    )


# ---------------------------------------------------------------- one encoding
class Decoder(Protocol):
    """Decodes one encoding, at most _PIECE_BYTES or so at a time."""

    def feed(self, data: bytes) -> Pieces:
        """Yield what the data decode to. Raises zlib.error or brotli.error."""
        ...

    def is_complete(self) -> bool:
        """True at the end of the encoded body."""
        ...


def _inflated(stream: Any, data: bytes) -> Pieces:
    """Yield what zlib makes of the data; what is behind the end of the stream is its `unused_data`."""
    piece = stream.decompress(data, _PIECE_BYTES)
    while piece or stream.unconsumed_tail:
        yield piece
        piece = stream.decompress(stream.unconsumed_tail, _PIECE_BYTES) if not stream.eof else b""


class Gzip:
    """gzip (RFC 1952), of several members, too."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(16 + zlib.MAX_WBITS)
        self._began = False

    def feed(self, data: bytes) -> Pieces:
        while data:
            if self._member.eof:
                if not data.strip(b"\0"):  # what pads a tape
                    return
                self._member = zlib.decompressobj(16 + zlib.MAX_WBITS)
            self._began = True
            yield from _inflated(self._member, data)
            data = self._member.unused_data

    def is_complete(self) -> bool:
        return self._member.eof or not self._began


class Deflate:
    """deflate: zlib's format, and the bare one that some clients send."""

    def __init__(self) -> None:
        self._stream: Any = None
        self._head = b""

    def feed(self, data: bytes) -> Pieces:
        if self._stream is None:
            self._head += data
            if len(self._head) < 2:
                return
            data, first = self._head, self._head[:2]
            is_zlib = first[0] & 0x0F == 8 and int.from_bytes(first, "big") % 31 == 0
            self._stream = zlib.decompressobj(zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS)
        while data:
            if self._stream.eof:
                raise zlib.error("data after its end")
            yield from _inflated(self._stream, data)
            data = self._stream.unused_data

    def is_complete(self) -> bool:
        return self._stream is not None and self._stream.eof


class Brotli:
    """br (RFC 7932)."""

    def __init__(self) -> None:
        self._stream = brotli.Decompressor()

    def feed(self, data: bytes) -> Pieces:
        piece = self._stream.process(data, output_buffer_limit=_PIECE_BYTES)
        while piece:
            yield piece
            piece = b"" if self._stream.is_finished() else self._more()

    def _more(self) -> bytes:
        # Output may be waiting also where `can_accept_more_data` is true.
        return self._stream.process(b"", output_buffer_limit=_PIECE_BYTES)  # type: ignore[no-any-return]

    def is_complete(self) -> bool:
        return bool(self._stream.is_finished())


class Zstd:
    """zstd (RFC 8878), of several frames, too. The library has no bound for what one call decodes to, but a
    block of 4 bytes can be 128 kB, so that the data are fed in slices."""

    _SLICE_BYTES = 256

    def __init__(self) -> None:
        self._context = zstandard.ZstdDecompressor(max_window_size=_MOST_WINDOW_BYTES)
        self._frame = self._context.decompressobj()
        self._began = False

    def feed(self, data: bytes) -> Pieces:
        for start in range(0, len(data), self._SLICE_BYTES):
            rest = data[start : start + self._SLICE_BYTES]
            while rest:
                if self._frame.eof:
                    self._frame = self._context.decompressobj()
                self._began = True
                yield self._frame.decompress(rest)
                rest = self._frame.unused_data if self._frame.eof else b""

    def is_complete(self) -> bool:
        return self._frame.eof or not self._began


_DECODERS: dict[str, Callable[[], Decoder]] = {"gzip": Gzip, "deflate": Deflate, "br": Brotli, "zstd": Zstd}


def _stepwise(pieces: Pieces, made: Callable[[], Decoder], name: str) -> Pieces:
    decoder = made()
    try:
        for piece in pieces:
            yield from decoder.feed(piece)
    except (zlib.error, brotli.error, zstandard.ZstdError):
        raise _unreadable(name, "it is damaged, or not encoded so") from None
    if not decoder.is_complete():
        raise _unreadable(name, "it ends too early")
