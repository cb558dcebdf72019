"""How many of our modules one request executes: the fewer, the easier its way is to follow. Lower the figures
when modules are merged; the target for a request with memory is 35."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import httpx2
import pytest

import proxy

HERE = str(Path(proxy.__file__).parent)


class Trace:
    """The names of our modules whose functions are called, in any thread, while it is on."""

    def __init__(self) -> None:
        self.on, self.names = False, set[str]()
        self.others: set[asyncio.Task[Any]] = set()  # of the background

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        if self.on and event == "call" and code.co_filename.startswith(HERE) and not self._is_background():
            path = code.co_filename.removeprefix(HERE).removesuffix(".py").strip("/")
            self.names.add(path.replace("/", "."))

    def _is_background(self) -> bool:
        try:
            return asyncio.current_task() in self.others
        except RuntimeError:  # a thread
            return False

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what is executed in the block."""
        self.others = asyncio.all_tasks() - {asyncio.current_task()}
        self.on = True
        yield
        self.on = False


@pytest.fixture
def trace():
    """A trace of this thread, and of all that start during the test."""
    trace = Trace()
    threading.setprofile(trace)
    sys.setprofile(trace)
    yield trace
    sys.setprofile(None)
    threading.setprofile(None)


async def test_a_passthrough_request_executes_few_modules(house, trace):
    threading.setprofile(None)  # the store's threads work for the background only
    async with house() as h, httpx2.AsyncClient(base_url=h.base_url, timeout=30) as http:
        await http.post("/embeddings", json={"input": "a"})  # opens the connections
        with trace.recording():
            assert (await http.post("/embeddings", json={"input": "b"})).status_code == 200
    assert len(trace.names) <= 8, "\n".join(sorted(trace.names))


async def test_a_request_with_memory_executes_few_modules(house, trace):
    later: Any = {"memory": {"extraction_batch_size": 50}}  # no extraction yet
    async with house(**later) as h, httpx2.AsyncClient(base_url=h.base_url, timeout=30) as http:
        await http.post("/memory", json={"content": "User plays the cello.", "user_id": "ana"})
        body = {
            "model": "m",
            "messages": [{"role": "user", "content": "Which instrument do I play?"}],
            "memory_context": {"user_id": "ana"},
        }
        await http.post("/chat/completions", json=body)
        with trace.recording():
            answer = await http.post("/chat/completions", json=body)
    assert answer.headers["x-memory-status"] == "injected"
    # 42, and some that the store's threads execute for the background.
    assert len(trace.names) <= 45, "\n".join(sorted(trace.names))
