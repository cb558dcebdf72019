"""A proxy in a process of its own, the scripted upstream behind it, and the client in front of it."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from evals import serve
from evals.model import Model

ROOT = Path(__file__).resolve().parent.parent
START_S, STOP_S = 60, 15
JSON = "application/json"


class DidNotStart(Exception):
    """The proxy gave no answer; the message ends with its last words."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer: its status, headers in lower case, and body."""

    status: int
    headers: Mapping[str, str]
    body: Any


@dataclass(slots=True)
class House:
    """A running proxy. `received` holds what the upstream was asked last."""

    origin: str
    data_dir: Path
    clock: serve.Clock
    model: Model
    http: aiohttp.ClientSession
    process: subprocess.Popen[bytes] = field(repr=False)

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """Send one request; `headers` with underscores for dashes."""
        named = {k.replace("_", "-"): v for k, v in headers.items()}
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        if data is not None:
            named.setdefault("content-type", JSON)
        async with self.http.request(
            method,
            self.origin + path,
            data=data,
            headers=named,
            skip_auto_headers=("content-type",),  # an empty body has no type
        ) as answer:
            text = await answer.text()
            try:
                read = json.loads(text)
            except ValueError:
                read = text
            return Reply(answer.status, {k.lower(): v for k, v in answer.headers.items()}, read)

    async def idle(self, within_s: float = 60) -> None:
        """Return when no job is queued or running. Raises TimeoutError."""
        deadline = time.monotonic() + within_s
        while True:
            jobs = (await self.call("GET", "/health")).body.get("jobs") or {}
            if not jobs.get("queued") and not jobs.get("running"):
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"jobs are still at work after {within_s:.0f} s: {jobs}")
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def opened(
    directory: Path, model: Model, settings: Mapping[str, Any], *, whole: bool = True
) -> AsyncIterator[House]:
    """Run a proxy over `directory` while the block runs. `settings`: "section.key" to value. `whole`: all of
    memory must work, since without a model the figures would be of another product. Raises DidNotStart."""
    async with _upstream(model) as upstream, aiohttp.ClientSession() as http:
        port = _free_port()
        clock, process = _start(directory, port, upstream, settings)
        house = House(f"http://127.0.0.1:{port}", directory / "data", clock, model, http, process)
        try:
            await _until_ready(house, directory / "log", whole=whole)
            yield house
        finally:
            await asyncio.to_thread(_stop, process)


def environment_of(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return settings as the environment variables that say the same."""
    return {
        f"MEMORY_PROXY__{key.replace('.', '__').upper()}": "null" if value is None else str(value)
        for key, value in settings.items()
    }


def _start(
    directory: Path, port: int, upstream: str, settings: Mapping[str, Any]
) -> tuple[serve.Clock, subprocess.Popen[bytes]]:
    directory.mkdir(parents=True, exist_ok=True)
    clock = serve.Clock(directory / "clock")
    given = {"server.shutdown_seconds": 5, "logging.level": "warning", **settings}
    command = [sys.executable, "-m", "evals.serve", "--port", str(port), "--upstream", upstream]
    with (directory / "log").open("ab") as output:
        process = subprocess.Popen(
            [*command, "--data-dir", str(directory / "data")],
            cwd=ROOT,
            env={**os.environ, **environment_of(given), serve.VARIABLE: str(clock.file)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    return clock, process


def _last_words(log: Path) -> str:
    return log.read_text("utf-8", "replace")[-1500:]


async def _until_ready(house: House, log: Path, *, whole: bool) -> None:
    deadline, level = time.monotonic() + START_S, "none"
    while level != "full":
        await asyncio.sleep(0.05)
        with contextlib.suppress(aiohttp.ClientError):
            if (await house.call("GET", "/ready")).status == 200:
                level = (await house.call("GET", "/health")).body["memory"]["level"] if whole else "full"
        if house.process.poll() is not None or time.monotonic() > deadline:
            raise DidNotStart(f"the proxy did not start with all of memory ({level}):\n{_last_words(log)}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@contextlib.asynccontextmanager
async def _upstream(model: Model) -> AsyncIterator[str]:
    """Serve the scripted model on a free loopback port; yields its base URL."""

    async def answer(request: web.Request) -> web.Response:
        body = await request.json()
        text = model.answer(body, request.headers.get("user-agent", ""))
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        whole = {"id": "chatcmpl-eval", "object": "chat.completion", "created": 1, "model": body.get("model")}
        return web.json_response({**whole, "choices": [choice], "usage": usage})

    app = web.Application(client_max_size=64 * 2**20)
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()
