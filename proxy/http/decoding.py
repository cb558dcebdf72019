"""Decode compressed request bodies (RFC 9110, section 8.4) of routes that read them, within bounds.

`Content-Encoding` lists the encodings in the order in which the client applied them; they are undone from the
last to the first. Each step produces small pieces, pulled by the next, so that a decompression bomb costs
constant memory: it is refused as soon as a step has made more bytes than the limit, or (beyond FREE_BYTES)
more than MOST_TIMES what was sent. The app behind sees a plain body, without Content-Encoding.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proxy.domain.errors import InvalidRequest, TooLarge, UnsupportedMedia
from proxy.http.asgi import ASGIApp, ASGIScope, Header, Receive, Send, body_first, read_body, too_large
from proxy.wire.codings import CODINGS, MAX_CODINGS, Undecodable, named_codings

FREE_BYTES = 8 * 1024 * 1024
MOST_TIMES = 200  # text that repeats itself reaches 100; bombs of gzip have 1,000, others a million

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
    found = named_codings(b",".join(values).decode("latin-1"))
    if unknown := [name for name in found if name not in CODINGS]:
        raise _unsupported(f"'{unknown[0][:32]}' cannot be read. Accepted: {', '.join(CODINGS)}.")
    if len(found) > MAX_CODINGS:
        raise _unsupported(f"is applied {len(found)} times; at most {MAX_CODINGS} are read.")
    return found


def _unsupported(reason: str) -> UnsupportedMedia:
    error = UnsupportedMedia(
        f"Content-Encoding {reason}", param="content-encoding", code="unsupported_encoding"
    )
    error.headers = ((b"accept-encoding", ", ".join(CODINGS).encode()),)
    return error


def decoded(raw: bytes, encodings: Sequence[str], max_bytes: int) -> bytes:
    """Return the body without its encodings. Raises TooLarge for a bomb, InvalidRequest for a body that is
    cut off or not encoded so. No bytes at all are an empty body, whatever their encoding."""
    if not raw:
        return raw
    pieces: Pieces = iter((raw,))
    for name in reversed(encodings):
        pieces = _bounded(_stepwise(pieces, name), len(raw), max_bytes)
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


def _stepwise(pieces: Pieces, name: str) -> Pieces:
    coding = CODINGS[name]()
    try:
        for piece in pieces:
            yield from coding.feed(piece)
    except Undecodable:
        raise _unreadable(name, "it is damaged, or not encoded so") from None
    if not coding.whole:
        raise _unreadable(name, "it ends too early")
