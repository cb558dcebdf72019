"""The demo's steps: two sessions, another user, a changed fact, and forgetting.

Every step checks what it promises, so that the demo is a smoke test too.
"""

import re
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from openai import OpenAI
from rich.markup import escape

from proxy.client import MemoryApi, NotAnswering, Refused
from proxy.demo import story
from proxy.demo.screen import Screen
from proxy.demo.story import Question
from proxy.demo.talk import Conversation, Reply

_POLL_S = 0.1
_SETTLED_S = 3.0  # a real model may find more or fewer facts: wait until no more come

_SCRIPTED = (
    "The model behind the proxy is [bold]scripted[/]: it matches words by rules and knows nothing.\n"
    "The memory is [bold]real[/]: extraction, storage, search and injection are those of every request."
)
_REAL_MODEL = (
    "With a real model: [bold]memory-proxy demo --upstream https://api.openai.com/v1 --model NAME[/]\n"
    "(any OpenAI-compatible URL; the key comes from OPENAI_API_KEY)"
)


class Play:
    """The steps of the story, and the promises that were broken on the way."""

    def __init__(
        self, screen: Screen, memory: MemoryApi, client: OpenAI, model: str, *, scripted: bool, wait_s: float
    ) -> None:
        self._screen, self._memory, self._client = screen, memory, client
        self._model, self._scripted, self._wait_s = model, scripted, wait_s
        self._run = uuid.uuid4().hex[:4]
        self._alice, self._bob = f"alice-{self._run}", f"bob-{self._run}"
        self.broken: list[str] = []

    def all(self, origin: str) -> None:
        """Play all steps; a broken promise does not stop the story."""
        self._open(origin)
        self._session_a()
        self._session_b()
        self._other_user()
        self._changed_fact()
        self._forget_one()
        self._forget_all()
        self._close()

    def expect(self, holds: bool, promise: str) -> None:
        """Show whether a promise was kept, and remember if not."""
        self._screen.check(holds, promise)
        if not holds:
            self.broken.append(promise)

    def tidy(self) -> None:
        """Leave nothing behind, also when the demo was stopped in the middle."""
        for user in (self._alice, self._bob):
            try:
                self._memory.forget_all(user_id=user)
            except (Refused, NotAnswering):
                return

    # ------------------------------------------------------------ the steps
    def _open(self, origin: str) -> None:
        who = (
            _SCRIPTED
            if self._scripted
            else f"The model is [bold]{escape(self._model)}[/]; it answers in its own words."
        )
        self._screen.panel(
            "memory-proxy demo", f"{who}\nThe client is the OpenAI SDK with base_url={origin}/v1"
        )
        self._screen.pause(1.5)

    def _session_a(self) -> None:
        self._screen.chapter("Session A", 'Alice mentions a few things. Nobody says "remember this".')
        session = self._conversation(self._alice, "a")
        for statement in story.STATEMENTS:
            reply = self._exchange(session, "Alice", statement)
            self._screen.facts(f"X-Memory-Store: {reply.headers.get('x-memory-store', '?')}")
        stored = self._await_memories(self._has_session_a)
        rows = [(m["id"][:12], m["type"], m["content"]) for m in reversed(stored)]
        self._screen.table(("id", "type", "stored in the background"), rows)
        found = sum(_any_shows(stored, q) for q in story.QUESTIONS)
        least = len(story.QUESTIONS) if self._scripted else 3
        self.expect(found >= least, f"{found} of the {len(story.QUESTIONS)} things she said are stored")
        self._screen.pause(1.5)

    def _session_b(self) -> None:
        self._screen.chapter(
            "Session B",
            "A new conversation with no history, asked in other words than those of session A.",
        )
        for number, question in enumerate(story.QUESTIONS):
            self._ask_and_expect(f"b{number}", question)
        self._screen.pause(1)

    def _other_user(self) -> None:
        self._screen.chapter("Another user", "Bob asks what Alice asked.")
        reply = self._exchange(self._conversation(self._bob, "bob"), "Bob", story.BUDGET.text)
        self._show_headers(reply)
        leaked = bool(reply.memory_ids) or bool(story.BUDGET.answered_by.search(reply.text))
        self.expect(not leaked, "Bob gets nothing of Alice's")

    def _changed_fact(self) -> None:
        self._screen.chapter("A fact changes", "The newer one takes the older one's place.")
        self._exchange(self._conversation(self._alice, "c"), "Alice", story.CHANGE)
        stored = self._await_memories(self._has_new_budget)
        self.expect(self._has_new_budget(stored), "the old budget is no longer current")
        reply = self._ask_and_expect("d", story.NEW_BUDGET)
        self.expect(not story.BUDGET.answered_by.search(reply.text), "the old amount is not mentioned")

    def _forget_one(self) -> None:
        self._screen.chapter("Forget one thing", "DELETE /v1/memory/{id}")
        about = [m for m in self._current() if _shows(m, story.ALLERGY)]
        for memory in about:
            self._memory.forget(memory["id"])
            self._screen.facts(f"forgotten: {memory['content']}")
        self.expect(
            bool(about) and not _any_shows(self._current(), story.ALLERGY), "it is gone from the store"
        )
        self._ask_in_vain("e", story.ALLERGY)

    def _forget_all(self) -> None:
        self._screen.chapter("Forget everything", f"DELETE /v1/memory?user_id={self._alice}")
        count = self._memory.forget_all(user_id=self._alice).get("deleted_count", 0)
        self._screen.facts(f"deleted_count: {count}")
        self.expect(count > 0 and not self._current(), "nothing of Alice's is left")
        self._ask_in_vain("f", story.NEW_BUDGET)

    def _close(self) -> None:
        broken = len(self.broken)
        verdict = f"Promises not kept: {broken}, marked above" if broken else "Everything held."
        again = (
            f"{_SCRIPTED}\n\n{_REAL_MODEL}"
            if self._scripted
            else "The memory was real, and so was the model."
        )
        self._screen.chapter("The end")
        self._screen.panel(verdict, again)

    # ------------------------------------------------------------ what the steps are made of
    def _conversation(self, user: str, session: str) -> Conversation:
        return Conversation(self._client, self._model, user, f"demo-{self._run}-{session}")

    def _exchange(self, session: Conversation, name: str, text: str) -> Reply:
        self._screen.said(name, text)
        write = self._screen.speaker("model")
        reply = session.say(text, write)
        write("\n")
        return reply

    def _ask_and_expect(self, session: str, question: Question) -> Reply:
        """Ask in a new session; the memory that answers must be injected, and come back in the answer."""
        reply = self._exchange(self._conversation(self._alice, session), "Alice", question.text)
        self._show_headers(reply)
        injected = self._injected(reply)
        hit = next((m for m in injected if _shows(m, question)), None)
        self.expect(
            bool(hit), f"injected #{hit['id'][:12]}: {hit['content']}" if hit else "what she said is injected"
        )
        if self._scripted and not question.answered_by.search(reply.text):
            self.expect(False, "the answer uses it")
        self._screen.pause(0.8)
        return reply

    def _ask_in_vain(self, session: str, question: Question) -> None:
        """Ask in a new session for what was forgotten."""
        reply = self._exchange(self._conversation(self._alice, session), "Alice", question.text)
        self._show_headers(reply)
        known = _any_shows(self._injected(reply), question) or bool(question.answered_by.search(reply.text))
        self.expect(not known, "the assistant no longer knows")
        self._screen.pause(0.8)

    def _show_headers(self, reply: Reply) -> None:
        names = ("Status", "Reason", "Count", "Tokens")
        shown = [f"X-Memory-{n}: {v}" for n in names if (v := reply.headers.get(f"x-memory-{n.lower()}"))]
        took = re.search(r"memory;dur=([\d.]+)", reply.headers.get("server-timing", ""))
        self._screen.facts(*shown, f"memory took {took[1]} ms" if took else "")

    def _injected(self, reply: Reply) -> list[dict[str, Any]]:
        return [self._memory.get(memory_id, user_id=self._alice) for memory_id in reply.memory_ids]

    def _current(self) -> list[dict[str, Any]]:
        data: list[dict[str, Any]] = self._memory.list(user_id=self._alice, limit=100)["data"]
        return data

    def _has_session_a(self, stored: Sequence[dict[str, Any]]) -> bool:
        return all(_any_shows(stored, q) for q in story.QUESTIONS)

    def _has_new_budget(self, stored: Sequence[dict[str, Any]]) -> bool:
        return _any_shows(stored, story.NEW_BUDGET) and not _any_shows(stored, story.BUDGET)

    def _await_memories(self, complete: Callable[[Sequence[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """Return Alice's memories once they are complete, or (with a real model) once no more come."""
        began = changed = time.monotonic()
        stored = before = self._current()
        with self._screen.waiting("waiting until the facts are extracted and stored"):
            while not complete(stored) and time.monotonic() - began < self._wait_s:
                self._screen.wait(_POLL_S)
                stored = self._current()
                if stored != before:
                    changed, before = time.monotonic(), stored
                settled = changed > began and time.monotonic() - changed > _SETTLED_S
                if settled and not self._scripted:
                    break
        self._screen.facts(f"waited {time.monotonic() - began:.1f} s for extraction")
        return stored


def _shows(memory: dict[str, Any], question: Question) -> bool:
    return bool(question.answered_by.search(memory["content"]))


def _any_shows(memories: Sequence[dict[str, Any]], question: Question) -> bool:
    return any(_shows(m, question) for m in memories)
