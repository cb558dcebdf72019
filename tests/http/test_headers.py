"""The request's id, from the client's header to the lines of the log."""

import re
from pathlib import Path

import httpx2
import pytest

from proxy.http.router import give_request_id
from tests.e2e.conftest import models_dir
from tests.support.model import ScriptedModel
from tests.support.process import serving_process
from tests.support.upstream import ScriptedUpstream

__all__ = ["models_dir"]


@pytest.mark.parametrize("given", [b"", b"a b", b"x" * 129, b"\xff", b"a\x1b[31m", "café".encode()])
def test_what_is_no_plain_id_is_not_taken_into_the_log(given: bytes) -> None:
    assert re.fullmatch("req_[0-9a-f]{32}", give_request_id({"headers": [(b"x-request-id", given)]}))


async def test_every_line_about_a_request_holds_the_clients_id(tmp_path: Path, models_dir: Path) -> None:
    late = {"MEMORY_PROXY__MEMORY__DEADLINE_MS": "0.001", "MEMORY_PROXY__LOGGING__LEVEL": "debug"}
    body = {"model": "m", "messages": [{"role": "user", "content": "What is my boat called?"}]}
    async with ScriptedUpstream(ScriptedModel()) as upstream, httpx2.AsyncClient(timeout=30) as http:
        flags = ("--upstream", upstream.url)
        async with serving_process(tmp_path / "data", *flags, models_dir=models_dir, **late) as served:
            for id_ in ("gw-1", "gw-2"):  # over one connection
                headers = {"X-Request-Id": id_, "X-Memory-User-Id": "ana"}
                await http.post(f"{served.base_url}/chat/completions", json=body, headers=headers)
            recalled = await served.until_logged("memory.recalled", 2)
            late_for = {line.get("request_id") for line in served.logged("memory.deadline")}
    assert [line["request_id"] for line in recalled] == ["gw-1", "gw-2"]
    assert "gw-1" in late_for  # the next ones are counted, not told
