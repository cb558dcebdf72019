"""The tour of `memory-proxy demo`: three acts with the OpenAI SDK in front of a running proxy.

Every step checks what it shows, so the demo is a smoke test too. No question shares a telling word with the
memory that answers it.
"""

import asyncio
import os
import re
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from openai import OpenAI, OpenAIError
from rich.console import Console
from rich.markup import escape

from proxy.client.api import MemoryApi, NotAnswering, Refused
from proxy.demo.answers import MODEL
from proxy.demo.screen import Screen, Stopped

POLL_S = 0.1
SETTLED_S = 3.0  # a real model may find more or fewer facts: wait until no new ones arrive
MIN_FACTS_OF_REAL_MODEL = 3

SCRIPTED = (
    "The model is [bold]scripted[/]: it knows nothing and quotes the first memory in its prompt.\n"
    "The memory is [bold]real[/]: the proxy extracts, stores, searches and injects as it always does."
)
NEXT = """Your own application needs one change: [bold]base_url[/].
  scripts/serve --upstream https://api.openai.com/v1
The same demo with a real model (any OpenAI-compatible URL; the key is OPENAI_API_KEY):
  scripts/demo --upstream https://api.openai.com/v1 --model NAME"""

Memories = Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and a pattern of the memory that answers it."""

    text: str
    pattern: str

    def answered_by(self, text: str) -> bool:
        """Return whether the text has the answer."""
        return bool(re.search(self.pattern, text, re.IGNORECASE))

    def among(self, memories: Memories) -> Memories:
        """Return the memories that have the answer."""
        return [m for m in memories if self.answered_by(m["content"])]


STATEMENTS = (
    "Hi! My budget for the Hawaii trip is $10,000.",
    "I'm allergic to peanuts. We moved to Madison last month.",
    "I'm learning the cello. And I prefer window seats.",
)
BUDGET = Question("How much can we spend on the islands?", r"\b10[,.]?000\b|\b10k\b")
ALLERGY = Question("Which snacks should I keep away from?", "peanut")
QUESTIONS = (
    BUDGET,
    ALLERGY,
    Question("Where do I live these days?", "madison"),
    Question("Which instrument do I play?", "cello"),
    Question("Where on the plane should I sit?", "window"),
)
CHANGE = "Actually, my budget for the Hawaii trip is now $12,000."
NEW_BUDGET = Question(BUDGET.text, r"\b12[,.]?000\b|\b12k\b")


async def run_demo(
    proxy_url: str,
    *,
    model: str | None = None,
    fast: bool = False,
    wait_s: float = 60.0,
    console: Console | None = None,
) -> int:
    """Give the tour against a running proxy; return 0 if every check passed, else 1.

    It invents two users for this run and deletes what it stored. Without `model` the scripted model is
    expected, and the words of its answers are checked too; the key of a real model is OPENAI_API_KEY.
    `wait_s` limits each answer and each wait for extraction.
    """
    screen = Screen(console or Console(highlight=False), fast=fast)
    try:
        # In a thread: the SDK's blocking client is easiest to read, and the proxy may run in this event loop.
        return await asyncio.to_thread(_run, screen, proxy_url, model, wait_s)
    except asyncio.CancelledError:
        screen.stop()
        raise


def _run(screen: Screen, proxy_url: str, model: str | None, wait_s: float) -> int:
    origin = proxy_url.rstrip("/").removesuffix("/v1")
    api_key = os.environ.get("OPENAI_API_KEY") if model else None
    options: dict[str, Any] = {"max_retries": 0, "timeout": wait_s}
    with OpenAI(base_url=f"{origin}/v1", api_key=api_key or "none", **options) as client:
        tour = Tour(screen, MemoryApi(origin), client, model, wait_s)
        try:
            tour.run()
        except (OpenAIError, Refused, NotAnswering) as e:
            tour.check(False, f"the demo cannot continue: {type(e).__name__}: {str(e)[:300]}")
        except Stopped:
            return 1
        finally:
            tour.delete_everything()
    return 1 if tour.failed else 0


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer and its headers."""

    text: str
    headers: dict[str, str]  # names in lower case


@dataclass(slots=True)
class Tour:
    """The acts, and how many checks passed and failed so far."""

    screen: Screen
    memory: MemoryApi
    client: OpenAI
    model: str | None
    wait_s: float
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex[:4])
    passed: int = 0
    failed: int = 0

    def run(self) -> None:
        """Play all acts. A failed check does not stop them."""
        who = f"The model is [bold]{escape(self.model)}[/]." if self.model else SCRIPTED
        client = f"The client is the OpenAI SDK with base_url={str(self.client.base_url).rstrip('/')}"
        self.screen.panel("memory-proxy demo", f"{who}\n{client}")
        self.screen.pause(2)
        self._first_act()
        self._second_act()
        self._third_act()
        total = self.passed + self.failed
        failed = f"{self.failed} of {total} checks failed" if self.failed else ""
        self.screen.chapter("The end")
        self.screen.panel(failed or f"All {total} checks passed", NEXT)

    def check(self, holds: bool, promise: str) -> None:
        """Show whether a promise holds, and count it."""
        self.screen.check(holds, promise)
        self.passed += holds
        self.failed += not holds

    def delete_everything(self) -> None:
        """Delete what the demo stored, also after it was stopped half-way."""
        for name in ("alice", "bob"):
            try:
                self.memory.forget_all(user_id=self._user(name))
            except (Refused, NotAnswering):
                return

    # ------------------------------------------------------------ the acts
    def _first_act(self) -> None:
        self.screen.chapter("Act 1: Alice mentions a few things", 'She never says "remember this".')
        history: list[Any] = []
        for statement in STATEMENTS:
            reply = self._say("alice", "1", statement, history)
            self.screen.facts(f"X-Memory-Store: {reply.headers.get('x-memory-store', '?')}")
        stored = self._wait_for(lambda memories: all(q.among(memories) for q in QUESTIONS))
        rows = [(m["id"][:12], m["content"]) for m in reversed(stored)]
        self.screen.table(("id", "stored in the background"), rows)
        found = sum(bool(q.among(stored)) for q in QUESTIONS)
        least = MIN_FACTS_OF_REAL_MODEL if self.model else len(QUESTIONS)
        self.check(found >= least, f"{found} of the {len(QUESTIONS)} things she said are stored")
        self.screen.pause(2)

    def _second_act(self) -> None:
        self.screen.chapter("Act 2: a new conversation", "No history is sent, and she asks in other words.")
        for number, question in enumerate(QUESTIONS):
            self._ask(f"2.{number}", question)
        self.screen.narrate("Bob uses the same application and asks the same.")
        reply = self._say("bob", "2", BUDGET.text)
        self._show_headers(reply)
        leaked = bool(self._injected(reply)) or BUDGET.answered_by(reply.text)
        self.check(not leaked, "Bob gets none of Alice's memories")
        self.screen.pause(1)

    def _third_act(self) -> None:
        self.screen.chapter("Act 3: change and forget", "A newer fact replaces the older one.")
        self._say("alice", "3", CHANGE)
        stored = self._wait_for(
            lambda memories: bool(NEW_BUDGET.among(memories)) and not BUDGET.among(memories)
        )
        self.check(not BUDGET.among(stored), "the old budget is no longer current")
        reply = self._ask("3.1", NEW_BUDGET)
        self.check(not BUDGET.answered_by(reply.text), "the old amount is not mentioned")

        self.screen.narrate("Alice deletes one memory: DELETE /v1/memory/{id}")
        for memory in (about := ALLERGY.among(self._current())):
            self.memory.forget(memory["id"])
            self.screen.facts(f"forgotten: {memory['content']}")
        self.check(bool(about) and not ALLERGY.among(self._current()), "it is no longer stored")
        self._ask_in_vain("3.2", ALLERGY)

        self.screen.narrate(f"And then all of them: DELETE /v1/memory?user_id={self._user('alice')}")
        count = self.memory.forget_all(user_id=self._user("alice")).get("deleted_count", 0)
        self.screen.facts(f"deleted_count: {count}")
        self.check(count > 0 and not self._current(), "nothing about Alice is stored")
        self._ask_in_vain("3.3", NEW_BUDGET)

    # ------------------------------------------------------------ the steps of an act
    def _ask(self, session: str, question: Question) -> Reply:
        """Ask in a new session and check that the memory with the answer is injected."""
        reply = self._say("alice", session, question.text)
        self._show_headers(reply)
        hits = question.among(self._injected(reply))
        what = f"#{hits[0]['id'][:12]}: {hits[0]['content']}" if hits else "the memory with the answer"
        self.check(bool(hits), f"injected {what}")
        if not self.model and not question.answered_by(reply.text):
            self.check(False, "the answer uses it")
        self.screen.pause(1)
        return reply

    def _ask_in_vain(self, session: str, question: Question) -> None:
        """Ask in a new session for what was forgotten."""
        reply = self._say("alice", session, question.text)
        self._show_headers(reply)
        known = bool(question.among(self._injected(reply))) or question.answered_by(reply.text)
        self.check(not known, "the assistant no longer knows")
        self.screen.pause(1)

    def _say(self, name: str, session: str, text: str, history: list[Any] | None = None) -> Reply:
        """Send the text as the next message of the history and show the answer while it streams in."""
        history = [] if history is None else history
        history.append({"role": "user", "content": text})
        self.screen.said(name.title(), text)
        write, pieces = self.screen.speaker("model"), []
        who = {"user_id": self._user(name), "session_id": f"demo-{self.run_id}-{session}"}
        raw = self.client.chat.completions.with_raw_response.create(
            model=self.model or MODEL, messages=history, stream=True, extra_body={"memory_context": who}
        )
        with raw.parse() as stream:
            for chunk in stream:
                if piece := chunk.choices and chunk.choices[0].delta.content:
                    pieces.append(piece)
                    write(piece)
        write("\n")
        history.append({"role": "assistant", "content": "".join(pieces)})
        return Reply("".join(pieces), {k.lower(): v for k, v in raw.headers.items()})

    def _show_headers(self, reply: Reply) -> None:
        names = ("Status", "Reason", "Count", "Tokens")
        shown = [f"X-Memory-{n}: {v}" for n in names if (v := reply.headers.get(f"x-memory-{n.lower()}"))]
        took = re.search(r"memory;dur=([\d.]+)", reply.headers.get("server-timing", ""))
        self.screen.facts(*shown, f"memory took {took[1]} ms" if took else "")

    def _wait_for(self, complete: Callable[[Memories], bool]) -> Memories:
        """Return Alice's memories once they are complete, or (of a real model) once no new ones arrive."""
        began = changed = time.monotonic()
        stored = self._current()
        with self.screen.waiting("waiting for the extraction in the background"):
            while not complete(stored) and time.monotonic() - began < self.wait_s:
                self.screen.wait(POLL_S)
                before, stored = stored, self._current()
                if stored != before:
                    changed = time.monotonic()
                elif self.model and changed > began and time.monotonic() - changed > SETTLED_S:
                    break
        self.screen.facts(f"extracted after {time.monotonic() - began:.1f} s")
        return stored

    def _injected(self, reply: Reply) -> Memories:
        ids = filter(None, reply.headers.get("x-memory-ids", "").split(","))
        return [self.memory.get(memory_id, user_id=self._user("alice")) for memory_id in ids]

    def _current(self) -> Memories:
        found: Memories = self.memory.list(user_id=self._user("alice"), limit=100)["data"]
        return found

    def _user(self, name: str) -> str:
        return f"{name}-{self.run_id}"
