"""The OpenAPI document is true: what it says is what is served, and what it does not say is refused."""

import json
import re
from pathlib import Path
from typing import Any

import httpx2
from jsonschema import Draft202012Validator

from proxy import __version__
from proxy.config import load
from proxy.domain.core import Reason
from proxy.http.memory_api.app import Operation
from proxy.http.memory_api.openapi import OPERATIONS, document
from proxy.http.memory_api.request_schemas import SearchBody
from proxy.http.responses.endpoints import ConversationsApi, ResponsesApi, stored_app

DOCUMENT = document("1.2.3")
README = Path(__file__).parents[3] / "README.md"
EDGE = Path(__file__).parents[3] / "proxy/http"


def resolved(schema: Any) -> Any:
    """Return the schema with its references put in."""
    if isinstance(schema, list):
        return [resolved(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return resolved(DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    return {key: resolved(value) for key, value in schema.items()}


def closed(schema: Any) -> Any:
    """Return the schema without room for what it does not name: an answer must hold nothing else."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    return {"additionalProperties": False, **made} if "properties" in made else made


def described(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENT["paths"][operation.path][operation.method.lower()]
    return found


async def send(http: httpx2.AsyncClient, operation: Operation, request: dict[str, Any]) -> httpx2.Response:
    path = operation.path.format(**request["path"])
    more: dict[str, Any] = {}
    body = request["body"]
    if operation.body is not None and (body is not None or not operation.body_optional):
        more = {"content": json.dumps(body), "headers": {"content-type": "application/json"}}
    elif operation.takes_lines is not None:
        lines = "\n".join(json.dumps(line) for line in body)
        more = {"content": lines, "headers": {"content-type": "application/x-ndjson"}}
    return await http.request(operation.method, path.removeprefix("/v1"), params=request["query"], **more)


def check(operation: Operation, answer: httpx2.Response) -> None:
    responses = described(operation)["responses"]
    assert str(answer.status_code) in responses, answer.text
    ((media_type, media),) = responses[str(answer.status_code)]["content"].items()
    assert answer.headers["content-type"] == media_type
    if "x-line" in media:
        validator = Draft202012Validator(closed(resolved(media["x-line"])))
        for line in answer.text.splitlines():
            validator.validate(json.loads(line))
        return
    Draft202012Validator(closed(resolved(media["schema"]))).validate(answer.json())


PLAIN: dict[str, dict[str, Any]] = {
    "addMemory": {"body": {"content": "User owns a canoe.", "user_id": "alice"}},
    "searchMemories": {"body": {"query": "figs", "user_id": "alice"}},
    "explainRecall": {
        "body": {"messages": [{"role": "user", "content": "Do I like figs?"}], "user_id": "alice"}
    },
    "importMemories": {"body": [{"content": "User sails.", "user_id": "alice"}]},
    "endSession": {"body": {"user_id": "alice"}},
    "editMemory": {"body": {"content": "User likes dates."}},
    "decideContradiction": {"body": {"keep": "newer"}},
    "setEvolutionSettings": {"body": {"half_life_days": 7}},
    "evolveMemories": {"body": {"user_id": "alice"}},
    "postDocument": {"body": {"name": "Guide", "content": "# Figs\n\nPick them ripe.", "user_id": "alice"}},
}
WITHOUT_SUBJECT = (
    "retryJob", "releaseQuarantined", "discardQuarantined", "getDocument", "deleteDocument",
    "undoConsolidation", "decideContradiction",
    "listMemoriesOfEntity",
)  # fmt: skip


IDS = {
    "memory_id": "mem_1", "session_id": "s", "job_id": "1", "held_id": "q", "document_id": "d",
    "contradiction_id": "c", "entity_id": "e",
}  # fmt: skip


def subject(operation: Operation) -> dict[str, str]:
    return {"user_id": "alice"} if "user_id" in operation.query.model_fields else {}


async def test_every_operation_succeeds_as_documented(bench):
    await bench.http.delete("/memory", params={"user_id": "bob"})
    for operation in OPERATIONS:
        made = await bench.add(f"User uses {operation.id}.", tags=["food"])
        request = {"path": IDS | {"memory_id": made["id"]}, "query": subject(operation), "body": None}
        answer = await send(bench.http, operation, request | PLAIN.get(operation.id, {}))
        check(operation, answer)
        assert answer.is_success or operation.id in WITHOUT_SUBJECT, answer.text


async def test_a_parameter_or_field_that_is_not_documented_is_refused(bench):
    for operation in OPERATIONS:
        request = {"path": IDS, "query": {**subject(operation), "force": "1"}, "body": []}
        answer = await send(bench.http, operation, request | PLAIN.get(operation.id, {}))
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "force"), operation.id
        if operation.body:
            body = {**PLAIN[operation.id]["body"], "colour": "red"}
            answer = await send(bench.http, operation, {"path": IDS, "query": {}, "body": body})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "colour"), operation.id


def test_every_schema_is_a_valid_one_and_every_reference_leads_somewhere():
    for schema in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(resolved(schema))
    text = json.dumps(DOCUMENT)
    for part in text.split('"$ref": "')[1:]:
        _, kind, section, name = part.partition('"')[0].split("/")
        assert name in DOCUMENT[kind][section]


def test_every_response_header_of_ours_is_in_it():
    """Read in the sources: no one answer has them all."""
    written = "".join(
        path.read_text("utf-8") for path in EDGE.rglob("*.py") if "memory_api" not in path.parts
    )
    named = set(re.findall(r'"(x-memory-[a-z-]+|server-timing)"', written))
    assert named == {name.lower() for name in DOCUMENT["components"]["headers"]}
    assert DOCUMENT["components"]["headers"]["X-Memory-Reason"]["schema"]["enum"] == [r.value for r in Reason]


def test_the_readme_names_every_header_and_every_field_of_a_search():
    readme = README.read_text("utf-8")
    assert not [header for header in DOCUMENT["components"]["headers"] if f"`{header}`" not in readme]
    (row,) = re.findall(r"^\| `POST /v1/memory/search` `\{(.+)\}` \|", readme, re.MULTILINE)
    assert set(re.findall(r'"(\w+)"\??(?=[,:]|$)', row)) == set(SearchBody.model_fields)


def test_the_routes_of_stored_objects_are_all_in_it():
    """Made without parts: only the routes are looked at."""
    hollow: Any = stored_app(object.__new__(ResponsesApi), object.__new__(ConversationsApi))
    for route in hollow.routes:
        for method in route.methods - {"HEAD"}:
            assert method.lower() in DOCUMENT["paths"][route.path], f"{method} {route.path}"


async def test_the_document_is_served_to_readers_only(bench):
    async with httpx2.AsyncClient(base_url=bench.origin) as http:
        answer = await http.get("/openapi.json")
        assert answer.headers["content-type"] == "application/json"
        assert answer.json() == json.loads(json.dumps(document(__version__)))
        refused = await http.post("/openapi.json")
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")


def test_the_server_is_the_address_that_the_document_was_read_from_or_the_configured_one():
    assert document("1")["servers"] == [{"url": "."}]
    url = load(None, {}, {"server": {"public_url": "https://ai.example.com/memory/v1/"}}).server.public_url
    assert url is not None
    assert document("1", url)["servers"] == [{"url": "https://ai.example.com/memory"}]
