"""A client of the memory API of a running proxy, on the standard library's HTTP."""

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

TIMEOUT_S = 30  # without a byte received
IMPORT_TIMEOUT_S = 600  # the proxy answers when everything is stored


class RequestRefused(Exception):
    """The proxy answered with an error; the message is the proxy's own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class NotAnswering(Exception):
    """The address does not answer, or its answer is not a JSON object."""


@dataclass(frozen=True, slots=True)
class MemoryClient:
    """The memory API at one address. Positional arguments are segments of the path below `/v1/memory`.

    Parameters of the query and fields of a new object that are None are left out. Every method raises
    RequestRefused and NotAnswering.
    """

    url: str
    api_key: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)  # of every request

    def send(self, method: str, *path: str, query: dict[str, Any], body: Any = None) -> dict[str, Any]:
        """Send one request, with the body as JSON if there is one."""
        encoded = None if body is None else json.dumps(body).encode()
        return self._json(self._request(method, path, query, encoded))

    def get(self, *path: str, **query: Any) -> dict[str, Any]:
        """Return one object, or one page of a list."""
        return self.send("GET", *path, query=query)

    def post(self, *path: str, **body: Any) -> dict[str, Any]:
        """Create, or search: the arguments are in the body."""
        return self.send("POST", *path, query={}, body=_given(body))

    def run(self, *path: str, **query: Any) -> dict[str, Any]:
        """Start an operation: the arguments are in the query."""
        return self.send("POST", *path, query=query)

    def patch(self, *path: str, changes: dict[str, Any], **query: Any) -> dict[str, Any]:
        """Change an object and return it. None is sent too: it removes the expiry or the project."""
        return self.send("PATCH", *path, query=query, body=changes)

    def delete(self, *path: str, **query: Any) -> dict[str, Any]:
        return self.send("DELETE", *path, query=query)

    def export(self, **query: Any) -> Iterator[bytes]:
        """Yield the lines of an export, oldest memory first. Raises NotAnswering if it is cut off."""
        with self._answer(self._request("GET", ("export",), query)) as response:
            yield from response

    def import_memories(self, chunks: Iterable[bytes], size: int | None, **query: Any) -> dict[str, Any]:
        """Import an export, given in chunks of any length; `size` is its length in bytes if known."""
        request = self._request("POST", ("import",), query, chunks, "application/x-ndjson")
        if size is not None:
            request.add_header("Content-Length", str(size))
        return self._json(request, IMPORT_TIMEOUT_S)

    def _request(
        self,
        method: str,
        path: Iterable[str],
        query: dict[str, Any],
        body: bytes | Iterable[bytes] | None = None,
        content_type: str = "application/json",
    ) -> urllib.request.Request:
        address = self.url.rstrip("/").removesuffix("/v1") + "/v1/memory"
        address += "".join("/" + urllib.parse.quote(segment, safe="") for segment in path)
        asked = encoded_query(query)
        request = urllib.request.Request(
            address + ("?" + asked if asked else ""),
            data=cast(Any, body),
            headers={"User-Agent": "memory-proxy-cli", "Content-Type": content_type, **self.headers},
            method=method,
        )
        if self.api_key:
            request.add_header("Authorization", f"Bearer {self.api_key}")
        return request

    def _json(self, request: urllib.request.Request, timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
        with self._answer(request, timeout_s) as response:
            answer: Any = json.load(response)
        if not isinstance(answer, dict):
            raise NotAnswering(self.url)
        return answer

    @contextmanager
    def _answer(self, request: urllib.request.Request, timeout_s: float = TIMEOUT_S) -> Iterator[Any]:
        """Open the answer. Errors until the end of the block become RequestRefused or NotAnswering."""
        try:
            with open_url(request, timeout=timeout_s) as response:
                yield response
        except urllib.error.HTTPError as e:
            with e:
                try:
                    message = str(json.loads(e.read())["error"]["message"])  # OpenAI's shape
                except (ValueError, KeyError, TypeError):
                    message = f"the proxy answered with status {e.code}"
                raise RequestRefused(e.code, message) from None
        except (OSError, ValueError, http.client.HTTPException) as e:  # unknown host, cut off, no JSON
            raise NotAnswering(self.url) from e


# HTTP_PROXY of the environment is for other hosts: the proxy is usually on this one.
open_url = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def encoded_query(query: Mapping[str, Any]) -> str:
    """Return the query string of these parameters, without those that are None."""
    given = _given(query).items()
    return urllib.parse.urlencode({k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in given})


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
