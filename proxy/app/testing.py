"""Run the proxy inside a test suite, in front of a mocked upstream (docs/testing.md).

upstream = respx.Router()
upstream.post("/v1/chat/completions").respond(json={...})
with running_proxy(upstream) as proxy:
    OpenAI(base_url=proxy.base_url, api_key="test")
"""

import asyncio
import json
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import httpx
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.app.reloadable import ReloadableApp
from proxy.app.server import running, scripted_at
from proxy.config import Settings, load
from proxy.http.connections import RawTargetProtocol

# Extraction at once, and a deadline that a busy machine meets.
_MEMORY = {"extraction_batch_size": 1, "session_summaries": False, "deadline_ms": 5_000}


class Mock(Protocol):
    """A respx router, or anything else that answers httpx's requests."""

    async def async_handler(self, request: httpx.Request) -> httpx.Response: ...


@dataclass(frozen=True, slots=True)
class RunningProxy:
    base_url: str

    def settle(self, user: str, within_s: float = 30) -> None:
        """Return when all that the user said is extracted. Raises TimeoutError."""
        deadline, url = time.monotonic() + within_s, f"{self.base_url}/memory/sessions?user_id={user}"
        while True:
            with urllib.request.urlopen(url, timeout=10) as answer:
                if not any(session["pending"] for session in json.load(answer)["data"]):
                    return
            if time.monotonic() > deadline:
                raise TimeoutError("not extracted yet: see GET /v1/memory/jobs")
            time.sleep(0.02)


@contextmanager
def running_proxy(upstream: Mock, **sections: dict[str, object]) -> Iterator[RunningProxy]:
    """Serve the proxy with an empty store until the block ends. `sections`: as in config/default.yaml."""
    with tempfile.TemporaryDirectory(prefix="memory-proxy-test-") as directory:
        given: dict[str, Any] = {"logging": {"level": "warning"}, **sections}
        given["memory"] = _MEMORY | given.get("memory", {})
        given["storage"] = {"data_dir": directory, **given.get("storage", {})}
        address: Future[str] = Future()
        stop, loop = asyncio.Event(), asyncio.new_event_loop()
        thread = threading.Thread(
            target=loop.run_until_complete, args=(_serve(upstream, given, address, stop),)
        )
        thread.start()
        try:
            yield RunningProxy(f"{address.result()}/v1")
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join()
            loop.close()


def _over_a_socket(mock: Mock) -> ASGIApp:
    """Return what answers a request as the mock does, so that the relay is the one of production."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        body, is_whole = b"", False
        while not is_whole:
            message = await receive()
            body += message.get("body", b"")
            is_whole = not message.get("more_body", False)
        target = (scope["raw_path"] + b"?" + scope["query_string"]).rstrip(b"?").decode("ascii")
        request = httpx.Request(
            scope["method"], f"http://upstream{target}", headers=scope["headers"], content=body
        )
        try:
            response = await mock.async_handler(request)
        except AssertionError:  # respx: no route matches
            text = f"the mock has no answer for {request.method} {target}"
            response = httpx.Response(501, json={"error": {"message": text, "type": "mock"}})
        headers = [(name.lower(), value) for name, value in response.headers.raw]
        await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
        assert isinstance(response.stream, httpx.AsyncByteStream)
        async for chunk in response.stream:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    return app


async def _serve(upstream: Mock, given: dict[str, Any], address: "Future[str]", stop: asyncio.Event) -> None:
    try:
        async with running(_over_a_socket(upstream), lifespan="off") as origin:
            settings: Settings = load(None, {}, {"upstream": {"base_url": f"{origin}/v1"}, **given})
            app = ReloadableApp(settings, scripted=scripted_at())
            async with running(app, http=RawTargetProtocol) as served:
                address.set_result(served)
                await stop.wait()
    except BaseException as error:
        if address.done():
            raise
        address.set_exception(error)
