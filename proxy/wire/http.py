"""What HTTP adds to a body: the headers that are forwarded in each direction, and content codings. Sans-I/O.

Names of headers are lower case, as ASGI has them. A coding (gzip, deflate, br, zstd) is undone while the
bytes arrive, in small pieces, so that a decompression bomb costs constant memory: the caller counts them.
`Unpacker` reads an upstream's answer, where the bytes decide and the header is a hint: a body may be
compressed without a header that says so, or be plain under a header that a middle box forgot to remove.
"""

import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Any, Protocol

import brotli
import zstandard

Headers = list[tuple[bytes, bytes]]

CREDENTIALS = frozenset({b"authorization", b"api-key", b"x-api-key"})
"""The headers that may hold a request's credential: the one list of them."""

# RFC 9110, section 7.6.1, and what RFC 2616, section 13.5.1, had beyond it. Trailers are not relayed.
_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# Host and the framing are rewritten for the upstream; the server handles 100-continue.
_REQUEST_DROPS = _HOP_BY_HOP | {b"host", b"content-length", b"expect"}
_OURS = b"x-memory-"
REQUEST_ID = b"x-request-id"
_PLAIN_ID = re.compile(rb"[\w.:-]{1,128}", re.ASCII)


def request_headers(headers: Iterable[tuple[bytes, bytes]], *, identity: bool = False) -> Headers:
    """Return the client's headers as the upstream may see them, in order: no hop-by-hop, no framing, no
    Host, nothing of ours, and its credential in any case. With `identity` the answer is asked for
    uncompressed, so that memory can read it.
    """
    headers = list(headers)
    # Which key pays is not for `Connection: authorization` to say: without the client's, ours would go.
    drops = _REQUEST_DROPS | (_named_in_connection(headers) - CREDENTIALS)
    if identity:
        drops |= {b"accept-encoding"}
    passed = [(name, value) for name, value in headers if name not in drops and not name.startswith(_OURS)]
    if identity:
        passed.append((b"accept-encoding", b"identity"))
    return passed


def response_headers(headers: Iterable[tuple[bytes, bytes]], status: int) -> Headers:
    """Return the upstream's headers as the client may see them: order, duplicates, encoding and length
    stay, hop-by-hop headers do not. A length on 204 and 304 describes a body that is not there: dropped."""
    lowered = [(name.lower(), value) for name, value in headers]
    drops = _HOP_BY_HOP | _named_in_connection(lowered)
    if status in (204, 304):
        drops |= {b"content-length"}
    return [header for header in lowered if header[0] not in drops]


def with_ours(upstream: Iterable[tuple[bytes, bytes]], ours: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the upstream's headers and ours about memory. Memory headers of the upstream itself are left
    out: the client would take them for ours."""
    return [*(header for header in upstream if not header[0].startswith(_OURS)), *ours]


def request_id_in(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the `X-Request-Id`; "" without one, and for what does not belong into a log."""
    for name, value in headers:
        if name == REQUEST_ID:
            return value.decode() if _PLAIN_ID.fullmatch(value) else ""
    return ""


def _named_in_connection(headers: Headers) -> frozenset[bytes]:
    values = [value for name, value in headers if name == b"connection"]
    if not values:
        return frozenset()
    return frozenset(token.strip().lower() for value in values for token in value.split(b","))


# ---------------------------------------------------------------- content codings
PIECE_BYTES = 64 * 1024
MAX_CODINGS = 3  # of one body
_HELD_BYTES = 64 * 1024  # of input that may still turn out to be plain
_GZIP = 16 + zlib.MAX_WBITS
_ZSTD_WINDOW_BYTES = 8 << 20  # RFC 9659: no more for the content coding
# A zstd block of 4 bytes holds up to 128 KiB, and the library has no limit on its output.
_ZSTD_SLICE_BYTES = 64
_PLAIN = frozenset(b"\t\n\r") | frozenset(range(32, 127))
_BOM = b"\xef\xbb\xbf"


class Undecodable(Exception):
    """The bytes are not what their coding says. The message names the coding and no content."""


class TooLong(Exception):
    """The decoded bytes are more than the limit."""


class Coding(Protocol):
    """One coding being undone."""

    @property
    def whole(self) -> bool:
        """True if the bytes so far end where the coding does, or there are none."""
        ...

    @property
    def ended(self) -> bool:
        """True once an end was reached: what follows may be padding."""
        ...

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what the data decode to. Raises Undecodable."""
        ...


def _inflated(stream: Any, data: bytes, name: str) -> Iterator[bytes]:
    """Yield what zlib makes of the data; bytes after the end of the stream are its `unused_data`."""
    try:
        piece = stream.decompress(data, PIECE_BYTES)
        while piece or stream.unconsumed_tail:
            yield piece
            piece = stream.decompress(stream.unconsumed_tail, PIECE_BYTES) if not stream.eof else b""
    except zlib.error:
        raise Undecodable(name) from None


class _Gzip:
    """gzip (RFC 1952), of several members, too."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP)
        self.whole, self.ended = True, False

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._member.eof:
                if not data.strip(b"\0"):  # what pads a tape
                    return
                self._member = zlib.decompressobj(_GZIP)
            self.whole = False
            try:
                yield from _inflated(self._member, data, "gzip")
            except Undecodable:
                self.whole = self.ended
                raise
            self.whole = self._member.eof
            self.ended = self.ended or self.whole
            data = self._member.unused_data


class _Deflate:
    """deflate: zlib's format, and the bare one that some send."""

    def __init__(self) -> None:
        self._stream: Any = None
        self._head = b""

    @property
    def whole(self) -> bool:
        return self._stream is not None and bool(self._stream.eof)

    ended = whole

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._stream is None:
            self._head += data
            if len(self._head) < 2:
                return
            data, first = self._head, self._head[:2]
            is_zlib = first[0] & 0x0F == 8 and int.from_bytes(first, "big") % 31 == 0
            self._stream = zlib.decompressobj(zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS)
        while data:
            if self._stream.eof:
                raise Undecodable("deflate")
            yield from _inflated(self._stream, data, "deflate")
            data = self._stream.unused_data


class _Brotli:
    """br (RFC 7932)."""

    def __init__(self) -> None:
        self._stream = brotli.Decompressor()
        self.whole = self.ended = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            piece = self._stream.process(data, output_buffer_limit=PIECE_BYTES)
            self.whole = self.ended = self._stream.is_finished()
            while piece:
                yield piece
                # Output may be pending although `can_accept_more_data` is true.
                piece = b"" if self.whole else self._stream.process(b"", output_buffer_limit=PIECE_BYTES)
                self.whole = self.ended = self._stream.is_finished()
        except brotli.error:
            raise Undecodable("br") from None


class _Zstd:
    """zstd (RFC 8878), of several frames, too."""

    def __init__(self) -> None:
        self._context = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
        self._frame = self._context.decompressobj()
        self.whole, self.ended = True, False

    def feed(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), _ZSTD_SLICE_BYTES):
            rest = data[start : start + _ZSTD_SLICE_BYTES]
            while rest:
                if self._frame.eof:
                    self._frame = self._context.decompressobj()
                try:
                    piece = self._frame.decompress(rest)
                except zstandard.ZstdError:
                    self.whole = self.ended
                    raise Undecodable("zstd") from None
                self.whole = self._frame.eof
                self.ended = self.ended or self.whole
                rest = self._frame.unused_data if self._frame.eof else b""
                if piece:
                    yield piece


CODINGS: dict[str, Callable[[], Coding]] = {
    "gzip": _Gzip,
    "deflate": _Deflate,
    "br": _Brotli,
    "zstd": _Zstd,
}
_MAGIC = {b"\x1f\x8b\x08": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_MAGIC |= {bytes((0x78, level)): "deflate" for level in (0x01, 0x9C, 0xDA)}


def named_codings(content_encoding: str) -> list[str]:
    """Return the codings in the order in which they were applied, `identity` left out."""
    names = (name.strip().lower() for name in content_encoding.split(","))
    return ["gzip" if name == "x-gzip" else name for name in names if name not in ("", "identity")]


class Unpacker:
    """Decodes one body. `feed` takes the bytes in any pieces.

    It raises Undecodable and TooLong, both also later on. What was decoded before has been yielded.
    """

    def __init__(self, content_encoding: str, limit_bytes: int) -> None:
        """`limit_bytes`: of output. A coding that is not known raises Undecodable at the first byte."""
        self._names = named_codings(content_encoding)
        self._left = limit_bytes
        self._chain: list[Coding] | None = None  # None: not known yet
        self._held = b""  # the input so far, while it may still be plain

    @property
    def is_plain(self) -> bool:
        """True once the bytes are known to have no coding: they need no `feed`."""
        return self._chain == [] and not self._held

    @property
    def whole(self) -> bool:
        """False if the bytes so far end inside a coding."""
        return all(coding.whole for coding in self._chain or ())

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield what the bytes decode to."""
        if not chunk:
            return
        if self._chain is None:
            self._held += chunk
            if len(self._held) < 4:
                return
            chunk = self._choose()
        elif self._held:
            self._held += chunk
        yield from self._decoded(chunk)

    def end(self) -> Iterator[bytes]:
        """Yield what was held back: a body of less than four bytes."""
        if self._chain is None and self._held:
            yield from self._decoded(self._choose())

    def _choose(self) -> bytes:
        """Choose the codings by the first bytes and by the header, and return the bytes."""
        head, names = self._held, self._names
        is_plain = _is_plain(head)
        marked = next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)
        if marked and len(names) <= 1:
            names = [marked]  # whatever the header says
        elif not names and not is_plain:
            names = ["br"]  # it has no mark, and is tried
        if len(names) > MAX_CODINGS or any(name not in CODINGS for name in names):
            if not is_plain:
                raise Undecodable(names[0][:20])
            names = []
        self._chain = [CODINGS[name]() for name in reversed(names)]
        if not names or (not is_plain and len(self._names) == 1):
            self._held = b""
        return head

    def _decoded(self, chunk: bytes) -> Iterator[bytes]:
        """Decode bytes that, while they are held, may be plain after all."""
        pieces: Iterable[bytes] = (chunk,)
        for coding in self._chain or ():
            pieces = _each(coding, pieces)
        try:
            for piece in pieces:
                self._held = b""
                yield from self._bounded(piece)
        except Undecodable:
            held, self._held = self._held, b""
            if not held or (self._names and not _is_plain(held)):
                raise
            self._chain = []
            yield from self._bounded(held)
        if len(self._held) > _HELD_BYTES:
            self._held = b""

    def _bounded(self, piece: bytes) -> Iterator[bytes]:
        if len(piece) > self._left:
            yield piece[: self._left]
            self._left = 0
            raise TooLong
        self._left -= len(piece)
        if piece:
            yield piece


def _each(coding: Coding, pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        try:
            yield from coding.feed(piece)
        except Undecodable:
            if not coding.ended:
                raise


def _is_plain(head: bytes) -> bool:
    """True if the bytes begin as text does."""
    return all(byte in _PLAIN for byte in head.removeprefix(_BOM)[:4])


def unpacked(body: bytes, content_encoding: str, limit_bytes: int) -> bytes:
    """Return the body without its codings, up to the limit; a damaged one ends where decoding fails."""
    unpacker, pieces = Unpacker(content_encoding, limit_bytes), list[bytes]()
    with suppress(Undecodable, TooLong):
        for piece in chain(unpacker.feed(body), unpacker.end()):
            pieces.append(piece)
    return b"".join(pieces)
