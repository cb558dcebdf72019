"""Undo content codings (gzip, deflate, br, zstd) while the bytes arrive. Sans-I/O, bounded.

The bytes decide and the header is a hint: a body may be compressed without a header that says so, or be
plain under a header that a middle box forgot to remove. Output comes in pieces of about 1 MiB and ends at
the limit, so that a small body cannot fill the memory.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import brotli
import zstandard

PIECE_BYTES = 1 << 20
_MOST_CODINGS = 3
_HELD_BYTES = 64 * 1024  # of input that may still turn out to be plain
_GZIP, _ZLIB, _RAW_DEFLATE = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
_ZSTD_WINDOW_BYTES = 8 << 20  # RFC 9659: no more for the content coding
# A zstd block of 4 bytes holds up to 128 KiB, and the library has no limit on its output.
_ZSTD_SLICE_BYTES = 64
_PLAIN = frozenset(b"\t\n\r") | frozenset(range(32, 127))
_BOM = b"\xef\xbb\xbf"


class Undecodable(Exception):
    """The bytes are not what their coding says. The message names the coding and no content."""


class TooLong(Exception):
    """The decoded bytes are more than the limit."""


class _Coding(Protocol):
    """One coding being undone. `feed` raises Undecodable; `whole` is True at the coding's end."""

    @property
    def whole(self) -> bool: ...

    def feed(self, data: bytes) -> Iterator[bytes]: ...


class _Inflate:
    """gzip, or deflate: RFC 9110 means zlib's format, some servers send the bare stream."""

    def __init__(self, name: str, window_bits: int) -> None:
        self._name, self._window_bits = name, window_bits
        self._stream = zlib.decompressobj(window_bits)
        self._members = 0
        self.whole = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        pending = data
        while pending:
            try:
                piece = self._stream.decompress(pending, PIECE_BYTES)
            except zlib.error:
                if self._members:  # what follows a whole member is padding
                    return
                raise Undecodable(self._name) from None
            yield piece
            pending = self._stream.unconsumed_tail
            self.whole = self._stream.eof
            if self.whole:  # gzip members may follow one another
                self._members += 1
                pending, self._stream = self._stream.unused_data, zlib.decompressobj(self._window_bits)


class _Deflate:
    """Either format of deflate: the low four bits of the first byte decide."""

    def __init__(self) -> None:
        self._inflate: _Inflate | None = None

    @property
    def whole(self) -> bool:
        return self._inflate is not None and self._inflate.whole

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._inflate is None and data:
            self._inflate = _Inflate("deflate", _ZLIB if data[0] & 0x0F == 8 else _RAW_DEFLATE)
        return self._inflate.feed(data) if self._inflate is not None else iter(())


class _Brotli:
    def __init__(self) -> None:
        self._stream = brotli.Decompressor()

    @property
    def whole(self) -> bool:
        return bool(self._stream.is_finished())

    def feed(self, data: bytes) -> Iterator[bytes]:
        pending = data
        while not self._stream.is_finished():
            try:
                piece = self._stream.process(pending, output_buffer_limit=PIECE_BYTES)
            except brotli.error:
                raise Undecodable("br") from None
            pending = b""
            if piece:
                yield piece
            if self._stream.can_accept_more_data():
                return


class _Zstd:
    def __init__(self) -> None:
        decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
        self._stream: Any = decompressor.decompressobj(read_across_frames=True)
        self.whole = True  # the library does not say where frames end

    def feed(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), _ZSTD_SLICE_BYTES):
            try:
                piece = self._stream.decompress(data[start : start + _ZSTD_SLICE_BYTES])
            except zstandard.ZstdError:
                raise Undecodable("zstd") from None
            if piece:
                yield piece


_CODINGS: dict[str, Callable[[], _Coding]] = {
    "gzip": lambda: _Inflate("gzip", _GZIP),
    "x-gzip": lambda: _Inflate("gzip", _GZIP),
    "deflate": _Deflate,
    "br": _Brotli,
    "zstd": _Zstd,
}
_MAGIC = {b"\x1f\x8b\x08": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_MAGIC |= {bytes((0x78, level)): "deflate" for level in (0x01, 0x9C, 0xDA)}


def named_codings(content_encoding: str) -> list[str]:
    """Return the codings in the order in which they were applied, `identity` left out."""
    names = (name.strip().lower() for name in content_encoding.split(","))
    return [name for name in names if name not in ("", "identity")]


class Unpacker:
    """Decodes one body. `feed` takes the bytes in any pieces.

    `feed` raises Undecodable and TooLong, both also later on. What was decoded before has been yielded.
    """

    def __init__(self, content_encoding: str, limit_bytes: int) -> None:
        """`limit_bytes`: of output. A coding that is not known raises Undecodable at the first byte."""
        self._names = named_codings(content_encoding)
        self._left = limit_bytes
        self._chain: list[_Coding] | None = None
        self._held = b""  # the input so far, while it may still be plain

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield what the bytes decode to."""
        if not chunk:
            return
        if self._chain is None:
            self._held += chunk
            if len(self._held) < 4:
                return
            yield from self._begin()
        elif self._held:
            self._held += chunk
            yield from self._tried(chunk)
        else:
            yield from self._bounded(self._through(chunk))

    @property
    def is_plain(self) -> bool:
        """True once the bytes are known to have no coding: they need no `feed`."""
        return self._chain == [] and not self._held

    @property
    def whole(self) -> bool:
        """False if the bytes so far end inside a coding."""
        return all(coding.whole for coding in self._chain or ())

    def end(self) -> Iterator[bytes]:
        """Yield what was held back: a body of less than four bytes."""
        if self._chain is None and self._held:
            yield from self._begin()

    def _begin(self) -> Iterator[bytes]:
        """Choose the codings by the first bytes and by the header."""
        held = self._held
        names, plain = self._names, _is_plain(held)
        if len(names) == 1 and (marked := _marked(held)) is not None:
            names = [marked]  # whatever the header says
        if names and _is_known(names):
            self._chain = _chain(names)
            if not plain and len(names) == 1:
                self._held = b""
        elif names:
            if not plain:
                raise Undecodable(names[0][:20])
            self._chain, self._held = [], b""
        elif not plain:
            self._chain = _chain([_marked(held) or "br"])  # Brotli has no mark: it is tried
        else:
            self._chain, self._held = [], b""
        yield from self._tried(held) if self._held else self._bounded(self._through(held))

    def _tried(self, chunk: bytes) -> Iterator[bytes]:
        """Decode bytes that may be plain after all, which shows before any output."""
        try:
            for piece in self._through(chunk):
                if piece:
                    self._held = b""
                    yield from self._bounded([piece])
        except Undecodable:
            if not self._held:
                raise
            held, self._held, self._chain = self._held, b"", []
            if _is_plain(held) or not self._names:
                yield from self._bounded([held])
                return
            raise
        if len(self._held) > _HELD_BYTES:
            self._held = b""

    def _through(self, chunk: bytes) -> Iterator[bytes]:
        pieces: Iterable[bytes] = (chunk,)
        for coding in self._chain or ():
            pieces = _each(coding, pieces)
        return iter(pieces)

    def _bounded(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            if len(piece) > self._left:
                yield piece[: self._left]
                self._left = 0
                raise TooLong
            self._left -= len(piece)
            if piece:
                yield piece


def _each(coding: _Coding, pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        yield from coding.feed(piece)


def _is_known(names: list[str]) -> bool:
    return len(names) <= _MOST_CODINGS and all(name in _CODINGS for name in names)


def _chain(names: list[str]) -> list[_Coding]:
    return [_CODINGS[name]() for name in reversed(names)]


def _is_plain(head: bytes) -> bool:
    """True if the bytes begin as text does."""
    return all(byte in _PLAIN for byte in head.removeprefix(_BOM)[:4])


def _marked(head: bytes) -> str | None:
    """Return the coding by the magic number that the bytes begin with."""
    return next((name for magic, name in _MAGIC.items() if head.startswith(magic)), None)
