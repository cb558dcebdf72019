"""Build the OpenAPI 3.1 document at /openapi.json from the same table, bodies and shapes that serve requests.

The model routes are the upstream's; of them only what we add is described.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import orjson
from pydantic import TypeAdapter

from proxy.domain.errors import error_body
from proxy.http.asgi import ASGIScope, Receive, Send, send_bytes, send_json
from proxy.http.memory_api import answers as shapes
from proxy.http.memory_api.importing import MEDIA_TYPES
from proxy.http.memory_api.model_routes import COMPONENTS, PATHS
from proxy.http.memory_api.operations import OPERATIONS, Operation

_REF = "#/components/schemas/{model}"
_NDJSON = MEDIA_TYPES[0]
_ALWAYS = {400: "The request is malformed; `param` names what.", 401: "No credential, or one worth nothing.",
           403: "The credential does not allow it.", 429: "Too many requests; see Retry-After.",
           503: "The memory store cannot be used at the moment."}  # fmt: skip
_REFUSALS = {404: "There is no such thing here; somebody else's is as absent.",
             409: "Another memory says just that.", 413: "The body is too large."}  # fmt: skip
_SUMMARY_OF_STATUS = {200: "Done.", 201: "Stored.", 202: "Accepted."}


@dataclass(frozen=True, slots=True)
class OpenApi:
    """Serves the document."""

    version: str
    server_url: str = "."  # relative to the document, so that it is right behind a front end's sub-path

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            refusal = error_body(
                "Only GET is allowed here.", "invalid_request_error", None, "method_not_allowed"
            )
            await send_json(send, 405, refusal, [(b"allow", b"GET, HEAD")])
            return
        await send_bytes(send, 200, _rendered(self.version, self.server_url), b"application/json")


def document(version: str, server_url: str = ".") -> dict[str, Any]:
    """Return the whole document."""
    schemas, components = _schemas(_models())
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "memory-proxy",
            "version": version,
            "summary": "A memory across sessions for any OpenAI-compatible application",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": server_url}],
        "security": [{}, {"credential": []}],
        "paths": {**paths, **PATHS},
        "components": {
            **COMPONENTS,
            "schemas": {**COMPONENTS["schemas"], **components},
            "securitySchemes": {"credential": {"type": "http", "scheme": "bearer"}},
        },
    }


@cache
def _rendered(version: str, server_url: str) -> bytes:
    return orjson.dumps(document(version, server_url))


# ---------------------------------------------------------------- schemas
def _models() -> set[Any]:
    """Return every model and shape that the table names."""
    found: set[Any] = {shapes.Refusal}
    for operation in OPERATIONS:
        found |= {operation.body, operation.lines, operation.takes_lines, *operation.answers.values()}
    return found - {None}


def _schemas(models: Iterable[Any]) -> tuple[dict[Any, Any], dict[str, Any]]:
    """Return the schema of each model (a reference), and the components that these refer to."""
    inputs = [(model, "validation" if _is_input(model) else "serialization", TypeAdapter(model))
              for model in sorted(models, key=lambda m: str(m.__name__))]  # fmt: skip
    by_key, shared = TypeAdapter.json_schemas(inputs, ref_template=_REF)  # type: ignore[arg-type]
    return {key: schema for (key, _), schema in by_key.items()}, shared.get("$defs", {})


def _is_input(model: Any) -> bool:
    return any(model in (o.body, o.takes_lines) for o in OPERATIONS)


def _operation(operation: Operation, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": ["memory"],
        "parameters": [*_path_parameters(operation), *_query_parameters(operation)],
        "responses": _responses(operation, schemas),
    }
    if operation.body is not None:
        needed = not operation.may_lack_body
        described["requestBody"] = {"required": needed, "content": _json(schemas[operation.body])}
    if operation.takes_lines is not None:
        line = schemas[operation.takes_lines]
        described["requestBody"] = {
            "required": True,
            "description": "One object a line.",
            "content": {_NDJSON: {"schema": {"type": "string"}, "x-line": line}},
        }
    return described


def _responses(operation: Operation, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {
        str(status): {"description": _SUMMARY_OF_STATUS[status], "content": _json(schemas[shape])}
        for status, shape in operation.answers.items()
    }
    if operation.lines is not None:
        line = {"schema": {"type": "string"}, "x-line": schemas[operation.lines]}
        responses["200"] = {"description": "One object a line.", "content": {_NDJSON: line}}
    refusals = {**_ALWAYS, **{status: _REFUSALS[status] for status in operation.refusals}}
    for status, words in sorted(refusals.items()):
        responses[str(status)] = {"description": words, "content": _json(schemas[shapes.Refusal])}
    return responses


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    return [
        {"name": part[1:-1], "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for part in operation.template
        if part.startswith("{")
    ]


def _query_parameters(operation: Operation) -> list[dict[str, Any]]:
    properties = operation.query.model_json_schema(ref_template=_REF).get("properties", {})
    return [{"name": name, "in": "query", "schema": _given(schema)} for name, schema in properties.items()]


def _given(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a parameter's schema: absent is not null."""
    given = {key: value for key, value in schema.items() if key not in ("anyOf", "title")}
    if given.get("default", "") is None:
        del given["default"]
    for choice in schema.get("anyOf", ()):
        if choice != {"type": "null"}:
            given |= choice
    if given.get("default") is False:
        given["default"] = "false"
    return given


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
