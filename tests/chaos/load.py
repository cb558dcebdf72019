"""Simulated users who chat without a pause, and what they were promised."""

import asyncio
import itertools
import random
import time
from dataclasses import dataclass, field

import httpx2

from tests.support.model import said

USERS = ("anna", "ben", "carl")
ANSWER = "Noted, thank you."
_SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]


@dataclass
class Load:
    """Each user mentions one new friend after another, in new conversations."""

    base_url: str
    promised: dict[str, set[str]] = field(default_factory=lambda: {user: set() for user in USERS})
    wrong: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    requests: int = 0
    is_over: bool = False

    def __post_init__(self) -> None:
        names = ["".join(syllables) for syllables in itertools.permutations(_SYLLABLES[::3], 3)]
        random.Random(7).shuffle(names)  # similar names are another test's matter
        self._names = iter(names)

    async def run(self) -> None:
        """Chat until cancelled, or over."""
        async with httpx2.AsyncClient(timeout=30) as http, asyncio.TaskGroup() as tasks:
            for number, user in enumerate(USERS):
                tasks.create_task(self._chat(http, user, streamed=bool(number % 2)))

    async def _chat(self, http: httpx2.AsyncClient, user: str, *, streamed: bool) -> None:
        whole = "data: [DONE]" if streamed else ANSWER
        while not self.is_over:
            name = next(self._names).capitalize()
            body = {
                "model": "m",
                "messages": [{"role": "user", "content": said(name)}],
                "memory_context": {"user_id": user},
                "stream": streamed,
            }
            began = time.monotonic()
            answer = await http.post(f"{self.base_url}/chat/completions", json=body)
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            self.requests += 1
            if answer.status_code != 200 or whole not in answer.text:
                self.wrong.append(f"{answer.status_code} {answer.text[:200]}")
            elif answer.headers["x-memory-store"] == "queued":
                self.promised[user].add(name)
            await asyncio.sleep(0.2)

    async def answered(self, count: int = 6) -> None:
        """Return after so many further requests were answered."""
        wanted = self.requests + count
        async with asyncio.timeout(60):
            while self.requests < wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
