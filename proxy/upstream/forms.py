"""The form of request that a model takes: learnt by asking, per upstream and model.

Servers differ in what they refuse: a system message in mid-conversation, any system role, a field that they
do not know, thoughts on earlier answers, a JSON schema, a request that does not stream. A `Form` holds what
one model takes. `next_attempt` decides, without I/O, how a refused request is asked again. `Forms` keeps what
was found, with a bound and for a day, since servers are updated.

The rules of asking again:
- Only what the proxy added, or made of a translated request, changes between two attempts. The last attempt
  is the request without memory; if that is refused too, the refusal is the request's own: nothing is learnt.
- A refusal that names what it does not take is believed. One that names nothing is tested by trying, in few
  steps: first a placement that leaves number and roles of the messages as the client sent them.
- What is not about form (credentials, quotas, unknown models, length, filters) is never a reason to learn.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from proxy import telemetry
from proxy.domain.errors import InvalidRequest
from proxy.domain.limits import TTLCache
from proxy.domain.ports import CompletionRequest, FormStore
from proxy.wire.body import loads
from proxy.wire.http import unpacked

LEARNT_FOR_S = 86_400.0  # servers are updated: what one refused is tried again after a day
SUSPECTED_FOR_S = 600.0  # a placement that was refused when only a request without memory was taken
MAX_LEARNT = 1_000  # models: some servers take any name, and clients choose it
MAX_ATTEMPTS = 6  # of one client request, the first included
READ_BYTES = 64 * 1024  # of a refusal
REFRESH_S = 5.0  # between two looks at what other processes have learnt
_READ_CHARS = 4_000
_LOGGED_CHARS = 100  # of a model's name

PLACEMENTS = ("before_last_user", "merge_system", "in_user")
"""The placements of memory that `auto` chooses from, in its order of preference."""


# ---------------------------------------------------------------- what a model takes
@dataclass(frozen=True, slots=True)
class Form:
    """What one model takes. The defaults are for models of which nothing is known."""

    placement: str = "before_last_user"  # of memory, if the setting is `auto`
    omit: tuple[str, ...] = ()  # fields that are left out of a translated request
    limit: str = ""  # the name of the limit of tokens that it takes; "": as translated
    thoughts: str = "loop"  # earlier answers with `reasoning_content`: of this tool loop | all | none
    tool_media: bool = True  # images and files inside tool messages
    begins_in_thoughts: bool = False  # its answers, without the mark that begins thoughts
    joined: bool = False  # messages of one role in a row are one, in a translated request
    system: bool = True  # a system role, in translated requests and the proxy's own calls
    streams_only: bool = False  # translated requests and the proxy's own calls are streamed
    # Of the proxy's own calls:
    json: str = "json_schema"  # | json_object | ""
    own_limit: str = "max_tokens"  # | max_completion_tokens | ""
    temperature: bool = True


DEFAULT = Form()
_VALUES: Mapping[str, Collection[str]] = {
    "placement": PLACEMENTS,
    "limit": ("", "max_tokens", "max_completion_tokens"),
    "thoughts": ("loop", "all", "none"),
    "json": ("json_schema", "json_object", ""),
    "own_limit": ("max_tokens", "max_completion_tokens", ""),
}


def dumped(form: Form) -> dict[str, Any]:
    """Return the fields that differ from the default, fit for JSON."""
    default = asdict(DEFAULT)
    return {name: value for name, value in asdict(form).items() if value != default[name]}


def loaded(value: object) -> Form:
    """Return the form that was dumped. A value that this version does not know is the default."""
    given = value if isinstance(value, dict) else {}
    known: dict[str, Any] = {
        name: found
        for name, found in given.items()
        if isinstance(found, bool) and isinstance(getattr(DEFAULT, name, None), bool)
    }
    known |= {name: given[name] for name, values in _VALUES.items() if given.get(name) in values}
    if isinstance(omit := given.get("omit"), list):
        known["omit"] = tuple(name for name in omit if isinstance(name, str))
    return Form(**known)


# ---------------------------------------------------------------- what a refusal says
_MAY_BE_FORM = (400, 413, 422, 500, 501)
_TOO_LARGE = 413
_UNRELATED = frozenset(
    "invalid_api_key insufficient_quota model_not_found rate_limit_exceeded authentication_error"
    " permission_error permission_denied billing_hard_limit_reached deployment_not_found".split()
)
_OF_CONTENT = frozenset(
    "context_length_exceeded string_above_max_length exceed_context_size_error content_filter"
    " content_policy_violation data_inspection_failed responsibleaipolicyviolation".split()
)
# Phrases only shorten the way to the request without memory: they never end it.
_NOT_FORM = re.compile(
    r"context.{0,20}(?:length|window|size)|input length|prompt is too long|too many tokens|too large"
    r"|(?:maximum|exceed)\w*.{0,60}(?:tokens|length|context)|tokens?.{0,40}exceed|reduce the length"
    r"|content.{0,20}(?:filter|policy)|\bsafety\b|moderation|api[ _-]?key|credential|authenticat|quota"
    r"|billing",
)
_OF_MESSAGES = re.compile(r"\broles?\b|\bsystem\b.{0,20}\b(?:message|role|prompt)|alternat|template|jinja")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an upstream refused a request."""

    status: int
    text: str  # in lower case, its beginning
    words: frozenset[str] = frozenset()  # its codes and types
    fields: frozenset[str] = frozenset()  # request fields that it names by structure, top level and innermost

    @property
    def is_unrelated(self) -> bool:
        """True if no change of ours can matter. A server error must mention the form: all others pass."""
        if self.status >= 500:
            return self.text.startswith("<") or not self.is_of_messages
        return bool(self.words & _UNRELATED)

    @property
    def is_of_content(self) -> bool:
        """True if the request is too long, or what it says is not wanted: in no form would it be taken."""
        if self.status == _TOO_LARGE or self.words & _OF_CONTENT:
            return True
        return not self.is_of_messages and bool(_NOT_FORM.search(self.text))

    @property
    def is_of_messages(self) -> bool:
        """True if it mentions roles, system messages or a chat template."""
        return bool(_OF_MESSAGES.search(self.text))

    def names(self, field: str) -> bool:
        """True if it names the field of the request: by structure, else as a word of its text."""
        if self.fields:
            return field in self.fields
        name = re.escape(field)
        if "_" not in field:  # an English word, too: only if it is written as a name
            name = rf"['\"`]{name}['\"`]|(?:parameter|property|field|argument|input)s?:? {name}|{name}(?=: )"
        return re.search(rf"(?<!\w)(?:{name})(?!\w)", self.text) is not None


def may_be_form(status: int) -> bool:
    """True for the statuses with which servers refuse a request's form."""
    return status in _MAY_BE_FORM


def refusal_of(status: int, body: bytes, content_encoding: str = "") -> Refusal:
    """Read a refusal of any shape: OpenAI's error object, a list of `detail`, plain text."""
    plain = unpacked(body, content_encoding, READ_BYTES)
    text = plain[:_READ_CHARS].decode("utf-8", "replace").lstrip().lower()
    try:
        value = loads(plain)
    except (ValueError, RecursionError, InvalidRequest):
        return Refusal(status, text)
    words, named = set[str](), set[str]()
    for holder in _objects(value, 6):
        words |= {str(holder[name]).lower() for name in ("code", "type", "reason") if holder.get(name)}
        if isinstance(param := holder.get("param"), str):
            named |= _ends(re.findall(r"[A-Za-z_]\w*", param[:200]))
        if isinstance(loc := holder.get("loc"), list):
            named |= _ends([name for name in loc if isinstance(name, str)])
    return Refusal(status, text, frozenset(words), frozenset(named))


def error_at_start(head: bytes, *, whole: bool = False) -> Refusal | str | None:
    """Return the error that an answer of status 200 begins with; "answer" if it begins with none, "document"
    if the whole of it has to be read, None if more of its beginning has to."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"{"):
        if not whole:
            return "document" if _ERROR_FIRST.match(text) else "answer" if len(text) > _HEAD else None
        return _inner_error(text) or "answer"
    if text and text[:1] not in b":deir":  # neither a comment nor a field of an event
        return "answer"
    lines = text.split(b"\n")[:-1]
    for line in lines:
        if line.startswith(b"data:"):
            return _inner_error(line.removeprefix(b"data:")) or "answer"
        if line.strip() and not line.startswith((b":", b"event:", b"id:", b"retry:")):
            return "answer"
    return None


def _inner_error(text: bytes) -> Refusal | None:
    try:
        value = loads(text)
    except (ValueError, RecursionError, InvalidRequest):
        return None
    error = value.get("error") if isinstance(value, dict) else None
    if not error or not isinstance(error, dict | str):
        return None
    code = error.get("code") if isinstance(error, dict) else None
    status = code if isinstance(code, int) and not isinstance(code, bool) and 400 <= code < 600 else 400
    return refusal_of(status, text.strip()) if may_be_form(status) else None


_HEAD = 64  # bytes in which a document that is an error says so
_ERROR_FIRST = re.compile(rb'\{\s*"error"\s*:\s*[\{"]')


def _ends(path: Sequence[str]) -> set[str]:
    names = [name for name in path if name not in ("body", "request")]
    return {names[0], names[-1]} if names else set()


def _objects(value: object, depth: int) -> Iterator[dict[str, Any]]:
    """Yield the objects in an error, but not what it quotes of the request."""
    if depth and isinstance(value, dict):
        yield value
        for name, each in value.items():
            if name not in ("input", "ctx", "body"):
                yield from _objects(each, depth - 1)
    elif depth and isinstance(value, list):
        for each in value[:20]:
            yield from _objects(each, depth - 1)


# ---------------------------------------------------------------- how to ask again
@dataclass(frozen=True, slots=True)
class Attempt:
    """One way to ask: in this form, with memory or without."""

    form: Form
    memory: bool = True

    def changed(self, **changes: Any) -> "Attempt":
        """Return the attempt with these fields of its form changed."""
        return replace(self, form=replace(self.form, **changes))

    def omitting(self, names: Collection[str]) -> "Attempt":
        """Return the attempt without these fields of the request."""
        return self.changed(omit=tuple(sorted({*self.form.omit, *names})))


@dataclass(frozen=True, slots=True)
class RequestTraits:
    """What of a request may be changed, and how."""

    memory: bool = False  # it holds memory, or a shorter history
    movable: bool = False  # memory may be placed elsewhere: the setting is `auto`
    same_shape: str = ""  # the placement that adds no message; "": there is none
    written: frozenset[str] = frozenset()  # fields that the client wrote and that are forwarded unchanged
    optional: frozenset[str] = frozenset()  # fields of a translated request that may be left out
    limit: str = ""  # the name that a translated request has for the limit of tokens
    thoughts: bool = False  # a translated request with earlier answers
    tool_media: bool = False  # a translated request with an image or file inside a tool message
    neighbours: bool = False  # a translated request in which messages of one role follow each other
    system: bool = False  # a translated request in which the system says something
    whole: bool = False  # a translated request that asks for no stream

    @property
    def translated(self) -> bool:
        """True if more than memory may be changed."""
        by_fields = self.optional or self.limit or self.thoughts or self.tool_media
        return bool(by_fields or self.neighbours or self.system or self.whole)


_OF_MEDIA = re.compile(r"\btool|image|multimodal|content.{0,60}(?:string|str\b|array|list|type)")
_OF_A_MESSAGE = frozenset(("messages", "input", "instructions", "role", "content"))
_OF_STREAMS = re.compile(r"\bstream")
_WANTED = re.compile(
    r"missing|must be (?:passed|provided|included|present)|require|pass(?:ed)? back|lack|need"
)


def next_attempt(last: Attempt, request: RequestTraits, refusal: Refusal) -> Attempt | None:
    """Return how to ask again after this refusal of `last`; None if the client is to see the refusal."""
    if refusal.is_unrelated:
        return None
    has_memory, form = request.memory and last.memory, last.form
    if named := {name for name in request.optional - set(form.omit) if refusal.names(name)}:
        return last.omitting(named)
    if not refusal.is_of_content:
        if rewritten := _as_it_says(last, request, refusal):
            return rewritten
        if refusal.fields & request.written and not refusal.fields & _OF_A_MESSAGE:
            return None
        has_media = request.tool_media and form.tool_media
        if has_media and _OF_MEDIA.search(refusal.text):
            return last.changed(tool_media=False)
        if has_memory and request.movable and form.placement != request.same_shape != "":
            return last.changed(placement=request.same_shape)
        if has_media:
            return last.changed(tool_media=False)
        if refusal.is_of_messages:  # fewer kinds of messages, for a template
            joins = request.neighbours and not form.joined
            if request.system and form.system and ("system" in refusal.text or not joins):
                return last.changed(system=False)
            if joins:
                return last.changed(joined=True)
        elif left := request.optional - set(form.omit):
            return last.omitting(left)
    return replace(last, memory=False) if has_memory else None


def _as_it_says(last: Attempt, request: RequestTraits, refusal: Refusal) -> Attempt | None:
    """Return the attempt with what the refusal names written otherwise, if the translation wrote it."""
    form = last.form
    if request.whole and not form.streams_only and _OF_STREAMS.search(refusal.text):
        return last.changed(streams_only=True)
    if request.limit and refusal.names(request.limit) and not form.limit:
        is_new = request.limit == "max_completion_tokens"
        return last.changed(limit="max_tokens" if is_new else "max_completion_tokens")
    if request.thoughts and refusal.names("reasoning_content"):
        refused = "extra" in refusal.text or not _WANTED.search(refusal.text)
        wanted = "none" if refused else "all"
        if form.thoughts != wanted:
            return last.changed(thoughts=wanted)
    return None


# ---------------------------------------------------------------- the proxy's own calls
_FORMAT_WORDS = ("response_format", "json_schema", "json_object", "schema", "grammar", "guided")


def own_options(
    form: Form, request: CompletionRequest, *, max_tokens: int | None, temperature: float | None
) -> dict[str, Any]:
    """Return the body of one of our own calls, its model aside."""
    messages = [{"role": "system", "content": request.system}, {"role": "user", "content": request.user}]
    if not form.system:
        messages = [{"role": "user", "content": f"{request.system}\n\n{request.user}"}]
    found: dict[str, Any] = {"messages": messages}
    if form.json == "json_schema" and request.schema is not None:
        schema = {"name": request.role, "schema": dict(request.schema), "strict": True}
        found["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif form.json:
        found["response_format"] = {"type": "json_object"}
    if form.own_limit and max_tokens is not None:
        found[form.own_limit] = max_tokens
    if form.temperature and temperature is not None:
        found["temperature"] = temperature
    if form.streams_only:
        found["stream"] = True
    return found


def easier(form: Form, refusal: Refusal) -> Form | None:
    """Return the form without what the refusal of an own call names. If it names nothing of ours, with less:
    no schema, no options, no system role, then streamed. None if nothing is left to give up, and after a
    server error that has no cause in the options."""
    if named := easier_by_name(form, refusal):
        return named
    if (refusal.is_unrelated and refusal.status < 500) or refusal.is_of_content:
        return None
    plain = replace(form, json="", own_limit="", temperature=False)
    if refusal.status >= 500:
        return plain if form.json else None
    if form.json == "json_schema":
        return replace(form, json="json_object")
    if form != plain:
        return plain
    if form.system:
        return replace(form, system=False)
    return None if form.streams_only else replace(form, streams_only=True)


def easier_by_name(form: Form, refusal: Refusal) -> Form | None:
    """Return the form without what the refusal of an own call names; None if it names nothing of ours."""
    text = refusal.text
    if form.own_limit and ("max_tokens" in text or "max_completion_tokens" in text):
        other = "max_completion_tokens" if form.own_limit == "max_tokens" else ""
        return replace(form, own_limit=other)
    if form.temperature and "temperature" in text:
        return replace(form, temperature=False)
    if not form.streams_only and _OF_STREAMS.search(text):
        return replace(form, streams_only=True)
    if form.json and any(word in text for word in _FORMAT_WORDS):
        return replace(form, json="json_object" if form.json == "json_schema" else "")
    if form.system and refusal.is_of_messages:
        return replace(form, system=False)
    return None


# ---------------------------------------------------------------- what was learnt
@dataclass(frozen=True, slots=True)
class ModelRoute:
    """A model at an upstream, on one route: the key of a known form."""

    upstream: str  # the base URL
    name: str
    route: str = "chat"  # | responses


@dataclass(frozen=True, slots=True)
class _Learnt:
    form: Form
    until: float


class Forms:
    """What was learnt of each of the last models. Times are Unix seconds: they outlive the process."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._learnt = TTLCache[ModelRoute, _Learnt](MAX_LEARNT)
        self._suspected = TTLCache[ModelRoute, frozenset[str]](MAX_LEARNT, ttl_s=SUSPECTED_FOR_S, clock=clock)
        self._proven = TTLCache[tuple[ModelRoute, str], bool](MAX_LEARNT)
        self._unsaved: set[ModelRoute] = set()
        self._loaded_at = float("-inf")

    def of(self, model: ModelRoute) -> Form:
        """Return the form that the model is known to take."""
        found = self._learnt.get(model)
        if found is None or not 0 < found.until - self._clock() <= LEARNT_FOR_S:  # above: the clock was set
            return DEFAULT
        return found.form

    def is_proven(self, model: ModelRoute, attempt: Attempt) -> bool:
        """True if the model has taken memory at this placement: no error is looked for in its answers."""
        return (model, attempt.form.placement) in self._proven

    def prove(self, model: ModelRoute, attempt: Attempt) -> None:
        """Remember that the model took memory at this placement."""
        self._proven.put((model, attempt.form.placement), True)

    def suspected(self, model: ModelRoute) -> frozenset[str]:
        """Return the placements that the model may refuse: each was refused when none was taken."""
        return self._suspected.get(model) or frozenset()

    def learn(self, model: ModelRoute, before: Form, after: Form) -> None:
        """Remember that the model, which refused the form `before`, took `after`."""
        changes = {n: getattr(after, n) for n in Form.__slots__ if getattr(after, n) != getattr(before, n)}
        if not changes:
            return
        if "placement" in changes:
            self._suspected.pop(model)
        self._learnt.put(model, _Learnt(replace(self.of(model), **changes), self._clock() + LEARNT_FOR_S))
        self._unsaved.add(model)
        facts = {name: ", ".join(v) if isinstance(v, tuple) else v for name, v in changes.items()}
        name = model.name[:_LOGGED_CHARS]
        telemetry.log.info("form.learnt", model=name, upstream=model.upstream, route=model.route, **facts)

    def suspect(self, model: ModelRoute, placements: Collection[str]) -> None:
        """Remember for a while that these were refused, and the request without memory was taken."""
        names = self.suspected(model) | frozenset(placements)
        self._suspected.put(model, names)
        for placement in PLACEMENTS:  # what is taken next is to be learnt
            self._proven.pop((model, placement))
        name = model.name[:_LOGGED_CHARS]
        telemetry.log.warning("form.memory_refused", model=name, placements=", ".join(sorted(names)))

    # ------------------------------------------------------------ with other processes, and after a restart
    async def sync(self, store: FormStore) -> None:
        """Save what is new, and now and then load what other processes have learnt. Raises StoreError."""
        if self._unsaved:
            saving = {each: learnt for each in self._unsaved if (learnt := self._learnt.get(each))}
            rows = {
                json.dumps([model.upstream, model.route, model.name]): json.dumps(
                    {"until": learnt.until, "form": dumped(learnt.form)}
                )
                for model, learnt in saving.items()
            }
            await store.save(rows, MAX_LEARNT)
            self._unsaved = {m for m in self._unsaved if self._learnt.get(m) is not saving.get(m)}
        at = self._clock()
        if not 0 <= at - self._loaded_at < REFRESH_S:
            self._loaded_at = at
            for model, learnt in sorted(_read(await store.load()), key=lambda each: each[1].until):
                known = self._learnt.get(model)
                if known is None or known.until < learnt.until:
                    self._learnt.put(model, learnt)


@dataclass(frozen=True, slots=True)
class Learning:
    """How requests to one upstream are written: the setting `memory.placement`, and what was learnt."""

    forms: Forms
    upstream: str = ""
    setting: str = "auto"

    @property
    def is_auto(self) -> bool:
        """True if the placement follows what the model takes."""
        return self.setting == "auto"

    def model(self, name: str, route: str, endpoint: str | None = None) -> ModelRoute:
        """Return the key of a known form: a model of the upstream, or of its own endpoint. A query
        string is left out: it may hold a credential, and names are logged."""
        return ModelRoute((endpoint or self.upstream).partition("?")[0], name, route)

    def first(self, model: ModelRoute) -> Attempt:
        """Return how a request is asked first: without memory while every placement is suspected."""
        form, placement = self.forms.of(model), self.setting
        if self.is_auto:
            preferred, suspected = form.placement if form.system else "in_user", self.forms.suspected(model)
            free = (each for each in (preferred, *PLACEMENTS) if each not in suspected)
            placement = next(free, "")
        if placement == form.placement:
            return Attempt(form)
        return Attempt(replace(form, placement=placement or form.placement), memory=bool(placement))

    def took(self, model: ModelRoute, first: Attempt, taken: Attempt) -> None:
        """Note that the model took memory in this form, after it had refused the first one if they differ.
        A form that was chosen in the place of suspected placements is learnt, too."""
        before = self.forms.of(model) if self.is_auto else first.form
        self.forms.learn(model, before, taken.form)
        self.forms.prove(model, taken)


def described(rows: Mapping[str, str], now: float) -> list[str]:
    """Return a line for people on each model of which something is known."""
    return [
        f"{model.name} at {model.upstream} ({model.route}): "
        + ", ".join(f"{name}={value}" for name, value in dumped(learnt.form).items())
        for model, learnt in sorted(_read(rows), key=lambda each: -each[1].until)
        if learnt.until > now
    ]


def _read(rows: Mapping[str, str]) -> Iterator[tuple[ModelRoute, _Learnt]]:
    """Yield what can be read of the rows: another version may have written some."""
    for key, row in rows.items():
        try:
            upstream, route, name = json.loads(key)
            value = json.loads(row)
            until = float(value["until"])
        except (ValueError, TypeError, LookupError, RecursionError):
            continue
        yield ModelRoute(str(upstream), str(name), str(route)), _Learnt(loaded(value.get("form")), until)
