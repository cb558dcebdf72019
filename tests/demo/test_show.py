"""The demo against a proxy in miniature: all promises kept, and each broken one noticed."""

import io
from typing import Any

import pytest
from rich.console import Console

from proxy.demo.show import run_demo
from tests.demo.fake_proxy import FakeProxy
from tests.demo.serving import serving_in_thread


async def played(proxy: FakeProxy, **options: Any) -> tuple[int, str]:
    out = io.StringIO()
    console = Console(file=out, width=80, no_color=True, highlight=False)
    with serving_in_thread(proxy.app()) as origin:
        status = await run_demo(
            f"{origin}/v1", fast=True, wait_s=options.pop("wait_s", 10), console=console, **options
        )
    return status, out.getvalue()


async def test_a_proxy_that_keeps_its_promises_passes() -> None:
    proxy = FakeProxy()
    status, shown = await played(proxy)
    assert (status, "✗" in shown) == (0, False)
    assert "scripted" in shown.splitlines()[1]
    assert "Everything held." in shown
    assert "--upstream" in shown
    assert "X-Memory-Status: injected" in shown
    assert "#mem_0002: User is allergic to peanuts" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "\x1b" not in shown


async def test_nothing_is_left_behind() -> None:
    proxy = FakeProxy()
    await played(proxy)
    assert proxy.memories == {}


@pytest.mark.parametrize(
    ("broken", "noticed"),
    [
        ({"leaks_to_others": True}, "✗ Bob gets nothing of Alice's"),
        ({"forgets": False}, "✗ the assistant no longer knows"),
        ({"supersedes": False}, "✗ the old budget is no longer current"),
        ({"extracts": False}, "✗ 0 of the 5 things she said are stored"),
    ],
)
async def test_a_broken_promise_is_shown_and_makes_the_demo_fail(broken: Any, noticed: str) -> None:
    status, shown = await played(FakeProxy(**broken), wait_s=0.3)
    assert status == 1
    assert noticed in shown


async def test_a_model_of_unknown_words_is_judged_by_what_memory_did() -> None:
    status, shown = await played(FakeProxy(), model="real-model")
    assert status == 0
    assert "real-model" in shown


async def test_no_proxy_at_all_is_one_line_and_a_failure() -> None:
    out = io.StringIO()
    console = Console(file=out, width=80)
    assert await run_demo("http://127.0.0.1:9/v1", fast=True, wait_s=1, console=console) == 1
    assert "could not go on" in out.getvalue()
