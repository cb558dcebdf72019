"""Read a chat completion, streamed or whole, from JSON objects to normalised pieces. Sans-I/O.

The one reader of such answers: memory takes from it what was said, and the Responses translation makes its
events of it. Values of unknown types are passed over.

    take*    the pieces that an object adds: TextPiece, Detailed, Cited, CallPiece
    ending   how the answer ended: completed, incomplete, failed

What servers do, and how it is read:
- `choices` of null, `finish_reason` of "" or of an unknown type: nothing.
- an error in a 200 (top level, in the choice, as a finish reason): failed, with the provider's message.
- whole `message` objects in a stream, repeated as they grow: only what is new counts.
- `<think>…</think>` at the beginning of the content, and reasoning under any of its names: thoughts.
- tool calls with an index that is a string, a float, null or missing: by id, then by order.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import Any

import orjson

from proxy.wire.answers import Problem, problem_of
from proxy.wire.authorship import ThoughtSplitter, opened, shows_thoughts
from proxy.wire.body import dict_in, dicts_in, text_in

Json = dict[str, Any]

LIMIT_BYTES = 32 << 20
"""Default bound of one stored answer: text, arguments, log probabilities, with their overhead."""
_PIECE_BYTES = 64  # what a piece costs in addition to its text
_ENTRY_BYTES = 512  # what a token costs with its log probability, or an entry of a list
_ITEM_BYTES = 8192  # what a call costs, or a change between text and thoughts

# Finish reasons other than "stop" and "tool_calls", of OpenAI, Gemini, Anthropic, Zhipu, Mistral and others.
_CUT_SHORT = {
    "length": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "model_length": "max_output_tokens",
    "model_context_window_exceeded": "max_output_tokens",
    "content_filter": "content_filter",
    "safety": "content_filter",
    "recitation": "content_filter",
    "prohibited_content": "content_filter",
    "blocklist": "content_filter",
    "sensitive": "content_filter",
}
_FAILED = frozenset(
    ("error", "abort", "network_error", "insufficient_system_resource", "malformed_function_call")
)


class PieceKind(StrEnum):
    """What a piece of text is."""

    TEXT = "text"
    REFUSAL = "refusal"
    THOUGHT = "thought"


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Text that the answer grows by, never empty."""

    kind: PieceKind
    text: str
    logprobs: tuple[Any, ...] = ()  # entries of the choice's `logprobs.content`


@dataclass(frozen=True, slots=True)
class Detailed:
    """Fields that a later request has to bring back as they came, with no text of their own.

    `thoughts` are entries of `reasoning_details` (OpenRouter); `message` is the message's `extra_content`
    (Gemini's thought signature of a text).
    """

    thoughts: tuple[Json, ...] = ()
    message: Json | None = None


@dataclass(frozen=True, slots=True)
class Cited:
    """Entries of `annotations`, as they came."""

    annotations: tuple[Any, ...]


@dataclass(slots=True, eq=False)
class ToolCall:
    """What has arrived of one tool call."""

    id: str | None = None
    name: str | None = None
    index: int | str | None = None
    arguments: list[str] = field(default_factory=list)
    extra_content: Json | None = None  # Gemini's thought signature: a later request has to bring it back
    counted: bool = False  # against the limit

    @property
    def is_whole(self) -> bool:
        """True if the arguments are complete JSON, or there are none."""
        try:
            orjson.loads("".join(self.arguments) or "{}")
        except (ValueError, TypeError):
            return False
        return True


@dataclass(frozen=True, slots=True)
class CallPiece:
    """What a call grows by. `call` is brought up to date, its arguments included."""

    call: ToolCall
    arguments: str


Piece = TextPiece | Detailed | Cited | CallPiece


@dataclass(frozen=True, slots=True)
class AnswerEnding:
    """How an answer ended. `reason` of an incomplete one: max_output_tokens or content_filter; `problem` of a
    failed one."""

    status: str  # completed | incomplete | failed
    reason: str | None = None
    problem: Problem | None = None


class ChatReader:
    """Reads one answer: choice 0."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self.usage: Json | None = None
        self.model: str | None = None
        self.service_tier: str | None = None
        self.problem: Problem | None = None  # an error that the upstream sent, or that reading met
        self.began_in_thoughts = False  # a whole answer, without the mark that begins them
        self.calls = _CallLog()
        self._said: set[PieceKind] = set()
        self._latest: PieceKind | None = None
        self._suspected: Problem | None = None
        self._heard = False  # a choice that says something has come
        self._finish_reason: str | None = None
        self._unfinished = False  # the server says with "" that it has not finished
        self._content = ThoughtSplitter()
        self._grown: dict[str, str] = {}  # of whole messages in a stream
        self._by_delta: set[str] = set()
        self._logprobs: list[Any] = []  # of text that is held back
        self._spoken = ""  # "content" or "audio": what the text is taken from
        self._left = limit_bytes
        self._limit_bytes = limit_bytes

    @property
    def size(self) -> int:
        """About how many bytes are stored so far."""
        return self._limit_bytes - self._left

    # ------------------------------------------------------------ input
    def take(self, value: Json) -> list[Piece]:
        """Return what a chunk, or a whole completion, adds. After an error nothing does."""
        if self.problem is not None:
            return []
        if (quick := self._plain_text(value)) is not None:
            return [quick]
        choices = dicts_in(value.get("choices"))
        choice = next((each for each in choices if each.get("index") in (0, None, "0")), None)
        self._note(value)
        if self.problem is None and choice is not None and choice.get("error"):
            self.problem = problem_of({"error": choice["error"]})
        if self.problem is not None or choice is None:
            return []
        pieces = self._choice(choice)
        reason = choice.get("finish_reason")
        if isinstance(reason, str):
            self._heard = True
            self._finish_reason = reason.lower() or self._finish_reason
            self._unfinished = not reason
        self._left -= sum(map(_cost, pieces))
        if self._left < 0:
            self.problem = Problem(f"The upstream's answer is longer than {self._limit_bytes / 2**20:g} MB.")
        return pieces

    def expect_thoughts(self) -> None:
        """Take the beginning of a streamed text for thoughts, up to their end: the model's template begins
        them in the prompt. If no end comes, the text is the answer as well."""
        self._content.assume(True)

    @property
    def thoughts_unclosed(self) -> bool:
        """True if such thoughts did not end."""
        return self._content.is_unclosed

    def flush(self) -> list[Piece]:
        """Return what was held back: the answer is over."""
        is_whole = self._finish_reason not in _CUT_SHORT and not self.calls.found
        return list(self._split(self._content.end(answers=is_whole), ()))

    def texts(self, values: Iterable[Json]) -> dict[PieceKind, str]:
        """Read an answer to its end, and return its text of each kind."""
        found: dict[PieceKind, list[str]] = {kind: [] for kind in PieceKind}
        for pieces in chain(map(self.take, values), [self.flush()]):
            for piece in pieces:
                if isinstance(piece, TextPiece):
                    found[piece.kind].append(piece.text)
        return {kind: "".join(texts) for kind, texts in found.items()}

    # ------------------------------------------------------------ result
    def ending(self, *, done: bool, cut: bool) -> AnswerEnding:
        """Return how the answer ended. `done`: it said so itself, by `[DONE]` or by being a whole document;
        `cut`: the connection broke off, or the bytes end inside an event. Some servers send neither `[DONE]`
        nor a finish reason: their answer is taken for whole.
        """
        if self.problem is not None:
            return AnswerEnding("failed", problem=self.problem)
        reason, calls = self._finish_reason, self.calls.named
        if not self._heard or (reason is None and not done and not cut and not self._said and not calls):
            return AnswerEnding("failed", problem=self._suspected or Problem("The upstream gave no answer."))
        broken = cut or any(not call.is_whole for call in calls) or (self._unfinished and not done)
        if reason in _CUT_SHORT:
            return AnswerEnding("incomplete", reason=_CUT_SHORT[reason])
        if reason is None and broken:
            why = "The upstream's answer broke off."
        elif reason in _FAILED:
            why = "The upstream ended its answer with an error."
        elif self._said == {PieceKind.THOUGHT} and not calls:
            why = "The upstream's answer holds thoughts and no answer."
        else:
            return AnswerEnding("completed")
        return AnswerEnding("failed", problem=Problem(why))

    # ------------------------------------------------------------ reading
    def _plain_text(self, value: Json) -> TextPiece | None:
        """Return the text of a chunk that holds nothing else, as most do; None for any other."""
        choices = value.get("choices")
        if self._spoken != "content" or not self._content.is_through or type(choices) is not list:
            return None
        if len(choices) != 1 or "error" in value or value.get("usage") or type(choices[0]) is not dict:
            return None
        choice = choices[0]
        delta = choice.get("delta")
        if type(delta) is not dict or choice.get("index") != 0 or choice.get("finish_reason") is not None:
            return None
        text = delta.get("content")
        if not text or type(text) is not str or len(delta) > 1 + ("role" in delta):
            return None
        if any(name in choice for name in ("message", "error")) or choice.get("logprobs"):
            return None
        if self._left < _PIECE_BYTES + len(text):
            return None
        self._left -= _PIECE_BYTES + len(text)
        return TextPiece(PieceKind.TEXT, text)

    def _note(self, value: Json) -> None:
        """Store the object's fields other than its choices, the last value of each, and an error. What only
        looks like one counts if no answer comes."""
        if "error" in value or not value.get("choices"):
            found = problem_of(value)
            if value.get("error") or "error" in (value.get("object"), value.get("type")):
                self.problem = found
            else:
                self._suspected = found or self._suspected
        usage, model, tier = value.get("usage"), value.get("model"), value.get("service_tier")
        if isinstance(usage, dict):
            self.usage = usage
        if model and isinstance(model, str):
            self.model = model
        if isinstance(tier, str):
            self.service_tier = tier

    def _choice(self, choice: Json) -> list[Piece]:
        logprobs = dict_in(choice, "logprobs").get("content")
        entries = tuple(logprobs) if isinstance(logprobs, list) else ()
        delta, message, text = choice.get("delta"), choice.get("message"), choice.get("text")
        pieces: list[Piece] = []
        if isinstance(delta, dict):
            pieces += self._message(delta, entries, whole=False)
        if isinstance(message, dict):
            pieces += self._message(message, entries, whole=True)
        if text and isinstance(text, str) and not pieces:  # of the older completions API
            pieces += self._message({"content": text}, entries, whole=False)
        self._heard = self._heard or bool(pieces) or isinstance(delta, dict) or isinstance(message, dict)
        return pieces

    def _message(self, said: Json, logprobs: tuple[Any, ...], *, whole: bool) -> Iterator[Piece]:
        # Servers that changed the name send both for a while: the same words.
        thought = said.get("reasoning_content") or said.get("reasoning")
        details = tuple(dicts_in(said.get("reasoning_details")))
        if not isinstance(thought, str) or not thought:
            # An encrypted entry has no words.
            thought = "".join(text_in(each, "text") or text_in(each, "summary") for each in details)
        if new := self._new("thoughts", thought, whole=whole):
            self._content.assume(False)  # the server parts them itself
            yield self._noted(TextPiece(PieceKind.THOUGHT, new))
        if details and not (whole and "details" in self._by_delta):
            self._by_delta.add("details")
            yield Detailed(thoughts=details)
        extra = _signed(said)
        if content := said.get("content"):
            thinks = _google(said).get("thought") is True
            yield from self._content_of(content, logprobs, thinks=thinks, whole=whole)
        if (annotations := said.get("annotations")) and isinstance(annotations, list):
            yield Cited(tuple(annotations))
        if extra is not None:
            yield Detailed(message=extra)
        if refusal := self._new("refusal", said.get("refusal"), whole=whole):
            yield self._noted(TextPiece(PieceKind.REFUSAL, refusal))
        heard = dict_in(said, "audio").get("transcript") if self._spoken != "content" else None
        if transcript := self._new("audio", heard, whole=whole):
            self._spoken = "audio"
            yield self._noted(TextPiece(PieceKind.TEXT, transcript))
        if fragments := said.get("tool_calls"):
            yield from self._calls(fragments, whole=whole)
        elif (old := said.get("function_call")) and isinstance(old, dict):  # the forerunner of tool calls
            yield from self._calls([{"index": 0, "function": old}], whole=whole)

    def _content_of(
        self, content: Any, logprobs: tuple[Any, ...], *, thinks: bool, whole: bool
    ) -> Iterator[Piece]:
        written = False
        for place, part in enumerate(content if isinstance(content, list) else (content,)):
            thought, text = _part(part)
            if new := self._new(f"thoughts {place}", thought, whole=whole):
                yield self._noted(TextPiece(PieceKind.THOUGHT, new))
            new = self._new(f"content {place}" if place else "content", text, whole=whole)
            if whole and place == 0 and new == text:
                self.began_in_thoughts = shows_thoughts(new)
                new = opened(new)
                self._content.assume(False)
            if not new or self._spoken == "audio":
                continue
            if written and whole:
                new = "\n" + new
            written, self._spoken = True, "content"
            if thinks:
                yield self._noted(TextPiece(PieceKind.THOUGHT, new))
            else:
                yield from self._split(self._content.feed(new), logprobs)
                logprobs = ()

    def _split(self, split: Iterable[tuple[bool, str]], logprobs: tuple[Any, ...]) -> Iterator[Piece]:
        """Yield content as thoughts and text. Log probabilities go with the next text."""
        self._logprobs += logprobs
        for is_thought, text in split:
            entries, self._logprobs = tuple(self._logprobs), []
            kind = PieceKind.THOUGHT if is_thought else PieceKind.TEXT
            yield self._noted(TextPiece(kind, text, () if is_thought else entries))

    def _noted(self, said: TextPiece) -> TextPiece:
        if said.kind is not self._latest:
            self._left -= _ITEM_BYTES
        self._latest = said.kind
        self._said.add(said.kind)
        return said

    def _new(self, name: str, text: Any, *, whole: bool) -> str:
        """Return what is new in a text. Some servers send the message as it grows instead of its pieces, and
        some send it once more at the end."""
        if not text or not isinstance(text, str):
            return ""
        if not whole:
            self._by_delta.add(name)
            return text
        if name in self._by_delta:
            return ""
        known = self._grown.get(name, "")
        if text.startswith(known):
            self._grown[name] = text
            return text[len(known) :]
        self._grown[name] = known + text
        return text

    def _calls(self, fragments: Any, *, whole: bool) -> Iterator[Piece]:
        entries = dicts_in(fragments if isinstance(fragments, list) else [fragments])
        if whole and "calls" in self._by_delta:
            return
        if not whole:
            self._by_delta.add("calls")
        for place, fragment in enumerate(entries):
            if whole:  # in a whole message each entry is a call of its own
                fragment = {**fragment, "index": place}
            call = self.calls.call(fragment, place if len(entries) > 1 else None)
            if not call.counted:
                call.counted = True
                self._left -= _ITEM_BYTES
            if self._left < 0:
                return
            arguments = dict_in(fragment, "function").get("arguments")
            if isinstance(arguments, dict):  # some servers forget to encode them
                arguments = json.dumps(arguments, ensure_ascii=False)
            elif not isinstance(arguments, str):
                arguments = ""
            if whole:
                arguments = self._new(f"call {place}", arguments, whole=True)
            if arguments:
                call.arguments.append(arguments)
            yield CallPiece(call, arguments)


class _CallLog:
    """Which call each fragment belongs to.

    Fragments carry an index. Not all servers count: some give every call the index 0 and another id, some
    leave the index out, some repeat the id and the name in each fragment, some make up a new id for each.
    """

    def __init__(self) -> None:
        self._calls: list[ToolCall] = []
        self._by_index: dict[int | str, ToolCall] = {}
        self._by_id: dict[str, list[ToolCall]] = {}
        self._last: ToolCall | None = None

    @property
    def named(self) -> list[ToolCall]:
        """The calls that have a name, in order of appearance."""
        return [call for call in self._calls if call.name]

    @property
    def found(self) -> bool:
        """True if there is a call, be it without a name so far."""
        return bool(self._calls)

    def call(self, fragment: Mapping[str, Any], place: int | None) -> ToolCall:
        """Return the fragment's call, brought up to date but for the arguments. `place`: among several."""
        said = dict_in(fragment, "function")
        index, given, name = _index(fragment), text_in(fragment, "id") or None, text_in(said, "name") or None
        call = self._known(index, given, name, place)
        if call is None:
            call = ToolCall(index=index)
            self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        if given is not None and call.id is None:
            call.id = given
            self._by_id.setdefault(given, []).append(call)
        call.name = call.name or name
        call.extra_content = _signed(fragment) or call.extra_content
        self._last = call
        return call

    def _known(
        self, index: int | str | None, given: str | None, name: str | None, place: int | None
    ) -> ToolCall | None:
        """Return the call that continues, None if one begins. The id decides, but two calls may share one."""
        for call in reversed(self._by_id.get(given or "", ())):
            is_other = index is None and name and call.name and name != call.name
            if not is_other and (index is None or call.index in (index, None)):
                return call
        if index is not None:
            known = self._by_index.get(index)
        elif place is not None and not given and not name and place < len(self._calls):
            known = self._calls[place]
        else:
            known = self._last
        if known is None or name is None or (known.name is None and known.id is None):
            return known
        if given is not None and known.id is not None:  # the id is new
            return None
        ends = bool(known.arguments) and known.arguments[-1].rstrip().endswith("}")
        is_other = known.name is not None and name != known.name
        return None if is_other or (known.name and given is None and ends and known.is_whole) else known


# ---------------------------------------------------------------- shapes
def _part(part: Any) -> tuple[str, str]:
    """Return the thoughts and the text of content, or of one part of it."""
    if isinstance(part, str):
        return "", part
    if not isinstance(part, dict):
        return "", ""
    kind = part.get("type")
    if kind in ("text", "output_text"):
        return "", text_in(part, "text")
    if kind in ("thinking", "reasoning"):  # Mistral's hold parts of their own
        inner = part.get("thinking") or part.get("text")
        parts = dicts_in(inner if isinstance(inner, list) else [{"text": inner}])
        return "".join(text_in(each, "text") for each in parts), ""
    return "", ""


def _google(said: Mapping[str, Any]) -> Json:
    """Return what Gemini adds to a message or a call."""
    return dict_in(dict_in(said, "extra_content"), "google")


def _signed(said: Mapping[str, Any]) -> Json | None:
    """Return the `extra_content` if it holds a thought signature."""
    return said["extra_content"] if _google(said).get("thought_signature") else None


def _index(fragment: Mapping[str, Any]) -> int | str | None:
    index = fragment.get("index")
    if isinstance(index, bool):
        return None
    if isinstance(index, float):
        return int(index) if math.isfinite(index) else None
    if isinstance(index, str):
        stripped = index.strip()
        is_number = stripped.isascii() and stripped.isdigit() and len(stripped) < 10
        return int(stripped) if is_number else stripped or None
    return index if isinstance(index, int) else None


def _cost(piece: Piece) -> int:
    """Return how many bytes it takes to keep the piece, roughly."""
    match piece:
        case TextPiece():
            tops = [each.get("top_logprobs") for each in piece.logprobs if isinstance(each, dict)]
            tokens = len(piece.logprobs) + sum(len(top) for top in tops if isinstance(top, list))
            return _PIECE_BYTES + len(piece.text) + _ENTRY_BYTES * tokens
        case CallPiece():
            return _PIECE_BYTES + len(piece.arguments)
        case Cited():
            return _ENTRY_BYTES * (1 + len(piece.annotations))
        case Detailed():
            texts = (v for each in piece.thoughts for v in each.values() if isinstance(v, str))
            return _ENTRY_BYTES * (1 + len(piece.thoughts)) + sum(map(len, texts))
