"""Validate the scripted model's requests: like the real APIs, it refuses fields that it does not know.

That is what proves that the proxy in front takes its own fields out of the body.
"""

from typing import Any

import orjson

from proxy.domain.errors import InvalidRequest

_SHARED = (
    "model stream stream_options temperature top_p top_logprobs user store metadata tools tool_choice"
    " parallel_tool_calls service_tier safety_identifier prompt_cache_key prompt_cache_retention"
    " presence_penalty frequency_penalty"
)
CHAT_FIELDS = frozenset(
    f"{_SHARED} messages n max_tokens max_completion_tokens stop logit_bias logprobs seed response_format"
    " modalities audio prediction reasoning_effort verbosity web_search_options functions"
    " function_call".split()
)
RESPONSES_FIELDS = frozenset(
    f"{_SHARED} input instructions previous_response_id conversation max_output_tokens max_tool_calls"
    " include reasoning text truncation background prompt context_management".split()
)
EMBEDDINGS_FIELDS = frozenset("model input encoding_format dimensions user".split())
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def parse(raw: bytes, known: frozenset[str]) -> dict[str, Any]:
    """Return the body as an object with a model and known fields only; raises InvalidRequest."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise InvalidRequest("We could not parse the JSON body of your request.") from None
    if not isinstance(body, dict):
        raise InvalidRequest("The JSON body of your request must be an object.")
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise InvalidRequest("you must provide a model parameter", param="model")
    for name in body:
        if name not in known:
            raise InvalidRequest(f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")
    for name in ("max_tokens", "max_completion_tokens", "max_output_tokens", "dimensions"):
        _positive(body, name)
    return body


def check_messages(items: Any, param: str) -> None:
    """Raise InvalidRequest unless `items` is a list of one or more objects with known roles."""
    if items is None:
        raise InvalidRequest(
            f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter"
        )
    if not isinstance(items, list) or not items:
        raise InvalidRequest(
            f"Invalid type for '{param}': expected a non-empty array.", param=param, code="invalid_type"
        )
    for i, item in enumerate(items):
        where = f"{param}[{i}]"
        if not isinstance(item, dict):
            raise InvalidRequest(
                f"Invalid type for '{where}': expected an object.", param=where, code="invalid_type"
            )
        if "role" not in item and "type" in item and param == "input":
            continue  # Responses items such as function_call_output
        if item.get("role") not in _ROLES:
            message = f"Invalid value for '{where}.role'. Supported values are: {', '.join(_ROLES)}."
            raise InvalidRequest(message, param=f"{where}.role", code="invalid_value")


def _positive(body: dict[str, Any], name: str) -> None:
    value = body.get(name)
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidRequest(
            f"Invalid '{name}': expected a whole number from 1.", param=name, code="invalid_value"
        )
