"""Parse and validate a request: its path, its query, its body. What is wrong is refused with its name in
`param`.
"""

from collections.abc import AsyncIterator, Mapping
from typing import TypeVar
from urllib.parse import unquote_to_bytes

import orjson
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from proxy.domain.errors import InvalidRequest, NotFound, TooLarge
from proxy.http.memory_api.bodies import Query
from proxy.wire.extensions import nearest

MAX_BODY_BYTES = 1_000_000
_SHOWN = 64  # characters of a client's own text in a message

Model = TypeVar("Model", bound=BaseModel)
QueryModel = TypeVar("QueryModel", bound=Query)


def segments_of(raw_path: bytes) -> tuple[str, ...]:
    """Return the path's segments, each decoded by itself: an id may hold `%2F`, and stays one id.

    Raises NotFound for a path that is not UTF-8: nothing has such a name.
    """
    try:
        return tuple(unquote_to_bytes(part).decode() for part in raw_path.strip().split(b"/")[1:])
    except UnicodeDecodeError:
        raise NotFound("Nothing here.") from None


def query_of(request: Request, model: type[QueryModel]) -> QueryModel:
    """Return the query's parameters. Unknown, empty or repeated ones are refused, never ignored: they were
    meant to narrow something."""
    given: dict[str, str] = {}
    for name, value in _pairs(request.scope["query_string"]):
        shown = name[:_SHOWN]
        if name not in model.model_fields:
            known = ", ".join(model.model_fields) or "none"
            raise InvalidRequest(
                f"Unknown parameter `{shown}`. Known: {known}.", param=shown, code="unknown_parameter"
            )
        if name in given:
            raise InvalidRequest(f"`{shown}` is given twice.", param=shown, code="invalid_value")
        if not value.strip():
            raise InvalidRequest(f"`{shown}` is empty.", param=shown, code="invalid_value")
        given[name] = value
    return checked(given, model)


async def body_of(request: Request, model: type[Model], *, may_lack: bool = False) -> Model:
    """Return the JSON body; with `may_lack` nothing is as good as `{}`. Raises InvalidRequest, TooLarge."""
    kind = media_type(request)
    if kind != "application/json" and (kind or not may_lack):
        # Also what keeps a web page from writing to a proxy on the visitor's own machine: a browser
        # asks before it sends JSON to another origin, and we never agree.
        why = "Send JSON, with Content-Type: application/json."
        raise InvalidRequest(why, param="content-type", code="invalid_value")
    raw = bytearray()
    async for chunk in stream_of(request):
        raw += chunk
        if len(raw) > MAX_BODY_BYTES:
            raise TooLarge(f"The body is larger than {MAX_BODY_BYTES} bytes.", param="body")
    if may_lack and not raw.strip():
        return checked({}, model)
    return checked(parsed(bytes(raw)), model)


async def refuse_body(request: Request) -> None:
    """Refuse a body that says something to an operation that takes none: it was meant to narrow it.
    Nothing, and `{}`, say nothing."""
    if request.method == "POST" and media_type(request) not in ("", "application/json"):
        # What an HTML form of any web page could send.
        raise InvalidRequest("This takes no such body.", param="content-type", code="invalid_value")
    said = b""
    async for chunk in stream_of(request):
        said += chunk.translate(None, b" \t\r\n")
        if not b"{}".startswith(said):
            why = "This takes no body and would not heed it: say it in the query, as in `?project_id=`."
            raise InvalidRequest(why, param="body", code="invalid_value")
    if said == b"{":
        raise InvalidRequest("The body is not valid JSON.", param="body", code="invalid_json")


async def stream_of(request: Request) -> AsyncIterator[bytes]:
    """Yield the body as it comes. Raises InvalidRequest if the client leaves before its end."""
    try:
        async for chunk in request.stream():
            yield chunk
    except ClientDisconnect:
        raise InvalidRequest("The client left before the body was complete.", param="body") from None


def media_type(request: Request) -> str:
    """Return the body's media type, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def parsed(raw: bytes) -> object:
    """Return the JSON value. NaN, lone surrogates and more than 1,024 levels are not JSON to us."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise InvalidRequest("The body is not valid JSON.", param="body", code="invalid_json") from None


def checked(value: object, model: type[Model]) -> Model:
    """Return the value as the model has it; else raise InvalidRequest, without the value, for its field.

    Of several wrong fields, one that is not known: it may be the one that is missing, misspelt."""
    try:
        return model.model_validate(value)
    except ValidationError as e:
        problems = e.errors(include_input=False, include_url=False, include_context=False)
        problem = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
        kind, place = problem["type"], problem["loc"]
        param = ".".join(str(part)[:_SHOWN] for part in place) or "body"
        if kind == "extra_forbidden":
            meant = nearest(param, model.model_fields) if len(place) == 1 else ""
            why = f"Unknown field `{param}`{meant}."
        elif kind == "missing":
            why = f"`{param}` is required."
        elif kind == "model_type":
            why = f"`{param}` must be a JSON object."
        else:
            why = f"`{param}`: {problem['msg'].removeprefix('Value error, ')}."
        raise InvalidRequest(why, param=param, code=_code_of(kind)) from None


_CODES = {
    "extra_forbidden": "unknown_parameter",
    "missing": "missing_required_parameter",
    "string_too_long": "string_above_max_length",
}


def _code_of(kind: str) -> str:
    """Return OpenAI's code for pydantic's kind of error: those that the routes to the model use."""
    return _CODES.get(kind, "invalid_type" if kind.endswith("_type") else "invalid_value")


def _pairs(query: bytes) -> list[tuple[str, str]]:
    pairs = []
    for part in filter(None, query.split(b"&")):
        raw_name, _, raw_value = part.partition(b"=")
        name = _decoded(raw_name, param="query")
        pairs.append((name, _decoded(raw_value, param=name[:_SHOWN])))
    return pairs


def _decoded(raw: bytes, *, param: str) -> str:
    try:
        return unquote_to_bytes(raw.replace(b"+", b" ")).decode()
    except UnicodeDecodeError:
        # Not replaced: two broken ids would become one.
        raise InvalidRequest("The query is not UTF-8.", param=param, code="invalid_value") from None


Captured = Mapping[str, str]


def captured(template: tuple[str, ...], segments: tuple[str, ...]) -> Captured | None:
    """Return what the segments put into the template's `{places}`, None if they do not fit it."""
    if len(template) != len(segments):
        return None
    found: dict[str, str] = {}
    for place, segment in zip(template, segments, strict=True):
        if place.startswith("{") and segment:
            found[place[1:-1]] = segment
        elif place != segment:
            return None
    return found
