"""Write a translated request in the form that a model takes: without fields, or with a part elsewhere."""

from collections.abc import Collection

from proxy.wire.body import Body

LIMITS = ("max_completion_tokens", "max_tokens")
"""The names that chat completions have for the limit of tokens."""

# Without these a request would mean something else. All others are hints, to a cache, a bill, a safety
# system, or to a model how much to think: an answer without them is better than none.
_MEANING = frozenset(
    "model messages stream tools tool_choice functions function_call response_format temperature top_p n seed"
    " stop frequency_penalty presence_penalty logit_bias logprobs top_logprobs modalities audio".split()
)


def optional_fields(chat: Body) -> frozenset[str]:
    """Return the fields of a translated request that may be left out where a server does not know them."""
    return frozenset(chat) - _MEANING - set(LIMITS)


def adapted(chat: Body, *, omit: Collection[str] = (), limit: str = "") -> Body:
    """Return the request in this form; `chat` itself, which is never changed, where that is its form."""
    dropped = optional_fields(chat).intersection(omit)
    named = next((name for name in LIMITS if name in chat), "")
    if not dropped and limit in ("", named):
        return chat
    return {limit if limit and name == named else name: v for name, v in chat.items() if name not in dropped}
