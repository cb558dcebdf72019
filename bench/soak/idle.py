"""What an open, idle stream costs: `python -m bench.soak.idle`.

So many streams are opened over loopback, each of another user; the head comes at once, then the upstream
says nothing for minutes. The proxy's resident memory before, with them, and after all have hung up.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from bench import machine, servers

# Two events a minute apart: the first comes after a minute, the status at once. See csrc/upstream.c.
MODEL = "m-2-120000000"
AT_ONCE = 32
QUIET_S = 3.0


async def measure(streams: int, *, memory: bool) -> dict[str, float]:
    """Return the resident memory in MB before, with the streams, and after them."""
    with tempfile.TemporaryDirectory(prefix="memory-proxy-idle-") as directory:
        scratch, cpus = Path(directory), machine.processors()[0] | machine.processors()[1]
        port, upstream_port = servers.free_port(), servers.free_port()
        upstream = servers.start(
            "upstream", upstream_port, servers.upstream(upstream_port), cpus, scratch / "u"
        )
        try:
            plan = servers.memory_proxy(port, upstream_port, scratch / "data")
            proxy = servers.start("memory-proxy", port, plan, cpus, scratch / "p")
            try:
                return await _measured(proxy, streams, memory=memory)
            finally:
                proxy.stop()
        finally:
            upstream.stop()


async def _measured(proxy: servers.Server, streams: int, *, memory: bool) -> dict[str, float]:
    found: dict[str, float] = {}
    async with AsyncExitStack() as warm:  # what the first streams make is there for all later ones
        await asyncio.gather(*(_opened(warm, proxy, f"w{n}", memory=memory) for n in range(AT_ONCE)))
    await asyncio.sleep(QUIET_S)
    found["before"] = _mb(proxy)
    found["with"], found["after"] = await _wave(proxy, streams, "u", memory=memory)
    # As many others take what the first ones have left: what is not given back is not lost either.
    found["with as many others"], found["after them"] = await _wave(proxy, streams, "v", memory=memory)
    found["kB a stream"] = (found["with"] - found["before"]) * 1000 / streams
    return found


async def _wave(proxy: servers.Server, streams: int, name: str, *, memory: bool) -> tuple[float, float]:
    """Open so many streams, and close them; return the memory with them and after them."""
    async with AsyncExitStack() as stack:
        turn = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> None:
            async with turn:
                await _opened(stack, proxy, f"{name}{number}", memory=memory)

        await asyncio.gather(*(one(n) for n in range(streams)))
        await asyncio.sleep(QUIET_S)
        held = _mb(proxy)
    await asyncio.sleep(QUIET_S)
    return held, _mb(proxy)


async def _opened(stack: AsyncExitStack, proxy: servers.Server, user: str, *, memory: bool) -> None:
    await stack.enter_async_context(_stream(proxy.port, user, memory=memory))


@asynccontextmanager
async def _stream(port: int, user: str, *, memory: bool) -> AsyncIterator[None]:
    """Hold one stream open, of which the head has come."""
    body: dict[str, object] = {"model": MODEL, "stream": True}
    body["messages"] = [{"role": "user", "content": "My dog is called Bafido."}]
    if memory:
        body["memory_context"] = {"user_id": user}
    raw = json.dumps(body, separators=(",", ":")).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer sk-bench\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(raw)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(head.encode() + raw)
        answered = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in answered[:16]:
            raise ValueError(f"not a stream: {answered[:60]!r}")
        yield
    finally:
        writer.close()


def _mb(proxy: servers.Server) -> float:
    return machine.memory_mib(proxy.pids()) * 2**20 / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.soak.idle", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--streams", type=int, default=1_000)
    options = parser.parse_args()
    found = {
        name: asyncio.run(measure(options.streams, memory=memory))
        for name, memory in (("without memory", False), ("with memory", True))
    }
    for name, sizes in found.items():
        print(
            f"{options.streams:,} idle streams {name}: " + ", ".join(f"{k} {v:.1f}" for k, v in sizes.items())
        )
    file = Path("results") / f"idle-streams-{time.strftime('%Y%m%d-%H%M%S')}.json"
    file.write_text(json.dumps({"streams": options.streams, **found}, indent=1) + "\n", "utf-8")
    print(f"kept in {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
