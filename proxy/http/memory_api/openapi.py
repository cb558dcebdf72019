"""The OpenAPI 3.1 document at /openapi.json, made of the operations and schemas that serve requests.

Of the model routes, which are the upstream's, model_routes.yaml describes what the proxy adds.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import orjson
import yaml
from pydantic import TypeAdapter

from proxy.domain.core import KINDS, Level, Reason, Status
from proxy.domain.errors import MethodNotAllowed
from proxy.http.asgi import ASGIScope, Receive, Send, send_bytes
from proxy.http.memory_api import inspection, memories, recall, transfer
from proxy.http.memory_api import response_schemas as shapes
from proxy.http.memory_api.app import Operation, operations_of

OPERATIONS = tuple(
    operation
    for module in (memories, recall, transfer, inspection)
    for endpoints in vars(module).values()
    if isinstance(endpoints, type)
    for operation in operations_of(endpoints)
)
_NDJSON = transfer.MEDIA_TYPES[0]
_SUCCESSES = {200: "Done.", 201: "Stored.", 202: "Accepted."}
_REFUSALS = {404: "There is no such thing here; another user's is as absent.",
             409: "Another memory says just that.", 413: "The body is too large."}  # fmt: skip
_COMMON_REFUSALS = {400: "The request is malformed; `param` names what.",
                    401: "No credential, or an invalid one.", 403: "The credential does not allow it.",
                    429: "Too many requests; see Retry-After.",
                    503: "The memory store cannot be used at the moment."}  # fmt: skip


@dataclass(frozen=True, slots=True)
class OpenApi:
    version: str
    server_url: str = "."  # relative to the document, so that it is right behind a front end's sub-path

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            raise MethodNotAllowed(scope["method"], ("GET",))
        body = orjson.dumps(document(self.version, self.server_url))
        await send_bytes(send, 200, body, b"application/json")


@cache
def document(version: str, server_url: str = ".") -> dict[str, Any]:
    schemas, definitions = _schemas()
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, schemas)
    routes: dict[str, Any] = yaml.safe_load((files(__package__) / "model_routes.yaml").read_text("utf-8"))
    paths |= _model_paths(routes)
    components = routes["components"]
    components["schemas"]["MemoryConfig"]["properties"]["memory_types"]["items"]["enum"] = sorted(KINDS)
    for name, values in (("Status", Status), ("Reason", Reason), ("Level", Level)):
        components["headers"][f"X-Memory-{name}"]["schema"]["enum"] = [value.value for value in values]
    components["schemas"] |= definitions
    components["securitySchemes"] = {"credential": {"type": "http", "scheme": "bearer"}}
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
        "paths": paths,
        "components": components,
    }


# ---------------------------------------------------------------- the memory API
def _schemas() -> tuple[dict[Any, Any], dict[str, Any]]:
    """Return the schema of each model and shape of the operations (a reference), and the definitions that
    these refer to."""
    bodies = {model for operation in OPERATIONS for model in (operation.body, operation.takes_lines)}
    models: set[Any] = bodies | {shapes.ErrorBody}
    for operation in OPERATIONS:
        models |= {operation.lines, *operation.answers.values()}
    inputs = [(model, "validation" if model in bodies else "serialization", TypeAdapter(model))
              for model in sorted(models - {None}, key=lambda m: str(m.__name__))]  # fmt: skip
    template = "#/components/schemas/{model}"
    by_key, shared = TypeAdapter.json_schemas(inputs, ref_template=template)  # type: ignore[arg-type]
    return {key: schema for (key, _), schema in by_key.items()}, shared.get("$defs", {})


def _operation(operation: Operation, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    fields = operation.query.model_json_schema().get("properties", {})
    in_query = [{"name": name, "in": "query", "schema": _given(schema)} for name, schema in fields.items()]
    responses: dict[str, Any] = {
        str(status): {"description": _SUCCESSES[status], "content": _json(schemas[shape])}
        for status, shape in operation.answers.items()
    }
    if operation.lines is not None:
        responses["200"] = _lines(schemas[operation.lines])
    refusals = _COMMON_REFUSALS | {status: _REFUSALS[status] for status in operation.refusals or ()}
    for status, words in sorted(refusals.items()):
        responses[str(status)] = {"description": words, "content": _json(schemas[shapes.ErrorBody])}
    described: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": ["memory"],
        "parameters": [*_path_parameters(operation.path, minLength=1), *in_query],
        "responses": responses,
    }
    if operation.body is not None:
        content = _json(schemas[operation.body])
        described["requestBody"] = {"required": not operation.body_optional, "content": content}
    if operation.takes_lines is not None:
        described["requestBody"] = {"required": True, **_lines(schemas[operation.takes_lines])}
    return described


def _json(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _lines(schema: Any) -> dict[str, Any]:
    content = {_NDJSON: {"schema": {"type": "string"}, "x-line": schema}}
    return {"description": "One object a line.", "content": content}


def _path_parameters(path: str, **schema: Any) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", **schema}}
        for name in re.findall(r"\{(\w+)\}", path)
    ]


def _given(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a parameter's schema without `null`: a parameter is absent, never null."""
    given = {key: value for key, value in schema.items() if key not in ("anyOf", "title")}
    if given.get("default", "") is None:
        del given["default"]
    for choice in schema.get("anyOf", ()):
        if choice != {"type": "null"}:
            given |= choice
    return given


# ---------------------------------------------------------------- the other routes
def _model_paths(routes: Mapping[str, Any]) -> dict[str, Any]:
    components, added = routes["components"], routes["added"]
    added["parameters"] = [{"$ref": f"#/components/parameters/{name}"} for name in components["parameters"]]
    headers = {name: {"$ref": f"#/components/headers/{name}"} for name in components["headers"]}
    added["responses"]["200"]["headers"] = headers
    see = {"model": "See OpenAI's reference.", "operations": "As the summary says."}
    paths: dict[str, Any] = {}
    for tag in ("with_memory", "model", "operations"):
        for path, operations in routes[tag].items():
            about = added
            if tag != "with_memory":
                about = {"tags": [tag], "responses": {"default": {"description": see[tag]}}}
                about |= {"parameters": named} if (named := _path_parameters(path)) else {}
            paths[path] = {
                method: {"operationId": id_, "summary": summary, **about}
                for method, id_, summary in operations
            }
    return paths
