"""A client of the memory API of a running proxy, on the standard library's HTTP."""

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

TIMEOUT_S = 30  # without a byte received
IMPORT_TIMEOUT_S = 600  # the proxy answers when everything is stored
NDJSON = "application/x-ndjson"


class Refused(Exception):
    """The proxy answered with an error; the message is the proxy's own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class NotAnswering(Exception):
    """The address does not answer, or its answer is no JSON object."""


@dataclass(frozen=True, slots=True)
class MemoryApi:
    """The memory API at one address. Every method raises Refused and NotAnswering."""

    url: str
    api_key: str = ""

    # ------------------------------------------------------------ memories
    def list(self, **filters: Any) -> dict[str, Any]:
        """Return one page, newest first. Filters: user_id, project_id, type, q, include, limit, after."""
        return self._call("GET", "", query=filters)

    def search(self, **body: Any) -> dict[str, Any]:
        """Return the memories that a query finds. Body: query, user_id, project_id, memory_types, limit, …"""
        return self._call("POST", "/search", body=body)

    def add(self, **body: Any) -> dict[str, Any]:
        """Store a memory and return it. Body: content, type, user_id, project_id, …"""
        return self._call("POST", "", body=body)

    def get(self, memory_id: str, **query: Any) -> dict[str, Any]:
        """Return one memory."""
        return self._call("GET", _part(memory_id), query=query)

    def history(self, memory_id: str, **query: Any) -> dict[str, Any]:
        """Return the events of one memory, oldest first."""
        return self._call("GET", _part(memory_id) + "/history", query=query)

    def edit(self, memory_id: str, changes: dict[str, Any], **query: Any) -> dict[str, Any]:
        """Change one memory and return it. None is sent too: it removes the expiry or the project."""
        return self._call("PATCH", _part(memory_id), query=query, body=changes, keep_none=True)

    def forget(self, memory_id: str, **query: Any) -> dict[str, Any]:
        """Forget one memory."""
        return self._call("DELETE", _part(memory_id), query=query)

    def forget_all(self, **filters: Any) -> dict[str, Any]:
        """Forget everything about a user. Filters: user_id, project_id, type, dry_run."""
        return self._call("DELETE", "", query=filters)

    def receipts(self, **query: Any) -> dict[str, Any]:
        """Return the receipts of what was forgotten, newest first."""
        return self._call("GET", "/receipts", query=query)

    # ------------------------------------------------------------ documents
    def add_document(self, **body: Any) -> dict[str, Any]:
        """Store a text under a name. Body: name, content, format, user_id, project_id."""
        return self._call("POST", "/documents", body=body)

    def documents(self, **query: Any) -> dict[str, Any]:
        """Return one page, last changed first. Query: user_id, project_id, limit, after."""
        return self._call("GET", "/documents", query=query)

    def document(self, document_id: str, **query: Any) -> dict[str, Any]:
        """Return one document with its outline. Query: user_id, include."""
        return self._call("GET", f"/documents{_part(document_id)}", query=query)

    def delete_document(self, document_id: str, **query: Any) -> dict[str, Any]:
        """Delete one document, and the stored answers that were given with it in the prompt."""
        return self._call("DELETE", f"/documents{_part(document_id)}", query=query)

    # ------------------------------------------------------------ export and import
    def export(self, **query: Any) -> Iterator[bytes]:
        """Yield the lines of an export, oldest memory first. Raises NotAnswering if it is cut off."""
        with self._answer(self._request("GET", "/export", query=query)) as response:
            yield from response

    def import_memories(self, chunks: Iterable[bytes], size: int | None, **query: Any) -> dict[str, Any]:
        """Import an export, given in chunks of any length; `size` is its length in bytes if known."""
        request = self._request("POST", "/import", query=query)
        request.data = cast(Any, chunks)
        request.add_header("Content-Type", NDJSON)
        if size is not None:
            request.add_header("Content-Length", str(size))
        return self._json(request, IMPORT_TIMEOUT_S)

    # ------------------------------------------------------------ sessions, jobs, quarantine
    def sessions(self, **query: Any) -> dict[str, Any]:
        """Return a user's sessions, last used first."""
        return self._call("GET", "/sessions", query=query)

    def end_session(self, session_id: str, **query: Any) -> dict[str, Any]:
        """Extract the waiting exchanges of the session now."""
        return self._call("POST", f"/sessions{_part(session_id)}/end", query=query)

    def jobs(self, **query: Any) -> dict[str, Any]:
        """Return extraction jobs, oldest first. Query: user_id, state, limit, after."""
        return self._call("GET", "/jobs", query=query)

    def retry_jobs(self, **query: Any) -> dict[str, Any]:
        """Queue dead jobs again."""
        return self._call("POST", "/jobs/retry", query=query)

    def quarantine(self, **query: Any) -> dict[str, Any]:
        """Return the candidates that wait for review, newest first."""
        return self._call("GET", "/quarantine", query=query)

    def release(self, held_id: str, **query: Any) -> dict[str, Any]:
        """Store a candidate and return the memory."""
        return self._call("POST", f"/quarantine{_part(held_id)}/release", query=query)

    def discard(self, held_id: str, **query: Any) -> dict[str, Any]:
        """Delete a candidate."""
        return self._call("DELETE", f"/quarantine{_part(held_id)}", query=query)

    # ------------------------------------------------------------ HTTP
    def _call(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, Any] | None = None,
        body: dict[str, Any] | None = None,
        keep_none: bool = False,
    ) -> dict[str, Any]:
        request = self._request(method, path, query=query)
        request.add_header("Content-Type", "application/json")
        if body is not None:
            request.data = json.dumps(body if keep_none else _given(body)).encode()
        return self._json(request, TIMEOUT_S)

    def _request(
        self, method: str, path: str, *, query: dict[str, Any] | None = None
    ) -> urllib.request.Request:
        given = {name: _text(value) for name, value in _given(query or {}).items()}
        address = self.url.rstrip("/").removesuffix("/v1") + "/v1/memory" + path
        request = urllib.request.Request(
            address + ("?" + urllib.parse.urlencode(given) if given else ""),
            headers={"User-Agent": "memory-proxy-cli"},
            method=method,
        )
        if self.api_key:
            request.add_header("Authorization", f"Bearer {self.api_key}")
        return request

    def _json(self, request: urllib.request.Request, timeout_s: float) -> dict[str, Any]:
        with self._answer(request, timeout_s) as response:
            answer: Any = json.load(response)
        if not isinstance(answer, dict):
            raise NotAnswering(self.url)
        return answer

    @contextmanager
    def _answer(self, request: urllib.request.Request, timeout_s: float = TIMEOUT_S) -> Iterator[Any]:
        """Open the answer. Errors until the end of the block become Refused or NotAnswering."""
        try:
            with _open(request, timeout=timeout_s) as response:
                yield response
        except urllib.error.HTTPError as e:
            with e:
                raise Refused(e.code, _message(e.code, e.read())) from None
        except (OSError, ValueError, http.client.HTTPException) as e:  # unknown host, cut off, no JSON
            raise NotAnswering(self.url) from e


# HTTP_PROXY of the environment is for other hosts: the proxy is usually on this one.
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def _part(id_: str) -> str:
    return "/" + urllib.parse.quote(id_, safe="")


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _text(value: Any) -> str:
    """Return the value as query strings write it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _message(status: int, raw: bytes) -> str:
    """Return the message of an error in OpenAI's shape, else a sentence with the status."""
    try:
        return str(json.loads(raw)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the proxy answered with status {status}"
