"""`memory-proxy demo`: opens what the demo needs and plays it.

The OpenAI SDK is asked for only here: it takes half a second to import, and the proxy does without it.
"""

import asyncio
import os

from rich.console import Console

from proxy.client import MemoryApi, NotAnswering, Refused
from proxy.demo.answers import MODEL
from proxy.demo.screen import Screen, Stopped


async def run_demo(
    proxy_url: str,
    *,
    model: str | None = None,
    fast: bool = False,
    wait_s: float = 60.0,
    console: Console | None = None,
) -> int:
    """Play the demo against a running proxy; return 0 if every step showed what it promises, else 1.

    Speaks as two users made up for this run, and forgets what it stored. `model` None says that the
    proxy stands in front of the scripted model, so that the answers' words can be checked too; the key
    for a real model is OPENAI_API_KEY. `wait_s` bounds each answer and each wait for extraction.
    """
    screen = Screen(console or Console(highlight=False), fast=fast)
    try:
        # In a thread: the SDK's plain client reads best, and the proxy may live in this event loop.
        return await asyncio.to_thread(_played, screen, proxy_url, model, wait_s)
    except asyncio.CancelledError:
        screen.stop()
        raise


def _played(screen: Screen, proxy_url: str, model: str | None, wait_s: float) -> int:
    try:
        import openai

        from proxy.demo.play import Play
    except ImportError:
        screen.panel("memory-proxy demo", "The demo speaks through the OpenAI SDK: run scripts/install")
        return 1
    origin = proxy_url.rstrip("/").removesuffix("/v1")
    api_key = os.environ.get("OPENAI_API_KEY") if model else None
    with openai.OpenAI(
        base_url=f"{origin}/v1", api_key=api_key or "none", max_retries=0, timeout=wait_s
    ) as client:
        play = Play(screen, MemoryApi(origin), client, model or MODEL, scripted=model is None, wait_s=wait_s)
        try:
            play.all(origin)
        except (openai.OpenAIError, Refused, NotAnswering) as e:
            play.expect(False, f"the demo could not go on: {type(e).__name__}: {str(e)[:300]}")
        except Stopped:
            return 1
        finally:
            play.tidy()
    return 1 if play.broken else 0
