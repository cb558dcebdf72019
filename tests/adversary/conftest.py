"""The whole proxy of tests/e2e, and clients that behave badly."""

import asyncio
import json
from pathlib import Path

from tests.e2e.chat_only import ChatOnly
from tests.e2e.conftest import Json, house, keys, models_dir, stores
from tests.support.model import known
from tests.support.upstream import Exchange

__all__ = ["house", "keys", "models_dir", "stores"]

TEA = ("oolong", "User likes oolong tea.")
KEYS: Json = {"identity": {"mode": "keys"}, "upstream_extra": {"api_key": "sk-server"}}


def files_with(directory: Path, text: str) -> list[str]:
    """Return the files under the directory that contain the text."""
    files = (f for f in directory.rglob("*") if f.is_file() and not f.is_symlink())
    return [f.name for f in files if "models" not in f.parts and text.encode() in f.read_bytes()]


class Gated(ChatOnly):
    """Extracts a fact if its cue was said; waits with extraction and answers while a gate is closed."""

    def __init__(self, fact: tuple[str, str] = TEA, answer: str = "All right.") -> None:
        super().__init__(answer, facts=known(fact))
        self.may_extract, self.may_answer = asyncio.Event(), asyncio.Event()
        self.may_extract.set()
        self.may_answer.set()
        self.extracting, self.answering = asyncio.Event(), asyncio.Event()
        self.extraction_error = 0  # a status; 0: none

    async def __call__(self, exchange: Exchange) -> None:
        if b"(memory_extraction)" in (exchange.request.header(b"user-agent") or b""):
            self.extracting.set()
            await self.may_extract.wait()
            if self.extraction_error:
                await exchange.json({"error": {"message": "no"}}, self.extraction_error)
                return
        await super().__call__(exchange)

    async def converse(self, exchange: Exchange) -> None:
        streams = exchange.request.json.get("stream") and not self.may_answer.is_set()
        if streams:
            await exchange.start_stream()
            delta = {"choices": [{"index": 0, "delta": {"content": self.answer}}]}
            await exchange.chunk(b"data: %s\n\n" % json.dumps(delta).encode())
        self.answering.set()
        await self.may_answer.wait()
        if streams:
            await exchange.end()
        else:
            await super().converse(exchange)
