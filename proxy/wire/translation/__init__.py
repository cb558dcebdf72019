"""Translation of the Responses API for an upstream that knows only chat completions. Pure: values in,
values out.

request  → plan        (request, items, parts, messages, sealed, tools, parameters)
chunks   → events      (translation, calls, output, figures)
"""

from proxy.wire.translation.items import as_items, referenced_ids, response_of
from proxy.wire.translation.request import Plan, conversation_of, plan, previous_of
from proxy.wire.translation.translation import Translation, encode, items_of

__all__ = [
    "Plan",
    "Translation",
    "as_items",
    "conversation_of",
    "encode",
    "items_of",
    "plan",
    "previous_of",
    "referenced_ids",
    "response_of",
]
