"""The memory API of a running proxy, as a client sees it: the standard library's HTTP, nothing else."""

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

TIMEOUT_S = 30  # without a byte
IMPORT_TIMEOUT_S = 600  # the proxy answers once all is stored
NDJSON = "application/x-ndjson"


class Refused(Exception):
    """The proxy answered with an error; the message is the proxy's own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class NotAnswering(Exception):
    """Nothing that speaks HTTP answers at the address."""


@dataclass(frozen=True, slots=True)
class MemoryApi:
    """The memory API of a running proxy. Every call raises Refused or NotAnswering."""

    url: str
    api_key: str = ""

    # ------------------------------------------------------------ memories
    def list(self, **filters: Any) -> dict[str, Any]:
        """Return one page, newest first. Filters: user_id, project_id, type, q, include, limit, after."""
        return self._call("GET", "", query=filters)

    def search(self, **body: Any) -> dict[str, Any]:
        """Return what memory finds. Body: query, user_id, project_id, memory_types, limit, …"""
        return self._call("POST", "/search", body=body)

    def add(self, **body: Any) -> dict[str, Any]:
        """Store a memory and return it. Body: content, type, user_id, project_id, …"""
        return self._call("POST", "", body=body)

    def get(self, memory_id: str, **query: Any) -> dict[str, Any]:
        """Return one memory."""
        return self._call("GET", _part(memory_id), query=query)

    def history(self, memory_id: str, **query: Any) -> dict[str, Any]:
        """Return what happened to one memory, oldest first."""
        return self._call("GET", _part(memory_id) + "/history", query=query)

    def edit(self, memory_id: str, changes: dict[str, Any], **query: Any) -> dict[str, Any]:
        """Correct one memory and return it. A change to None is sent: it means never, or none."""
        return self._call("PATCH", _part(memory_id), query=query, body=changes, keep_none=True)

    def forget(self, memory_id: str, **query: Any) -> dict[str, Any]:
        """Forget one memory."""
        return self._call("DELETE", _part(memory_id), query=query)

    def forget_all(self, **filters: Any) -> dict[str, Any]:
        """Forget a user's everything. Filters: user_id, project_id, type, dry_run."""
        return self._call("DELETE", "", query=filters)

    def receipts(self, **query: Any) -> dict[str, Any]:
        """Return the proofs of what was forgotten, newest first."""
        return self._call("GET", "/receipts", query=query)

    # ------------------------------------------------------------ documents
    def add_document(self, **body: Any) -> dict[str, Any]:
        """Keep a text under a name. Body: name, content, format, user_id, project_id."""
        return self._call("POST", "/documents", body=body)

    def documents(self, **query: Any) -> dict[str, Any]:
        """Return one page, the last written first. Query: user_id, project_id, limit, after."""
        return self._call("GET", "/documents", query=query)

    def document(self, document_id: str, **query: Any) -> dict[str, Any]:
        """Return one document with its outline. Query: user_id, include."""
        return self._call("GET", f"/documents{_part(document_id)}", query=query)

    def delete_document(self, document_id: str, **query: Any) -> dict[str, Any]:
        """Delete one document, and the answers that were given with it in view."""
        return self._call("DELETE", f"/documents{_part(document_id)}", query=query)

    # ------------------------------------------------------------ moving
    def export(self, **query: Any) -> Iterator[bytes]:
        """Yield the lines of an export, oldest memory first. Raises NotAnswering if it breaks off."""
        with self._answer(self._request("GET", "/export", query=query)) as response:
            yield from response

    def bring_in(self, chunks: Iterable[bytes], size: int | None, **query: Any) -> dict[str, Any]:
        """Import the lines of an export, given in chunks of any length; `size` in bytes, if it is known."""
        request = self._request("POST", "/import", query=query)
        request.data = cast(Any, chunks)
        request.add_header("Content-Type", NDJSON)
        if size is not None:
            request.add_header("Content-Length", str(size))
        return self._json(request, IMPORT_TIMEOUT_S)

    # ------------------------------------------------------------ what is being remembered
    def sessions(self, **query: Any) -> dict[str, Any]:
        """Return a user's sessions, the last used first."""
        return self._call("GET", "/sessions", query=query)

    def end_session(self, session_id: str, **query: Any) -> dict[str, Any]:
        """Have extracted now what the session holds."""
        return self._call("POST", f"/sessions{_part(session_id)}/end", query=query)

    def jobs(self, **query: Any) -> dict[str, Any]:
        """Return extraction jobs, oldest first. Query: user_id, state, limit, after."""
        return self._call("GET", "/jobs", query=query)

    def retry_jobs(self, **query: Any) -> dict[str, Any]:
        """Queue dead jobs again."""
        return self._call("POST", "/jobs/retry", query=query)

    def quarantine(self, **query: Any) -> dict[str, Any]:
        """Return what is held for review, newest first."""
        return self._call("GET", "/quarantine", query=query)

    def release(self, held_id: str, **query: Any) -> dict[str, Any]:
        """Remember what was held; returns the memory."""
        return self._call("POST", f"/quarantine{_part(held_id)}/release", query=query)

    def discard(self, held_id: str, **query: Any) -> dict[str, Any]:
        """Erase what was held."""
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
        """Open the answer; every way to fail, until it is read, becomes Refused or NotAnswering."""
        try:
            with _open(request, timeout=timeout_s) as response:
                yield response
        except urllib.error.HTTPError as e:
            with e:
                raise Refused(e.code, _message(e.code, e.read())) from None
        except (OSError, ValueError, http.client.HTTPException) as e:  # no such host, cut off, not JSON
            raise NotAnswering(self.url) from e


# A proxy of the environment (HTTP_PROXY) must not come between us and our own machine.
_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def _part(id_: str) -> str:
    return "/" + urllib.parse.quote(id_, safe="")


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _text(value: Any) -> str:
    """Return a value as a query has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _message(status: int, raw: bytes) -> str:
    """Return the error's own words; a plain sentence where the body is not in OpenAI's shape."""
    try:
        return str(json.loads(raw)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the proxy answered with status {status}"
