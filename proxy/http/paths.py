"""Canonical paths, and the usual mistakes in a client's base URL.

Servers read paths differently: some fold case, decode twice, merge slashes, resolve dots or trim. A path that
any of them could read as a guarded route must not go past the guard to the upstream, so each is compared in
the form that the most lenient server would see, and refused where that is guarded and the path itself is not.
"""

import re
import unicodedata
from functools import lru_cache
from urllib.parse import unquote

# A path without these is read alike by all servers, but for its case.
_ODD = re.compile(r"//|/\.|\.(?:/|$)|/$|[;\\#?%]|[^\x21-\x7e]")
_GUARDED = ("responses", "conversations", "memory")
_OPERATIONS = ("completions", "compact", "input_tokens")  # what the second segment of a route may be
# First segments of OpenAI's API and of what compatible servers add.
_KNOWN = frozenset(
    "assistants audio batches chat completions containers conversations embeddings evals files fine_tuning"
    " images memory messages models moderations realtime rerank responses threads uploads vector_stores"
    " videos".split()
)
# A client's base_url ends in one of these, and the client adds another.
_ENDPOINTS = (("chat", "completions"), ("responses",), ("completions",), ("embeddings",))
_MOST_DECODINGS = 3


@lru_cache(maxsize=1024)
def canonical(path: str) -> str:
    """Return the decoded path as the most lenient server reads it: decoded again, without empty and dot
    segments, `;parameters`, control characters and trailing dots, with slashes for backslashes, and the names
    of routes in lower case. Ids keep their case."""
    if _ODD.search(path):
        path = _plain(path)
    segments = path.split("/")
    if segments[1:2] and not segments[1].islower():
        segments[1] = segments[1].lower()
    if segments[1] == "v1" and len(segments) > 2:
        segments[2] = _folded(segments[2], (*_GUARDED, "chat", "v1"))
        if len(segments) > 3:
            segments[3] = _folded(segments[3], _OPERATIONS)
    return "/".join(segments)


def _folded(segment: str, names: tuple[str, ...]) -> str:
    return lowered if (lowered := segment.lower()) in names else segment


def _plain(path: str) -> str:
    for _ in range(_MOST_DECODINGS):
        if "%" not in path:
            break
        path = unquote(path)
    path = unicodedata.normalize("NFKC", path).replace("\\", "/")
    path = re.split("[#?]", path)[0]
    segments: list[str] = []
    for segment in path.split("/"):
        name = "".join(filter(str.isprintable, segment.partition(";")[0])).strip()
        if name == "..":
            del segments[-1:]
        elif name := name.rstrip(". "):
            segments.append(name)
    return "/" + "/".join(segments)


@lru_cache(maxsize=1024)
def mistake(path: str) -> tuple[str, str] | None:
    """Return the path that was meant and what is wrong with this canonical one; None if its structure is
    right."""
    segments = path.split("/")[1:]
    if segments[:2] == ["v1", "v1"]:
        while segments[:2] == ["v1", "v1"]:
            del segments[0]
        return "/" + "/".join(segments), '"/v1" is in it twice: the base URL has it already'
    if segments[0] == "v1":
        rest = segments[1:]
        for endpoint in _ENDPOINTS:
            added = rest[len(endpoint) :]
            while added[:1] == ["v1"]:
                added = added[1:]
            if tuple(rest[: len(endpoint)]) == endpoint and _is_endpoint(added):
                return "/v1/" + "/".join(
                    added
                ), "the base URL ends in an endpoint, and the client adds another"
        return None
    if segments[0] in _KNOWN:
        return "/v1/" + "/".join(segments), '"/v1" is missing: the base URL ends without it'
    for endpoint in _ENDPOINTS:
        if tuple(segments[-len(endpoint) :]) == endpoint:
            return "/v1/" + "/".join(endpoint), f'nothing is served below "/{segments[0][:32]}"'
    return None


def _is_endpoint(segments: list[str]) -> bool:
    return tuple(segments) in _ENDPOINTS or segments == ["models"]


def is_another_chat(path: str) -> bool:
    """True for a canonical path below /v1 that reads like an intercepted route and is none."""
    return path.endswith(("/chat/completions", "/responses"))
