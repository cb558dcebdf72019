"""Translation of the Responses API for an upstream that knows only chat completions. Pure: values in,
values out.

request  → plan        (request, items, parts, messages, sealed, tools, tool_items, parameters)
plan     → chat body   (adapt: in the form that the model takes)
chunks   → events      (translation, compacted, output, figures)
"""

from proxy.wire.translation.items import PACKED, Packed, Seals, as_items, referenced_ids, response_of
from proxy.wire.translation.request import (
    LIMITS,
    ChatPlan,
    adapted,
    conversation_of,
    has_neighbours,
    has_system,
    has_tool_media,
    optional_fields,
    plan,
    previous_of,
    with_thoughts,
)
from proxy.wire.translation.response import Translation, encode, encode_large, items_of, translation_of

__all__ = [
    "LIMITS",
    "PACKED",
    "ChatPlan",
    "Packed",
    "Seals",
    "Translation",
    "adapted",
    "as_items",
    "conversation_of",
    "encode",
    "encode_large",
    "has_neighbours",
    "has_system",
    "has_tool_media",
    "items_of",
    "optional_fields",
    "plan",
    "previous_of",
    "referenced_ids",
    "response_of",
    "translation_of",
    "with_thoughts",
]
