"""Convert log probabilities, citations and usage: the same figures under other names."""

from collections.abc import Iterable, Mapping
from typing import Any

from proxy.wire.content import clean

Figures = dict[str, Any]


def text_logprobs(entries: Iterable[Any]) -> list[Figures]:
    """Return a choice's log probabilities of text as an output_text part holds them."""
    return [{**_token(entry), "top_logprobs": _top(entry)} for entry in entries if _is_token(entry)]


def _is_token(entry: Any) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("token"), str)


def _top(entry: Mapping[str, Any]) -> list[Figures]:
    top = entry.get("top_logprobs")
    return [_token(other) for other in top if _is_token(other)] if isinstance(top, list) else []


def _token(entry: Mapping[str, Any]) -> Figures:
    token, octets = clean(entry["token"]), entry.get("bytes")
    if not isinstance(octets, list):  # null from some servers, absent from others
        octets = list(token.encode())
    return {"token": token, "bytes": octets, "logprob": entry.get("logprob", 0.0)}


def citations(annotations: Iterable[Any]) -> list[Figures]:
    """Return the web pages that a text cites, in the flat shape of the Responses API."""
    cited = [a.get("url_citation") for a in annotations if isinstance(a, dict)]
    return [
        {
            "type": "url_citation",
            "start_index": _count(page, "start_index"),
            "end_index": _count(page, "end_index"),
            "url": page["url"],
            "title": page["title"] if isinstance(page.get("title"), str) else "",
        }
        for page in cited
        if isinstance(page, dict) and isinstance(page.get("url"), str)
    ]


def usage_of(value: Any) -> Figures | None:
    """Return a chat completion's usage as a response's; None where there is none."""
    if not isinstance(value, dict):
        return None
    given, made = _count(value, "prompt_tokens"), _count(value, "completion_tokens")
    read, written = _details(value, "prompt_tokens_details"), _details(value, "completion_tokens_details")
    return {
        "input_tokens": given,
        "input_tokens_details": {
            "cached_tokens": _count(read, "cached_tokens"),
            "cache_write_tokens": _count(read, "cache_write_tokens"),
        },
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": _count(written, "reasoning_tokens")},
        "total_tokens": _count(value, "total_tokens") or given + made,
    }


def _details(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    details = value.get(name)
    return details if isinstance(details, dict) else {}


def _count(value: Mapping[str, Any], name: str) -> int:
    count = value.get(name)
    return count if isinstance(count, int) and not isinstance(count, bool) else 0
