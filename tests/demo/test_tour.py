"""The demo against a fake proxy: it passes, and it notices each broken promise."""

import io
from typing import Any

import pytest
from rich.console import Console

from proxy.demo.tour import run_demo
from tests.support.fake_proxy import FakeProxy, serving_in_thread


async def played(proxy: FakeProxy, **options: Any) -> tuple[int, str]:
    out = io.StringIO()
    console = Console(file=out, width=80, no_color=True, highlight=False)
    with serving_in_thread(proxy.app()) as origin:
        status = await run_demo(
            f"{origin}/v1", fast=True, wait_s=options.pop("wait_s", 10), console=console, **options
        )
    return status, out.getvalue()


@pytest.mark.parametrize(
    ("broken", "noticed"),
    [
        ({"leaks_to_others": True}, "✗ Bob gets none of Alice's memories"),
        ({"forgets": False}, "✗ the assistant no longer knows"),
        ({"supersedes": False}, "✗ the old budget is no longer current"),
        ({"extracts": False}, "✗ 0 of the 5 things she said are stored"),
    ],
)
async def test_a_broken_promise_is_shown_and_fails_the_demo(broken, noticed):
    status, shown = await played(FakeProxy(**broken), wait_s=0.3)
    assert status == 1
    assert noticed in shown


async def test_an_unreachable_proxy_is_one_line_and_a_failure():
    out = io.StringIO()
    console = Console(file=out, width=80)
    assert await run_demo("http://127.0.0.1:9/v1", fast=True, wait_s=1, console=console) == 1
    assert "cannot continue" in out.getvalue()
