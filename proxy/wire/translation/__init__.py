"""Translation of the Responses API for an upstream that knows only chat completions. Pure: values in,
values out.

request  → plan        (request, items, parts, messages, sealed, tools, parameters)
plan     → chat body   (adapt: in the form that the model takes)
chunks   → events      (translation, calls, output, figures)
"""

from proxy.wire.translation.adapt import (
    LIMITS,
    adapted,
    has_tool_media,
    optional_fields,
    with_thoughts,
)
from proxy.wire.translation.items import as_items, referenced_ids, response_of
from proxy.wire.translation.request import Plan, conversation_of, plan, previous_of
from proxy.wire.translation.translation import Translation, encode, items_of

__all__ = [
    "LIMITS",
    "Plan",
    "Translation",
    "adapted",
    "as_items",
    "conversation_of",
    "encode",
    "has_tool_media",
    "items_of",
    "optional_fields",
    "plan",
    "previous_of",
    "referenced_ids",
    "response_of",
    "with_thoughts",
]
