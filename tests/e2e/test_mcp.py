"""MCP with the SDK's own client: over streamable HTTP, and over standard input and output of a process."""

import contextlib
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.http.auth.minting import mint
from tests.support.process import COMMAND

Connect = Callable[..., contextlib.AbstractAsyncContextManager[Client]]
SAID = "User keeps a violet kayak in Oslo."


@contextlib.asynccontextmanager
async def over_http(h, *, user=None, key=None):
    headers = {"X-Memory-User-Id": user, "Authorization": key and f"Bearer {key}"}
    sent = {name: value for name, value in headers.items() if value}
    async with (
        httpx2.AsyncClient(headers=sent, timeout=60) as http,
        Client(streamable_http_client(f"{h.origin}/mcp", http_client=http)) as client,
    ):
        yield client


@contextlib.asynccontextmanager
async def over_stdio(h, *, user=None, key=None):
    flags = [*(["--user", user] if user else []), *(["--key", key] if key else [])]
    args = [*COMMAND[1:], "mcp", "--url", h.origin, *flags]
    process = StdioServerParameters(command=sys.executable, args=args, env=dict(os.environ))
    async with Client(stdio_client(process), mode="legacy") as client:
        yield client


transports = pytest.mark.parametrize("connect", [over_http, over_stdio])


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    """Return the tool's data. Fails for an error."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """Return the text of the tool's error."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    text: str = result.content[0].text
    return text


@transports
async def test_a_client_adds_finds_corrects_lists_and_forgets_its_own_memories_only(house, connect):
    async with house() as h, connect(h, user="ana") as client, over_http(h, user="ben") as ben:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ["search", "add", "update", "forget", "list"]
        assert all(tool.description and tool.input_schema["properties"] for tool in tools)
        id_ = (await call(client, "add", content=SAID, type="semantic", tags=None))["memory"]["id"]
        (found,) = (await call(client, "search", query="Where is my boat?"))["memories"]
        assert (found["id"], found["content"], found["created_at"][:2]) == (id_, SAID, "20")
        assert (await call(ben, "list"))["memories"] == []
        assert (await call(ben, "search", query="Where is my boat?"))["memories"] == []
        for tool, more in (("update", {"content": "x"}), ("forget", {})):
            assert "No memory" in await refused(ben, tool, id=id_, **more)
        assert "user_id" in await refused(ben, "list", user_id="ana")
        assert "No memory" in await refused(ben, "forget", id="../memory?user_id=ana")
        moved = SAID.replace("Oslo", "Bergen")
        assert (await call(client, "update", id=id_, content=moved))["memory"]["content"] == moved
        assert "Bergen" in (await client.call_tool("list", {})).content[0].text
        for dry_run, forgotten in ((True, False), (False, True)):
            counted = await call(client, "forget", id=id_, dry_run=dry_run)
            assert (counted["forgotten"], counted["counts"]["memories"]) == (forgotten, 1)
        assert (await call(client, "list"))["memories"] == []
        async with over_http(h) as unnamed:
            for tool, more in (("list", {}), ("forget", {"id": id_})):
                assert "No user is named" in await refused(unnamed, tool, **more)


async def test_a_key_decides_the_user_and_a_wrong_one_is_refused(house, keys):
    zoe, _ = await mint(keys, user="zoe")
    async with house(identity={"mode": "keys"}, upstream_extra={"api_key": "sk-server"}) as h:
        async with over_http(h, key=zoe) as client:
            await call(client, "add", content=SAID)
            assert len((await call(client, "list"))["memories"]) == 1
        for given in ({"key": "mp-wrong"}, {"key": zoe, "user": "ana"}):
            with pytest.raises(ExceptionGroup):
                async with over_http(h, **given):
                    pass
        async with over_stdio(h, key=zoe, user="ana") as client:
            assert "belongs to another user" in await refused(client, "list")
    async with over_stdio(h, user="ana") as client:
        assert f"No memory-proxy answers at {h.origin}" in await refused(client, "list")


async def test_bad_arguments_are_errors_in_plain_text_and_nothing_is_logged(house, caplog, capfd):
    caplog.set_level(logging.DEBUG, "proxy")
    async with house() as h, over_http(h, user="ana") as client:
        assert "`content` is required" in await refused(client, "add", type="semantic")
        assert "Unknown memory type" in await refused(client, "add", content=SAID, type="violet kayak")
        assert "`limit`" in await refused(client, "search", query=SAID, limit=0)
        assert "what to change" in await refused(client, "update", id="mem_1")
        assert "Unknown tool" in await refused(client, "kayak")
        for body in (b"{violet kayak", b'["violet kayak"]', b'{"jsonrpc": "2.0", "method": "violet kayak"}'):
            async with httpx2.AsyncClient(headers={"X-Memory-User-Id": "ana"}) as http:
                sent = {"content-type": "application/json", "accept": "application/json"}
                answer = await http.post(f"{h.origin}/mcp", content=body, headers=sent)
                assert answer.status_code in (202, 400)
    assert "kayak" not in caplog.text + capfd.readouterr().err


async def test_a_web_page_of_another_origin_or_host_name_is_refused(house):
    async with house() as h, httpx2.AsyncClient(base_url=h.origin) as http:
        for headers in ({"origin": "http://evil.example"}, {"host": "evil.example"}):
            answer = await http.post("/mcp", json={}, headers=headers)
            assert answer.status_code == 403
        assert (await http.get("/mcp")).status_code == 405  # no stream to open
