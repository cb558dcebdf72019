"""A process that has waited long enough says so to whoever has had no answer yet."""

import asyncio
import signal
from pathlib import Path

import httpx2

from tests.e2e.conftest import models_dir
from tests.support.process import serving_process
from tests.support.upstream import Exchange, ScriptedUpstream

__all__ = ["models_dir"]

ASKED = {"model": "m", "messages": [{"role": "user", "content": "Good morning"}]}


async def test_a_request_without_an_answer_at_the_end_is_told_so_in_the_shape_of_openai(
    tmp_path: Path, models_dir: Path
) -> None:
    asked = asyncio.Event()

    async def silent(exchange: Exchange) -> None:
        asked.set()
        await asyncio.Event().wait()

    async with ScriptedUpstream(silent) as upstream, httpx2.AsyncClient(timeout=20) as http:
        arguments = ("--upstream", upstream.url)
        patience = {"MEMORY_PROXY__SERVER__SHUTDOWN_SECONDS": "1"}
        async with serving_process(
            tmp_path / "data", *arguments, models_dir=models_dir, **patience
        ) as served:
            answer = asyncio.create_task(http.post(f"{served.base_url}/chat/completions", json=ASKED))
            await asked.wait()
            served.signal(signal.SIGTERM)
            told = await answer
            assert (told.status_code, told.headers["retry-after"]) == (503, "1")
            assert told.json()["error"]["code"] == "stopping"
            assert await served.ended(within_s=8) == 0
        assert "Traceback" not in (tmp_path / "data.log").read_text()
