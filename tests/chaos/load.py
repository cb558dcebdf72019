"""Users who talk without a pause, and what they were promised."""

import asyncio
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx2

from tests.support.model import ScriptedModel

SAID = re.compile(r"I have a friend named (\w+)\.")
USERS = ("anna", "ben", "carl")
_SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
ANSWER = "Noted, thank you."


def model() -> ScriptedModel:
    """An upstream that answers at once, and extracts the friends that were named."""

    def facts(prompt: str) -> list[dict[str, Any]]:
        return [
            {"type": "semantic", "content": f"User has a friend named {name}.", "confidence": 0.9,
             "evidence": f"I have a friend named {name}."}
            for name in dict.fromkeys(SAID.findall(prompt))
        ]  # fmt: skip

    return ScriptedModel(answer=ANSWER, facts=facts)


@dataclass
class Load:
    """Each user tells of one new friend after another, in conversations of their own."""

    base_url: str
    pause_s: float = 0.2
    promised: dict[str, set[str]] = field(default_factory=lambda: {user: set() for user in USERS})
    statuses: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    requests: int = 0

    def __post_init__(self) -> None:
        self._names = _names(random.Random(7))
        self._is_over = False

    def end(self) -> None:
        """Let nobody begin another request."""
        self._is_over = True

    async def run(self) -> None:
        """Talk until cancelled, or ended."""
        async with httpx2.AsyncClient(timeout=30) as http, asyncio.TaskGroup() as tasks:
            for number, user in enumerate(USERS):
                tasks.create_task(self._talk(http, user, streamed=bool(number % 2)))

    async def _talk(self, http: httpx2.AsyncClient, user: str, *, streamed: bool) -> None:
        while not self._is_over:
            name = next(self._names)
            body = {
                "model": "m",
                "messages": [{"role": "user", "content": f"I have a friend named {name}."}],
                "memory_context": {"user_id": user},
                "stream": streamed,
            }
            began = time.monotonic()
            answer = await http.post(f"{self.base_url}/chat/completions", json=body)
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            self.requests += 1
            self.statuses[answer.headers.get("x-memory-status", "")] += 1
            if answer.status_code != 200 or not _is_whole(answer, streamed=streamed):
                self.wrong.append(f"{answer.status_code} {answer.text[:200]}")
            elif answer.headers["x-memory-store"] == "queued":
                self.promised[user].add(name)
            await asyncio.sleep(self.pause_s)

    async def settled(self, count: int = 6, within_s: float = 60) -> None:
        """Wait until so many further requests were answered."""
        wanted = self.requests + count
        async with asyncio.timeout(within_s):
            while self.requests < wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.02)


def _names(rng: random.Random) -> Iterator[str]:
    """Yield names no two of which begin alike: whether like names are told apart is another test's matter."""
    starts: set[str] = set()
    while True:
        start = "".join(rng.choices(_SYLLABLES, k=3))
        if start not in starts:
            starts.add(start)
            yield f"{start}{rng.choice(_SYLLABLES)}".capitalize()


def _is_whole(answer: httpx2.Response, *, streamed: bool) -> bool:
    return "data: [DONE]" in answer.text if streamed else ANSWER in answer.text
