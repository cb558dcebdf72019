"""A process that has waited long enough says so to whoever has had no answer yet."""

import asyncio
import signal
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.e2e.conftest import models_dir
from tests.support.process import serving_process
from tests.support.upstream import Exchange, ScriptedUpstream

__all__ = ["models_dir"]

UPGRADE = b"GET /v1/realtime HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n"
ASKED = {"model": "m", "messages": [{"role": "user", "content": "Good morning"}]}


class Silent:
    """An upstream's script: it never answers, and `asked` is set once a request has arrived."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def __call__(self, exchange: Exchange) -> None:
        self.asked.set()
        await asyncio.Event().wait()


async def test_a_request_without_an_answer_at_the_end_is_told_so_in_the_shape_of_openai(
    tmp_path: Path, models_dir: Path
) -> None:
    silent = Silent()
    async with ScriptedUpstream(silent) as upstream, httpx2.AsyncClient(timeout=20) as http:
        arguments = ("--upstream", upstream.url)
        patience = {"MEMORY_PROXY__SERVER__SHUTDOWN_SECONDS": "1"}
        async with serving_process(
            tmp_path / "data", *arguments, models_dir=models_dir, **patience
        ) as served:
            answer = asyncio.create_task(http.post(f"{served.base_url}/chat/completions", json=ASKED))
            await silent.asked.wait()
            served.signal(signal.SIGTERM)
            told = await answer
            assert (told.status_code, told.headers["retry-after"]) == (503, "1")
            assert told.json()["error"]["code"] == "stopping"
            assert await served.ended(within_s=8) == 0
        assert "Traceback" not in (tmp_path / "data.log").read_text()


async def test_a_connection_after_the_end_has_begun_is_refused_though_a_worker_still_answers(
    tmp_path: Path, models_dir: Path
) -> None:
    silent = Silent()
    async with ScriptedUpstream(silent) as upstream, httpx2.AsyncClient(timeout=60) as http:
        arguments = ("--upstream", upstream.url)
        settings = {"MEMORY_PROXY__SERVER__SHUTDOWN_SECONDS": "6", "MEMORY_PROXY__SERVER__WORKERS": "2"}
        async with serving_process(
            tmp_path / "data", *arguments, models_dir=models_dir, **settings
        ) as served:
            answer = asyncio.create_task(http.post(f"{served.base_url}/chat/completions", json=ASKED))
            await silent.asked.wait()
            served.signal(signal.SIGTERM)
            address = urlsplit(served.base_url)
            for _ in range(40):
                try:
                    _, writer = await asyncio.open_connection(address.hostname, address.port)
                except ConnectionRefusedError:
                    break
                writer.close()
                await asyncio.sleep(0.1)
            else:
                pytest.fail("connections are still accepted")
            assert not answer.done()  # the worker that has it still waits
            assert (await answer).status_code == 503
            assert await served.ended(within_s=30) == 0


async def test_a_websocket_that_never_closes_does_not_hold_up_the_end(
    tmp_path: Path, models_dir: Path
) -> None:
    async def open_for_ever(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 101 S\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nhello")
        await exchange.gone()

    async with ScriptedUpstream(open_for_ever) as upstream:
        patience = {"MEMORY_PROXY__SERVER__SHUTDOWN_SECONDS": "1"}
        async with serving_process(
            tmp_path / "data", "--upstream", upstream.url, models_dir=models_dir, **patience
        ) as served:
            port = int(served.origin.rpartition(":")[2])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(UPGRADE)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
            assert await reader.readexactly(5) == b"hello"
            served.signal(signal.SIGTERM)
            assert await served.ended(within_s=20) == 0
            assert await reader.read() == b""
            writer.close()
            await upstream.until_closed()
        assert "Traceback" not in (tmp_path / "data.log").read_text()
