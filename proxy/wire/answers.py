"""Read the bytes of an upstream's answer: streamed or whole, compressed or plain, an error of any shape.

`JsonDecoder` reads server-sent events as clients of model servers do, `Values` the JSON objects of an answer
of any form, `problem_of` what an error says. Sans-I/O.
"""

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from proxy.wire.body import clean, dict_in, loads, text_in
from proxy.wire.http import TooLong, Undecodable, Unpacker, named_codings

Json = dict[str, Any]

LIMIT_BYTES = 32 << 20
EXPANSION = 4  # what is compressed may unfold to so many times the limit
_LINE_BYTES = 64 * 1024  # of the first JSON line of a stream; a longer one is a document on one line
_BOM = b"\xef\xbb\xbf"
_DONE = b"[DONE]"
# The charsets that servers still write. A document in another one is read as UTF-8.
_CHARSET = re.compile(
    r"charset=[\"']?(iso-8859-\d{1,2}|windows-125\d|gbk|gb2312|gb18030|big5|shift_jis|euc-(?:jp|kr)|koi8-[ru])\b",
    re.IGNORECASE,
)


def lenient(text: bytes) -> Any:
    """Return any JSON value; bytes that are not UTF-8 are replaced, control characters in strings are taken.
    Raises ValueError or RecursionError."""
    try:
        return loads(text)
    except ValueError:
        return json.loads(text.decode("utf-8", "replace").removeprefix("\ufeff"), strict=False)


def _objects_in(text: bytes) -> list[Json] | None:
    """Return the objects that the text is, itself or in a list; None if it is not JSON."""
    try:
        value = lenient(text)
    except (ValueError, RecursionError):
        return None
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict)]


# ---------------------------------------------------------------- streams
class JsonDecoder:
    """Decodes a stream of JSON objects, as model servers send and clients read them.

    A `data` line that is JSON by itself is an event at once: servers separate events by one line feed, and
    end the last one with none. Otherwise the standard holds (HTML, 9.2.6), and `data` split over lines is
    joined. A line that is JSON, or `[DONE]`, needs no `data:`. What is not JSON is left out, but the text of
    `event: error`.
    """

    def __init__(self) -> None:
        self.done = False  # `[DONE]` has come: nothing after it is read
        self.ragged = False  # the stream ended inside an event
        # Lines are split before they are decoded: no byte of a UTF-8 sequence looks like a line end.
        self._rest = bytearray()  # the line that has not ended yet
        self._after_cr = False  # a LF now would belong to the line end that the last chunk closed with
        self._at_start = True
        self._name = b""
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._values: list[Json] = []

    @property
    def pending_bytes(self) -> int:
        """How many bytes are held of an event that has not ended."""
        return len(self._rest) + self._data_bytes

    def feed(self, chunk: bytes) -> list[Json]:
        """Return the objects that the chunk completes."""
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return []
        self._after_cr = chunk.endswith(b"\r")
        lines = chunk.splitlines()  # of bytes: CR, LF and CRLF only
        rest = b"" if chunk[-1:] in b"\r\n" else lines.pop()
        if lines and self._rest:
            lines[0] = bytes(self._rest) + lines[0]
            self._rest.clear()
        if lines and self._at_start:
            self._at_start = False
            lines[0] = lines[0].removeprefix(_BOM)
        self._rest += rest
        for line in lines:
            if self._data or self._name or self.done:
                self._take(line)
            elif line[:6] == b"data: " and line[6:7] == b"{":  # as nearly all are
                self._datum(line[6:])
            elif line and line[:1] != b":":
                self._take(line)
        values, self._values = self._values, []
        return values

    def end(self) -> list[Json]:
        """Return what the last line completes, which nothing has ended."""
        line = bytes(self._rest).removeprefix(_BOM if self._at_start else b"")
        self._rest.clear()
        if not self.done and line:
            self._take(line)
            is_comment = line.startswith(b":") or not line.strip()
            self.ragged = not (self._data or self._values or self.done or is_comment)
        if self._data:
            known = len(self._values)
            self._dispatch()
            self.ragged = len(self._values) == known
        values, self._values = self._values, []
        return values

    def _take(self, line: bytes) -> None:
        if self.done:
            return
        stripped = line.strip()
        if stripped.startswith(b"data:"):
            self._datum(stripped[5:].strip())
        elif not stripped:
            self._dispatch()
        elif stripped[:1] == b"{" or stripped == _DONE:
            self._datum(stripped)
        elif stripped.startswith(b"event:"):
            self._dispatch()
            self._name = stripped[6:].strip()

    def _datum(self, datum: bytes) -> None:
        begins = datum[:1] == b"{" or datum == _DONE
        if self._data and begins and self._data[-1].endswith(b"}"):  # JSON has no `}` right before a `{`
            self._dispatch()
        if datum == _DONE:
            self._dispatch()
            self.done = True
        elif self._data or not begins or not self._is_read(datum):  # alone, it is an event at once
            self._data.append(datum)
            self._data_bytes += len(datum)

    def _dispatch(self) -> None:
        if self._data:
            joined = b"\n".join(self._data)
            self._data, self._data_bytes = [], 0
            if not self._is_read(joined) and self._name == b"error" and joined:
                self._values.append({"error": joined.decode("utf-8", "replace")})
        self._name = b""

    def _is_read(self, text: bytes) -> bool:
        """Add the objects that the text holds. False if it is not JSON."""
        found = _objects_in(text)
        if found is None:
            return False
        if self._name == b"error":
            found = [v if v.keys() & {"error", "choices", "type"} else {"error": v} for v in found]
        self._values += found
        return True


# ---------------------------------------------------------------- answers of any form
class Values:
    """Decodes one answer. `feed` takes the bytes in any pieces and never raises; `trouble` then says why
    nothing more is read, in words for the client.

    Upstreams do not always send what was asked for, or what their headers say: some stream unasked,
    others never do; some stream under `application/json`, or send a document under `text/event-stream`. The
    first bytes decide. A document and a single event are bounded by the limit.
    """

    def __init__(self, content_type: str, content_encoding: str, limit_bytes: int = LIMIT_BYTES) -> None:
        self.trouble = ""
        self.streamed: bool | None = None  # None: not known yet
        self._limit_bytes = limit_bytes
        self._charset = _CHARSET.search(content_type)
        self._is_coded = bool(named_codings(content_encoding))
        self._unpacker = Unpacker(content_encoding, limit_bytes * EXPANSION)
        self._events = JsonDecoder()
        self._held: list[bytes] = []  # of a document, or of what may be one
        self._held_bytes = 0
        self._is_object = False  # it begins as one

    @property
    def done(self) -> bool:
        """True once a stream has said that it is over."""
        return self._events.done

    @property
    def over(self) -> bool:
        """True if the answer came to its end for certain: so it said, or it is a document that parses."""
        return self.done or (self.streamed is False and not self.trouble)

    @property
    def ragged(self) -> bool:
        """True if a stream ended inside an event, or inside its content coding."""
        return self._events.ragged or not self._unpacker.whole

    @property
    def is_heavy(self) -> bool:
        """True if the next piece may take long: it may unfold, or end what is large."""
        return self._is_coded or self._events.pending_bytes > _LINE_BYTES

    def feed(self, chunk: bytes) -> Iterable[Json]:
        """Return the objects that the bytes complete, to be iterated over before the next call. What is
        compressed unfolds while that is done: all of it at once may not fit the memory."""
        if self.trouble or self.done:
            return ()
        if self.streamed and self._unpacker.is_plain:
            return self._read(chunk)
        return self._unfold(self._unpacker.feed(chunk))

    def end(self, *, cut: bool = False) -> list[Json]:
        """Return what is left: the document, or the last event. `cut`: the bytes broke off."""
        if self.trouble or self.done:
            return []
        values = list(self._unfold(self._unpacker.end()))
        if self.trouble:
            return values
        if self.streamed:
            return values + self._events.end()
        self.streamed = False
        return values + self._document(cut=cut)

    def _unfold(self, pieces: Iterator[bytes]) -> Iterator[Json]:
        try:
            for piece in pieces:
                yield from self._read(piece)
        except Undecodable as error:
            name = "".join(c for c in str(error) if c.isalnum() or c in "-_")
            self.trouble = (
                "The upstream's answer could not be decoded:"
                f" it is damaged, or not in the content coding '{name}'."
            )
        except TooLong:
            self.trouble = self._too_long()

    def _read(self, piece: bytes) -> list[Json]:
        if self.trouble:
            return []
        if self.streamed is None:
            self._decide(piece)
        if self.streamed:
            if self._held:
                piece, self._held = b"".join((*self._held, piece)), []
            values = self._events.feed(piece)
            if self._events.pending_bytes > self._limit_bytes:
                self.trouble = self._too_long()
            return values
        self._held.append(piece)
        self._held_bytes += len(piece)
        if self._held_bytes > self._limit_bytes:
            self._held = []
            self.trouble = self._too_long()
        return []

    def _decide(self, piece: bytes) -> None:
        """Find out what this is. A document is read at its end; the first line distinguishes JSON lines."""
        if self._is_object and b"\n" not in piece and self._held_bytes < _LINE_BYTES:
            return
        start = b"".join((*self._held, piece)).lstrip(_BOM + b" \t\r\n")
        if not start:
            return
        self._is_object = start[:1] == b"{"
        if not self._is_object:
            self.streamed = start[:1] not in b"[<"
        elif len(start) > _LINE_BYTES:
            self.streamed = False
        elif b"\n" in start:
            self.streamed = bool(_objects_in(start.partition(b"\n")[0]))

    def _document(self, *, cut: bool) -> list[Json]:
        text, self._held = b"".join(self._held).strip(_BOM + b" \t\r\n"), []
        if self._charset is not None:  # tried if it is not UTF-8
            try:
                text.decode()
            except UnicodeDecodeError:
                with suppress(LookupError, ValueError):
                    text = text.decode(self._charset[1]).encode()
        if cut:
            self.trouble = "The upstream's answer broke off."
        elif not text:
            self.trouble = "The upstream's answer is empty."
        elif (found := _objects_in(text)) is None:
            self.trouble = "The upstream's answer could not be read."
            if text[:1] == b"<":
                self.trouble = "The upstream answered with a page, not with JSON."
        elif not found:
            self.trouble = "The upstream's answer is no JSON object."
        else:
            return found
        return []

    def _too_long(self) -> str:
        return f"The upstream's answer is longer than {self._limit_bytes / 2**20:g} MB."


def objects(values: Values, chunks: Iterable[bytes]) -> Iterator[Json]:
    """Yield the objects of an answer that is there, decoded by `values`."""
    for chunk in chunks:
        yield from values.feed(chunk)
    yield from values.end()


def tokens_of(usage: Any) -> tuple[int, int] | None:
    """Return the tokens read and written in a `usage` of either API."""
    if not isinstance(usage, dict):
        return None
    read = usage.get("prompt_tokens", usage.get("input_tokens"))
    written = usage.get("completion_tokens", usage.get("output_tokens"))
    if type(read) is not int or type(written) is not int or read < 0 or written < 0:
        return None
    return read, written


# ---------------------------------------------------------------- errors
# Shapes that servers send, with any status: `{"error": {…}}`, `{"error": "text"}`, a list of those (Gemini),
# `{"detail": …}` (FastAPI, text or a list of findings), `{"message": …}` (gateways, old vLLM),
# `{"errors": […]}` (Cloudflare), `{"base_resp": {"status_code", "status_msg"}}` (MiniMax), plain text, and
# pages of HTML.
MAX_MESSAGE_CHARS = 1000  # characters of a message
_READ_CHARS = 16 * 1024  # characters of a page
_MAX_DEPTH = 4  # levels of errors inside errors
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
}
_NO_TEXT = re.compile(
    r"<(script|style|head)\b.*?(?:</\1\s*>|\Z)|<!--.*?(?:-->|\Z)", re.DOTALL | re.IGNORECASE
)
_TITLE = re.compile(r"<title\b[^>]*>([^<]*)", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")
_TEXT_FIELDS = ("message", "error_message", "error_msg", "msg", "status_msg", "detail", "title", "reason")


@dataclass(frozen=True, slots=True)
class Problem:
    """An error of the upstream, as text without markup of at most MAX_MESSAGE_CHARS characters."""

    message: str
    code: str | None = None
    type: str | None = None
    param: str | None = None

    def body(self, status: int) -> dict[str, Any]:
        """Return OpenAI's error object."""
        type_ = self.type or _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
        return {"error": {"message": self.message, "type": type_, "param": self.param, "code": self.code}}


def problem_of(value: Any) -> Problem | None:
    """Return the error that a JSON value holds, None if there is none."""
    if isinstance(value, list):
        entries = (each for each in value[:10] if isinstance(each, dict))
        return next((found for each in entries if (found := problem_of(each))), None)
    if not isinstance(value, dict):
        return None
    if error := value.get("error"):
        return _named(error) or Problem("The upstream's answer failed.")
    if value.get("choices"):
        return None
    if (base := value.get("base_resp")) and isinstance(base, dict):
        return _named(base) if base.get("status_code") else None
    if errors := value.get("errors"):
        return _named(errors)
    return _named(value)


def is_openai_error(value: Any) -> bool:
    """True if the value has the shape that OpenAI's SDKs read."""
    error = value.get("error") if isinstance(value, dict) else None
    return isinstance(error, dict) and isinstance(error.get("message"), str)


def problem_of_text(text: str, status: int) -> Problem:
    """Return the error in an answer that is not JSON: its text, or what a page says, without markup."""
    said = _said(text[:_READ_CHARS])
    if not said:
        return Problem(f"The upstream answered with status {status} and without a message.")
    is_page = text.lstrip()[:1] == "<"
    return Problem(f"The upstream answered with status {status} and a page: {said}" if is_page else said)


def _named(error: Any, depth: int = 0) -> Problem | None:
    if depth > _MAX_DEPTH:
        return None
    if isinstance(error, list):
        found = [_named(each, depth + 1) for each in error[:5]]
        texts = [each.message for each in found if each]
        return Problem(_short("; ".join(texts))) if texts else None
    if isinstance(error, str):
        return Problem(_short(_said(error))) if error.strip() else None
    if not isinstance(error, Mapping):
        return None
    found_texts = (_named(error.get(name), depth + 1) for name in _TEXT_FIELDS)
    text = next((each.message for each in found_texts if each), "")
    if not text:
        nested = error.get("error")
        return _named(nested, depth + 1) if nested else None
    if (where := error.get("loc")) and isinstance(where, list):
        text = f"{'.'.join(map(str, where[:8]))}: {text}"
    # The words of the provider behind a router (OpenRouter).
    if inner := _said(text_in(dict_in(error, "metadata"), "raw")):
        text = f"{text}: {inner}"
    codes = (error.get(name) for name in ("code", "status_code", "status"))
    code = next((word for word in map(_word, codes) if word), None)
    kind, param = (_word(text_in(error, name)) for name in ("type", "param"))
    return Problem(_short(text), code, kind, param)


def _word(value: Any) -> str | None:
    """Return a code as a word, None for what is none."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return clean(value[:200]) if isinstance(value, str) and value else None


def _said(text: str) -> str:
    """Return the text without markup, control characters and runs of white space."""
    text = text[:_READ_CHARS]
    if text.lstrip()[:1] == "<":
        title = _TITLE.search(text)
        visible = _TAG.sub(" ", _NO_TEXT.sub(" ", text)).replace("<", " ")
        heading = html.unescape(title[1]) if title else ""
        body = html.unescape(visible)
        text = body if heading.strip() and heading.strip() in body else f"{heading} {body}"
        text = text.replace("<", " ").replace(">", " ")  # what was escaped is not markup either
    words = "".join(c if c.isprintable() else " " for c in clean(text)).split()
    return _short(" ".join(words))


def _short(text: str) -> str:
    text = clean(text)
    return text if len(text) <= MAX_MESSAGE_CHARS else text[: MAX_MESSAGE_CHARS - 1] + "…"
