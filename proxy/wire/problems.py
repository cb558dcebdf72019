"""Read what an upstream says when it gives no answer: every shape that an error has there, as OpenAI's.

Shapes that servers send, with any status: `{"error": {…}}`, `{"error": "text"}`, a list of those (Gemini),
`{"detail": …}` (FastAPI, text or a list of findings), `{"message": …}` (gateways, old vLLM),
`{"errors": […]}` (Cloudflare), `{"base_resp": {"status_code", "status_msg"}}` (MiniMax), plain text, and
pages of HTML.
"""

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proxy.wire.content import clean

LONGEST = 1000  # characters of a message
_READ = 16 * 1024  # characters of a page
_DEEPEST = 4  # levels of errors inside errors
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
}
_NO_TEXT = re.compile(
    r"<(script|style|head)\b.*?(?:</\1\s*>|\Z)|<!--.*?(?:-->|\Z)", re.DOTALL | re.IGNORECASE
)
_TITLE = re.compile(r"<title\b[^>]*>([^<]*)", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")
_TEXT_FIELDS = ("message", "error_message", "error_msg", "msg", "status_msg", "detail", "title", "reason")


@dataclass(frozen=True, slots=True)
class Problem:
    """An error of the upstream's, as text without markup of at most LONGEST characters."""

    message: str
    code: str | None = None
    type: str | None = None
    param: str | None = None

    def body(self, status: int) -> dict[str, Any]:
        """Return OpenAI's error object."""
        type_ = self.type or _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
        return {
            "error": {"message": self.message, "type": type_, "param": self.param, "code": self.code},
        }


def problem_of(value: Any) -> Problem | None:
    """Return the error that a JSON value holds, None where it holds none."""
    if isinstance(value, list):
        entries = (each for each in value[:10] if isinstance(each, dict))
        return next((found for each in entries if (found := problem_of(each))), None)
    if not isinstance(value, dict):
        return None
    if error := value.get("error"):
        return _named(error) or Problem("The upstream's answer failed.")
    if value.get("choices"):
        return None
    if (base := value.get("base_resp")) and isinstance(base, dict):
        return _named(base) if base.get("status_code") else None
    if errors := value.get("errors"):
        return _named(errors)
    return _named(value)


def is_openai_error(value: Any) -> bool:
    """True if the value has the shape that OpenAI's SDKs read."""
    error = value.get("error") if isinstance(value, dict) else None
    return isinstance(error, dict) and isinstance(error.get("message"), str)


def problem_of_text(text: str, status: int) -> Problem:
    """Return the error in an answer that is not JSON: its text, or what a page says, without markup."""
    said = _said(text[:_READ])
    if not said:
        return Problem(f"The upstream answered with status {status} and without a message.")
    is_page = text.lstrip()[:1] == "<"
    return Problem(f"The upstream answered with status {status} and a page: {said}" if is_page else said)


# ---------------------------------------------------------------- JSON
def _named(error: Any, depth: int = 0) -> Problem | None:
    if depth > _DEEPEST:
        return None
    if isinstance(error, list):
        found = [_named(each, depth + 1) for each in error[:5]]
        texts = [each.message for each in found if each]
        return Problem(_short("; ".join(texts))) if texts else None
    if isinstance(error, str):
        return Problem(_short(_said(error))) if error.strip() else None
    if not isinstance(error, Mapping):
        return None
    text = next((t for name in _TEXT_FIELDS if (t := _text(error.get(name), depth))), "")
    if not text:
        nested = error.get("error")
        return _named(nested, depth + 1) if nested else None
    if (where := error.get("loc")) and isinstance(where, list):
        text = f"{'.'.join(map(str, where[:8]))}: {text}"
    if inner := _raw(error):
        text = f"{text}: {inner}"
    return Problem(_short(text), _code(error), _word(error.get("type")), _word(error.get("param")))


def _text(value: Any, depth: int) -> str:
    if isinstance(value, str):
        return _said(value)
    found = _named(value, depth + 1) if isinstance(value, list | dict) else None
    return found.message if found else ""


def _raw(error: Mapping[str, Any]) -> str:
    """Return the words of the provider behind a router (OpenRouter's `metadata.raw`)."""
    metadata = error.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    return _said(raw[:_READ]) if isinstance(raw, str) else ""


def _code(error: Mapping[str, Any]) -> str | None:
    for name in ("code", "status_code", "status"):
        code = error.get(name)
        if isinstance(code, int) and not isinstance(code, bool):
            return str(code)
        if _word(code):
            return _word(code)
    return None


def _word(value: Any) -> str | None:
    return clean(value[:200]) if isinstance(value, str) and value else None


# ---------------------------------------------------------------- text
def _said(text: str) -> str:
    """Return the text without markup, control characters and runs of white space."""
    text = text[:_READ]
    if text.lstrip()[:1] == "<":
        title = _TITLE.search(text)
        visible = _TAG.sub(" ", _NO_TEXT.sub(" ", text)).replace("<", " ")
        heading = html.unescape(title[1]) if title else ""
        body = html.unescape(visible)
        text = body if heading.strip() and heading.strip() in body else f"{heading} {body}"
        text = text.replace("<", " ").replace(">", " ")  # what was escaped is no markup either
    words = "".join(c if c.isprintable() else " " for c in clean(text)).split()
    return _short(" ".join(words))


def _short(text: str) -> str:
    text = clean(text)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
