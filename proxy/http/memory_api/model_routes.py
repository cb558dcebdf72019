"""OpenAPI descriptions of the routes outside the memory API: what the proxy adds to them, in JSON schema.
Data only; a test compares it with the routes that are served.
"""

from typing import Any

from proxy.domain.core import KINDS, Level, Reason, Status
from proxy.domain.timezones import LAST_SECOND
from proxy.wire.extensions import MAX_ID_CHARS, MAX_RETRIEVAL_LIMIT

_ZONE = "An IANA name (Asia/Tokyo), or an offset (+02:00)."
_ID: dict[str, Any] = {"type": ["string", "null"], "minLength": 1, "maxLength": MAX_ID_CHARS}
_REFUSAL = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}}
_LEVELS = [level.value for level in Level]
_STATUSES = [status.value for status in Status]
_REASONS = [reason.value for reason in Reason]


def _told(schema: dict[str, Any], words: str) -> dict[str, Any]:
    return {"description": words, "schema": schema}


COMPONENTS: dict[str, dict[str, Any]] = {
    "schemas": {
        "MemoryConfig": {
            "type": ["object", "null"],
            "additionalProperties": False,
            "description": "What this request asks of memory; removed before it is forwarded.",
            "properties": {
                "enabled": {"type": ["boolean", "null"], "description": "false: neither read nor write"},
                "memory_types": {
                    "type": ["array", "null"],
                    "minItems": 1,
                    "items": {"type": "string", "enum": sorted(KINDS)},
                },
                "retrieval_limit": {
                    "type": ["integer", "null"],
                    "minimum": 1,
                    "maximum": MAX_RETRIEVAL_LIMIT,
                },
                "similarity_threshold": {"type": ["number", "null"], "minimum": 0, "maximum": 1},
                "auto_store": {"type": ["boolean", "null"]},
                "compress": {"type": ["boolean", "null"]},
            },
        },
        "MemoryContext": {
            "type": ["object", "null"],
            "additionalProperties": False,
            "description": "Whose memory, within what the credential allows; removed before it is forwarded.",
            "properties": {
                "user_id": _ID,
                "project_id": _ID,
                "session_id": _ID,
                "timezone": {"type": ["string", "null"], "description": _ZONE},
                "created_at": {
                    "anyOf": [
                        {"type": "number", "minimum": 0, "maximum": LAST_SECOND},
                        {"type": "string", "format": "date-time"},
                        {"type": "null"},
                    ],
                    "description": "When it was said, for conversations of the past; not in the future.",
                },
            },
        },
    },
    "parameters": {
        "MemoryUserId": {
            "name": "X-Memory-User-Id",
            "in": "header",
            "description": "As memory_context.user_id; the body wins.",
            "schema": {"type": "string", "minLength": 1, "maxLength": MAX_ID_CHARS},
        },
        "MemoryProjectId": {
            "name": "X-Memory-Project-Id",
            "in": "header",
            "schema": {"type": "string", "minLength": 1, "maxLength": MAX_ID_CHARS},
        },
        "MemorySessionId": {
            "name": "X-Memory-Session-Id",
            "in": "header",
            "schema": {"type": "string", "minLength": 1, "maxLength": MAX_ID_CHARS},
        },
        "MemoryTimezone": {
            "name": "X-Memory-Timezone",
            "in": "header",
            "description": f"As memory_context.timezone; the body wins. {_ZONE}",
            "schema": {"type": "string"},
        },
        "MemoryMode": {
            "name": "X-Memory-Mode",
            "in": "header",
            "schema": {"type": "string", "enum": ["on", "read", "write", "off"]},
        },
    },
    "headers": {
        "X-Memory-Status": _told({"type": "string", "enum": _STATUSES}, "What memory did."),
        "X-Memory-Reason": _told({"type": "string", "enum": _REASONS}, "Why: see docs/memory.md."),
        "X-Memory-Level": _told({"type": "string", "enum": _LEVELS}, "How much of memory works."),
        "X-Memory-Count": _told({"type": "integer"}, "How many memories and documents were injected."),
        "X-Memory-Ids": _told({"type": "string"}, "Their ids, the memories' first, separated by commas."),
        "X-Memory-Tokens": _told({"type": "integer"}, "How many tokens they took."),
        "X-Memory-Compressed": _told({"type": "integer"}, "How many messages were left out."),
        "X-Memory-Retried": _told(
            {"type": "string"}, "What was changed, step by step, because the upstream refused the request."
        ),
        "X-Memory-Forgotten": _told(
            {"type": "string"}, "Ids of memories that the message asked to forget, separated by commas."
        ),
        "X-Memory-Session-Id": _told({"type": "string"}, "The session, percent-encoded."),
        "X-Memory-Store": _told({"type": "string", "enum": ["queued", "off"]}, "Whether it is remembered."),
        "X-Memory-Dropped-Tools": _told(
            {"type": "string"}, "Of /v1/responses: tools that the model was not told of, with commas."
        ),
        "X-Memory-Dropped-Items": _told(
            {"type": "string"}, "Of /v1/responses: types of input items that were left out, with commas."
        ),
        "Server-Timing": _told({"type": "string"}, "Milliseconds of memory and of the upstream."),
    },
}  # fmt: skip


def _intercepted(id_: str, summary: str) -> dict[str, Any]:
    body = {
        "type": "object",
        "description": "As the upstream takes it, with two fields more.",
        "additionalProperties": True,
        "properties": {
            "memory_config": {"$ref": "#/components/schemas/MemoryConfig"},
            "memory_context": {"$ref": "#/components/schemas/MemoryContext"},
        },
    }
    headers = {name: {"$ref": f"#/components/headers/{name}"} for name in COMPONENTS["headers"]}
    return {
        "post": {
            "operationId": id_,
            "summary": summary,
            "tags": ["model"],
            "parameters": [{"$ref": f"#/components/parameters/{name}"} for name in COMPONENTS["parameters"]],
            "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
            "responses": {
                "200": {"description": "The model's answer, streamed or whole.", "headers": headers},
                "400": {"description": "A field or header of ours is malformed.", **_REFUSAL},
                "401": {"description": "No credential, or one worth nothing.", **_REFUSAL},
                "default": {"description": "The upstream's own answer, byte for byte."},
            },
        }
    }


def _plain(tag: str, *operations: tuple[str, str, str], places: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a path of operations (method, id, summary) whose answers are described in words only."""
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in places
    ]
    answered = {
        "default": {"description": "See OpenAI's reference." if tag == "model" else "As the summary says."}
    }
    return {
        method: {
            "operationId": id_,
            "summary": summary,
            "tags": [tag],
            **({"parameters": parameters} if parameters else {}),
            "responses": answered,
        }
        for method, id_, summary in operations
    }


_RESPONSE, _CONVERSATION = "/v1/responses/{response_id}", "/v1/conversations/{conversation_id}"

PATHS: dict[str, Any] = {
    "/v1/chat/completions": _intercepted("createChatCompletion", "Chat, with memory"),
    "/v1/responses": _intercepted("createResponse", "The Responses API, with memory"),
    _RESPONSE: _plain(
        "model",
        ("get", "getResponse", "A response that the proxy keeps"),
        ("delete", "deleteResponse", "Delete it"),
        places=("response_id",),
    ),
    f"{_RESPONSE}/cancel": _plain(
        "model", ("post", "cancelResponse", "Cancel a background response"), places=("response_id",)
    ),
    f"{_RESPONSE}/input_items": _plain(
        "model", ("get", "listInputItems", "What the response answers"), places=("response_id",)
    ),
    "/v1/responses/compact": _plain("model", ("post", "compactResponse", "Compact a conversation")),
    "/v1/responses/input_tokens": _plain("model", ("post", "countInputTokens", "Count a request's tokens")),
    "/v1/conversations": _plain("model", ("post", "createConversation", "A new conversation")),
    _CONVERSATION: _plain(
        "model",
        ("get", "getConversation", "A conversation"),
        ("post", "updateConversation", "Replace its metadata"),
        ("delete", "deleteConversation", "Delete it"),
        places=("conversation_id",),
    ),
    f"{_CONVERSATION}/items": _plain(
        "model",
        ("get", "listConversationItems", "Its items"),
        ("post", "addConversationItems", "Append items"),
        places=("conversation_id",),
    ),
    f"{_CONVERSATION}/items/{{item_id}}": _plain(
        "model",
        ("get", "getConversationItem", "One item"),
        ("delete", "deleteConversationItem", "Delete it"),
        places=("conversation_id", "item_id"),
    ),
    "/": _plain("operations", ("get", "about", "Name and version")),
    "/health": _plain("operations", ("get", "health", "Alive, and how degraded")),
    "/ready": _plain("operations", ("get", "ready", "Takes traffic")),
    "/metrics": _plain("operations", ("get", "metrics", "Prometheus metrics")),
    "/openapi.json": _plain("operations", ("get", "openapi", "This document")),
    "/ui": _plain("operations", ("get", "ui", "The page to look at")),
}
"""Everything else below /v1/ is forwarded to the upstream as it is."""
