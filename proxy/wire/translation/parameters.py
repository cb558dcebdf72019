"""Map the other fields of a request: which a chat completion knows, under which name, and what is echoed.

Fields that we do not know are forwarded as they came: the upstream may know them.
"""

import re
from collections.abc import Mapping
from typing import Any

from proxy.wire.body import Body
from proxy.wire.translation.checks import (
    ARRAY,
    BOOLEAN,
    INTEGER,
    NUMBER,
    OBJECT,
    STRING,
    Shape,
    checked,
    optional,
    refused,
    required,
    shown,
    unsupported,
)

# What the response object always holds, and what it says where the request says nothing.
_ECHOED: Mapping[str, tuple[Shape, Any]] = {
    "background": (BOOLEAN, False),
    "frequency_penalty": (NUMBER, 0.0),
    "instructions": (STRING, None),
    "max_output_tokens": (INTEGER, None),
    "max_tool_calls": (INTEGER, None),
    "metadata": (OBJECT, {}),
    "presence_penalty": (NUMBER, 0.0),
    "previous_response_id": (STRING, None),
    "prompt_cache_key": (STRING, None),
    "prompt_cache_retention": (STRING, None),
    "safety_identifier": (STRING, None),
    "service_tier": (STRING, "default"),
    "store": (BOOLEAN, True),
    "temperature": (NUMBER, 1.0),
    "top_logprobs": (INTEGER, 0),
    "top_p": (NUMBER, 1.0),
    "truncation": (STRING, "disabled"),
    "user": (STRING, None),
}

# Least and most, as OpenAI checks them.
_RANGES: Mapping[str, tuple[float, float | None]] = {
    "frequency_penalty": (-2, 2),
    "max_output_tokens": (1, None),  # OpenAI: 16. Local models are asked for less.
    "max_tool_calls": (1, None),
    "presence_penalty": (-2, 2),
    "temperature": (0, 2),
    "top_logprobs": (0, 20),
    "top_p": (0, 1),
}
_WORDS: Mapping[str, tuple[str, ...]] = {
    "truncation": ("auto", "disabled"),
    "prompt_cache_retention": ("in_memory", "in-memory", "24h"),
    "reasoning.summary": ("auto", "concise", "detailed"),
    "reasoning.generate_summary": ("auto", "concise", "detailed"),
    "text.verbosity": ("low", "medium", "high"),
}
_LONGEST: Mapping[str, int] = {"safety_identifier": 128, "prompt_cache_key": 1_024}  # OpenAI's key: 64
MOST_METADATA, KEY_CHARS, VALUE_CHARS = 16, 64, 512

# Forwarded under their own names: chat completions mean the same by them. null is the same as absent.
_SHARED = (
    "model",
    "temperature",
    "top_p",
    "frequency_penalty",
    "presence_penalty",
    "service_tier",
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
)

# Spoken for here or elsewhere, or meaningless to a chat completion: `max_tool_calls` counts calls of
# hosted tools, `truncation` and `context_management` are the work of a server that keeps the context.
_NOT_FORWARDED = frozenset(
    "background client_metadata context_management conversation include input instructions"
    " max_output_tokens max_tool_calls metadata parallel_tool_calls previous_response_id prompt reasoning"
    " store stream stream_options text tool_choice tools top_logprobs truncation".split()
)

# Ollama, LM Studio and others read only `max_tokens` and ignore `max_completion_tokens` without a word
# (ollama/ollama#7125), Mistral refuses it; vLLM, llama.cpp and SGLang take both. Only OpenAI's reasoning
# models, wherever they are served, refuse the old name.
_NEW_LIMIT = re.compile(r"(?:^|/)(?:o[1-9]|gpt-[5-9])(?![a-z0-9])")


def chat_parameters(body: Body) -> Body:
    """Return the chat body's fields beside messages and tools. Raises InvalidRequest."""
    if body.get("prompt") is not None:
        raise unsupported("prompt", "a prompt template")
    unknown = {name: value for name, value in body.items() if name not in _NOT_FORWARDED | set(_SHARED)}
    chat = {name: body[name] for name in _SHARED if body.get(name) is not None} | unknown
    renamed = {
        _limit_name(body.get("model")): optional(body, "max_output_tokens", INTEGER),
        "reasoning_effort": optional(_section(body, "reasoning"), "effort", STRING, within="reasoning"),
        "verbosity": optional(_section(body, "text"), "verbosity", STRING, within="text"),
        "response_format": _response_format(body),
    }
    chat |= {name: value for name, value in renamed.items() if value is not None}
    return chat | _logprobs(body) | _streaming(body)


def echoed(body: Body) -> Body:
    """Return the response object's fields that repeat the request's. Raises InvalidRequest."""
    echo = {name: _or(optional(body, name, shape), default) for name, (shape, default) in _ECHOED.items()}
    reasoning, text = _section(body, "reasoning"), _section(body, "text")
    _check_values({**echo, "reasoning": reasoning, "text": text})
    check_metadata(body.get("metadata"))
    for index, name in enumerate(optional(body, "include", ARRAY) or ()):
        checked(name, STRING, f"include[{index}]")
    optional(body, "stream_options", OBJECT)
    return {
        **echo,
        "model": body["model"],
        "reasoning": {"effort": None, "summary": None, **reasoning},
        "text": {"verbosity": "medium", **_given(text), "format": _format(text)},
    }


def _check_values(echo: Body) -> None:
    """Raise InvalidRequest for a value that is out of its range, or not one of its words."""
    for name, (least, most) in _RANGES.items():
        value = echo[name]
        if value is None:
            continue
        if not value >= least:  # NaN is not, either
            raise refused(name, f"{value} is below the minimum of {least}", f"{_kind(value)}_below_min_value")
        if most is not None and value > most:
            raise refused(name, f"{value} is above the maximum of {most}", f"{_kind(value)}_above_max_value")
    for path, words in _WORDS.items():
        section, _, name = path.rpartition(".")
        word = (echo[section] if section else echo).get(name)
        if word is not None and word not in words:
            said = shown(word) if isinstance(word, str) else "the value"
            raise refused(path, f"'{said}' is not one of {', '.join(words)}")
    for name, longest in _LONGEST.items():
        if len(echo[name] or "") > longest:
            raise refused(name, f"it is longer than {longest} characters", "string_above_max_length")


def _kind(value: float) -> str:
    return "integer" if isinstance(value, int) else "decimal"


def check_metadata(given: Any) -> dict[str, str]:
    """Return `metadata` if it is as OpenAI allows it, {} for none. Raises InvalidRequest."""
    if given is None:
        return {}
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise refused("metadata", "expected an object of strings", "invalid_type")
    too_long = any(len(key) > KEY_CHARS or len(value) > VALUE_CHARS for key, value in given.items())
    if len(given) > MOST_METADATA or too_long:
        most = f"{MOST_METADATA} pairs, keys of {KEY_CHARS} and values of {VALUE_CHARS} characters"
        raise refused("metadata", f"it holds at most {most}")
    return dict(given)


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _given(holder: Body) -> Body:
    return {name: value for name, value in holder.items() if value is not None}


def _section(body: Body, name: str) -> Body:
    section: Body = optional(body, name, OBJECT) or {}
    return section


def _limit_name(model: Any) -> str:
    new = isinstance(model, str) and _NEW_LIMIT.search(model)
    return "max_completion_tokens" if new else "max_tokens"


def _logprobs(body: Body) -> Body:
    """Return what asks for log probabilities: their number alone is refused without the switch."""
    top = optional(body, "top_logprobs", INTEGER)
    include = optional(body, "include", ARRAY) or []
    if not top:
        return {"logprobs": True} if "message.output_text.logprobs" in include else {}
    return {"logprobs": True, "top_logprobs": top}


def _streaming(body: Body) -> Body:
    if not optional(body, "stream", BOOLEAN):
        return {}
    # The response object needs the usage, which a chat stream tells only on request.
    return {"stream": True, "stream_options": {"include_usage": True}}


# ---------------------------------------------------------------- text.format
_FORMATS = ("text", "json_object", "json_schema")
_SCHEMA_FIELDS = ("name", "description", "schema", "strict")


def _format(text: Body) -> Body:
    """Return `text.format` in the flat shape, its fields filled in."""
    given = optional(text, "format", OBJECT, within="text") or {"type": "text"}
    param = "text.format"
    kind = required(given, "type", STRING, within=param)
    if kind not in _FORMATS:
        raise refused(f"{param}.type", f"'{shown(kind)}' is not one of {', '.join(_FORMATS)}")
    if kind != "json_schema":
        return {"type": kind}
    nested = optional(given, kind, OBJECT, within=param)  # chat completions wrap it once more
    holder, within = (given, param) if nested is None else (nested, f"{param}.{kind}")
    required(holder, "name", STRING, within=within)
    required(holder, "schema", OBJECT, within=within)
    return {"type": kind, **{name: holder.get(name) for name in _SCHEMA_FIELDS}}


def _response_format(body: Body) -> Body | None:
    form = _format(_section(body, "text"))
    if form["type"] == "json_schema":
        schema = {name: form[name] for name in _SCHEMA_FIELDS if form[name] is not None}
        return {"type": "json_schema", "json_schema": schema}
    return None if form["type"] == "text" else form
