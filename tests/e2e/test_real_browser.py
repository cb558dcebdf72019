"""A real browser in front of the whole proxy: an allowed page has memory and reads the headers; a foreign
page and a rebound host name spend no key."""

from typing import Any

import pytest
from playwright.async_api import async_playwright

from tests.support.model import ScriptedModel
from tests.support.serving import serving
from tests.ui.browser import FLAGS, chromium

ASK = """async ([url, headers]) => {
  const answer = await fetch(url + "/v1/chat/completions", {method: "POST", headers,
    body: JSON.stringify({model: "m", stream: true, messages: [{role: "user", content: "Where is it?"}]})});
  return [answer.status, Object.fromEntries(answer.headers), await answer.text()];
}"""
FORM = """async (url) => {
  await fetch(url + "/v1/chat/completions", {method: "POST", mode: "no-cors",
    headers: {"content-type": "text/plain"}, body: "{}"});
}"""


async def page(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
    await send({"type": "http.response.body", "body": b"<!doctype html><title>App</title>"})


@pytest.mark.skipif(chromium() is None, reason="no browser here: scripts/browser installs one")
async def test_what_a_browser_lets_pages_do(house):
    sections: dict[str, Any] = {
        "identity": {"allowed_origins": ["http://app.localhost:*"]},
        "upstream_extra": {"api_key": "sk-server"},
    }
    flags = (*FLAGS, "--host-resolver-rules=MAP rebound.test 127.0.0.1")
    async with (
        house(ScriptedModel("All is well."), **sections) as h,
        serving(page) as site,
        async_playwright() as playwright,
    ):
        browser = await playwright.chromium.launch(executable_path=chromium(), args=flags)
        proxy, port = h.origin, site.rpartition(":")[2]
        view = await browser.new_page()
        await view.goto(f"http://app.localhost:{port}/")
        headers = {"content-type": "application/json", "x-memory-user-id": "zoe", "x-stainless-lang": "js"}
        status, said, text = await view.evaluate(ASK, [proxy, headers])
        assert (status, "All" in text) == (200, True)
        assert said["x-memory-status"] in ("none", "skipped")
        assert said["x-memory-store"] == "queued"
        assert "server-timing" in said
        assert "x-request-id" in said
        spent = len(h.upstream.requests)
        await view.goto(f"http://foreign.localhost:{port}/")
        with pytest.raises(Exception, match="Failed to fetch"):
            await view.evaluate(ASK, [proxy, headers])
        await view.evaluate(FORM, proxy)
        rebound = f"http://rebound.test:{proxy.rpartition(':')[2]}"
        await view.goto(f"{rebound}/health")
        assert (await view.evaluate(ASK, [rebound, headers]))[0] == 403
        assert await view.evaluate("async () => (await fetch('/v1/files')).status") == 403
        await browser.close()
        assert len([r for r in h.upstream.requests[spent:] if b"memory-proxy" not in r.head]) == 0
