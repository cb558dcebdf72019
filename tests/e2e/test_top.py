"""`memory-proxy top` against a real proxy: one frame, and the live view in a pseudo-terminal."""

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios

import pytest

from proxy.http import operations
from tests.e2e.conftest import House, until
from tests.support.process import COMMAND

_ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


async def once(url: str) -> tuple[int, str, str]:
    """Run `top --once`; return exit status, output and error output."""
    run = await asyncio.create_subprocess_exec(
        *COMMAND, "top", "--once", "--url", url, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "COLUMNS": "80"},
    )  # fmt: skip
    out, error = await run.communicate()
    return run.returncode or 0, out.decode(), error.decode()


async def be_busy(h: House) -> None:
    """Make it answer two chats with memory, a request of the memory API, and one that is wrong."""
    await h.add("User plays the cello.")
    for _ in range(2):
        await h.tell("Which instrument do I play?")
    await h.post("/memory", {})


async def test_one_frame_fits_a_small_terminal_and_counts_what_happened(house, monkeypatch):
    monkeypatch.setattr(operations, "LOOK_S", 10.0)  # a busy machine is slow to ask the store
    async with house() as h:
        await be_busy(h)
        status, out, _ = await once(h.base_url)
    assert status == 0
    lines = out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert re.search(r"^chat +2 ", out, re.M)
    assert re.search(r"^memory +2 +\S+ +1 +0 ", out, re.M)
    assert re.search(r"^injected +2 +100 ", out, re.M)
    assert re.search(r"search +\d+ +[\d.]+ m?s +[\d.]+ m?s", out)
    assert "explicit" in out
    assert "memory: full" in out


@pytest.fixture
def terminal():
    """A pseudo-terminal of 80 x 24: the program's end and ours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    os.set_blocking(ours, False)
    yield theirs, ours
    os.close(ours)
    os.close(theirs)


async def test_the_live_view_waits_for_the_proxy_follows_it_and_ends_by_ctrl_c(house, terminal):
    theirs, ours = terminal
    screen = ""

    async def shown():
        nonlocal screen
        with contextlib.suppress(BlockingIOError):
            screen += _ANSI.sub("", os.read(ours, 65536).decode(errors="replace"))
        return screen

    async with house() as h:
        await be_busy(h)
        process = await asyncio.create_subprocess_exec(
            *COMMAND, "top", "--url", h.origin, stdin=theirs, stdout=theirs, stderr=theirs,
            env={**os.environ, "TERM": "xterm"},
        )  # fmt: skip
        await until(shown, lambda s: "time since the start" in s)
    await until(shown, lambda s: "No memory-proxy answers" in s and "Trying again" in s)
    process.send_signal(signal.SIGINT)
    assert await process.wait() == 0
