"""The tour of `memory-proxy demo`: three acts with the OpenAI SDK in front of a running proxy.

Every step checks what it shows, so the demo is a smoke test too. No question shares a telling word with the
memory that answers it.
"""

import asyncio
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from openai import OpenAI, OpenAIError
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from proxy.client import MemoryClient, NotAnswering, RequestRefused
from proxy.demo.model import MODEL

MAX_WIDTH = 100
NAME_COLUMNS = 9  # "  Alice > "
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
        return bool(re.search(self.pattern, text, re.IGNORECASE))

    def among(self, memories: Memories) -> Memories:
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


# ---------------------------------------------------------------- terminal output
class Stopped(Exception):
    """The demo was interrupted."""


class Screen:
    """Prints the demo. With `fast` there are no pauses for reading."""

    def __init__(self, console: Console, *, fast: bool) -> None:
        self._out, self._fast, self._stopped = console, fast, threading.Event()
        self._width = min(console.width, MAX_WIDTH)
        plain = console.options.ascii_only
        self._yes, self._no, self._arrow, self._dot = ("+", "x", ">", "-") if plain else ("✓", "✗", "▸", "·")

    def pause(self, seconds: float) -> None:
        """Give the reader time. Raises Stopped."""
        self.wait(0 if self._fast else seconds)

    def wait(self, seconds: float) -> None:
        """Wait, also with `fast`. Raises Stopped."""
        if self._stopped.wait(seconds):
            raise Stopped

    def stop(self) -> None:
        """End the demo at its next pause. Another thread may call this."""
        self._stopped.set()

    def panel(self, title: str, markup: str) -> None:
        self._out.print(Panel(markup, title=title, width=self._width, padding=(0, 1)))
        self._out.print()

    def chapter(self, title: str, explanation: str = "") -> None:
        """Begin a part of the demo with a line across the screen."""
        self._out.print(Rule(title, align="left", style="cyan"), width=self._width)
        if explanation:
            self.narrate(explanation)

    def narrate(self, text: str) -> None:
        self._out.print(Text(text, style="italic"), width=self._width)
        self.pause(1)

    def said(self, who: str, text: str) -> None:
        write = self.speaker(who, style="bold")
        write(text)
        write("\n")
        self.pause(0.5)

    def speaker(self, who: str, *, style: str = "") -> Callable[[str], None]:
        """Return a function that prints pieces of speech as they arrive, indented under the name."""
        self._out.print(Text(f"{who:>{NAME_COLUMNS - 3}} {self._arrow} ", style="bold cyan"), end="")
        return _Wrapped(self._out, self._width, style)

    def facts(self, *facts: str) -> None:
        """Show small print below what was said. A line breaks between facts, not inside one."""
        separator = f" {self._dot} "
        lines: list[str] = []
        for fact in filter(None, facts):
            if lines and len(lines[-1] + separator + fact) <= self._width - NAME_COLUMNS:
                lines[-1] += separator + fact
            else:
                lines.append(fact)
        self._indented(Text(" " * NAME_COLUMNS), Text("\n".join(lines), style="dim"))

    def check(self, ok: bool, text: str) -> None:
        mark = f"{' ' * (NAME_COLUMNS - 2)}{self._yes if ok else self._no} "
        self._indented(Text(mark, style="green" if ok else "bold red"), Text(text, style="" if ok else "red"))
        self._out.print()

    def waiting(self, text: str) -> AbstractContextManager[Any]:
        """Show a spinner inside the block. In a pipe it prints nothing."""
        return self._out.status(text, spinner="line" if self._out.options.ascii_only else "dots")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Show a table. Its last column takes the rest of the width."""
        table = Table(width=self._width, header_style="bold")
        for name in columns:
            table.add_column(name, overflow="fold", ratio=1 if name == columns[-1] else None)
        for row in rows:
            table.add_row(*map(Text, row))
        self._out.print(table)

    def _indented(self, head: Text, body: Text) -> None:
        grid = Table.grid()
        grid.add_column(no_wrap=True)
        grid.add_column()
        grid.add_row(head, body)
        self._out.print(grid, width=self._width)


class _Wrapped:
    """Writes pieces of text as they arrive, in whole words, and breaks lines between words."""

    def __init__(self, console: Console, width: int, style: str) -> None:
        self._out, self._width, self._style = console, width, style
        self._column, self._rest = NAME_COLUMNS, ""

    def __call__(self, piece: str) -> None:
        *words, self._rest = re.split(r"(?<=[ \n])", self._rest + piece)
        for word in words:
            if self._column + len(word.rstrip()) > self._width and self._column > NAME_COLUMNS:
                self._end_line()
            indent = "" if self._column else " " * NAME_COLUMNS
            text = indent + word.rstrip("\n")
            self._out.print(Text(text, style=self._style), end="", soft_wrap=True)
            self._column += len(text)
            if word.endswith("\n"):
                self._end_line()

    def _end_line(self) -> None:
        self._out.print()
        self._column = 0


# ---------------------------------------------------------------- the tour
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
    origin = proxy_url.rstrip("/").removesuffix("/v1")
    api_key = os.environ.get("OPENAI_API_KEY") if model else None

    def run() -> int:
        options: dict[str, Any] = {"max_retries": 0, "timeout": wait_s}
        with OpenAI(base_url=f"{origin}/v1", api_key=api_key or "none", **options) as client:
            tour = Tour(screen, MemoryClient(origin), client, model, wait_s)
            try:
                tour.run()
            except (OpenAIError, RequestRefused, NotAnswering) as e:
                tour.check(False, f"the demo cannot continue: {type(e).__name__}: {str(e)[:300]}")
            except Stopped:
                return 1
            finally:
                tour.delete_everything()
        return 1 if tour.failed else 0

    try:
        # In a thread: the SDK's blocking client is easiest to read, and the proxy may run in this event loop.
        return await asyncio.to_thread(run)
    except asyncio.CancelledError:
        screen.stop()
        raise


@dataclass(frozen=True, slots=True)
class Reply:
    text: str
    headers: dict[str, str]  # names in lower case


@dataclass(slots=True)
class Tour:
    """The acts, and how many checks passed and failed so far."""

    screen: Screen
    memory: MemoryClient
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
                self.memory.delete(user_id=self._user(name))
            except (RequestRefused, NotAnswering):
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
            self.memory.delete(memory["id"])
            self.screen.facts(f"forgotten: {memory['content']}")
        self.check(bool(about) and not ALLERGY.among(self._current()), "it is no longer stored")
        self._ask_in_vain("3.2", ALLERGY)

        self.screen.narrate(f"And then all of them: DELETE /v1/memory?user_id={self._user('alice')}")
        count = self.memory.delete(user_id=self._user("alice")).get("deleted_count", 0)
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
        found: Memories = self.memory.get(user_id=self._user("alice"), limit=100)["data"]
        return found

    def _user(self, name: str) -> str:
        return f"{name}-{self.run_id}"
