"""Memories, hits and turns; a store and an embedder with scripted answers."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from proxy.domain.core import Hit, Memory, MemoryOptions, Message, Page, Scope, Search, Stamp, Turn
from proxy.domain.errors import StoreUnavailable
from proxy.domain.session import NO_NOTES, Exchange, SessionNotes
from proxy.recall import documents
from proxy.recall.pack import Budget
from proxy.recall.prepare import RecallTools
from proxy.recall.search import Searcher
from tests.support.embedder import ScriptedEmbedder
from tests.support.judge import ScriptedJudge

NOW = 1_780_000_000.0
SCOPE = Scope("default", "u1")


def memory(id: str, content: str, **changes) -> Memory:
    made = Memory(
        id=id, scope=SCOPE, type="semantic", content=content, source="extracted", created_at=NOW,
        updated_at=NOW, valid_from=NOW,
    )  # fmt: skip
    return replace(made, **changes)


def turn(*texts: str, **changes) -> Turn:
    """A conversation of user, assistant, user …, ending with the user."""
    roles = ("user", "assistant") if len(texts) % 2 else ("assistant", "user")
    messages = tuple(Message(roles[i % 2], text) for i, text in enumerate(texts))
    made = Turn(
        request_id="r1", scope=SCOPE, session_id="s1", model="gpt-4o", messages=messages,
        options=MemoryOptions(read=True, write=True, types=None, limit=10, threshold=None), at=NOW,
    )  # fmt: skip
    return replace(made, **changes)


@dataclass
class Shelf:
    """Memories with the same hits for every search; records the searches."""

    hits: list[Hit] = field(default_factory=list)
    asked: list[Search] = field(default_factory=list)
    begun: list[Scope] = field(default_factory=list)
    reading: asyncio.Future[None] | None = None
    is_slow: bool = False
    stored: int | None = None

    def snapshot(self, scope: Scope, sort: object = None) -> asyncio.Future[None]:
        self.begun.append(scope)
        self.reading = asyncio.get_running_loop().create_future()
        if not self.is_slow:
            self.reading.set_result(None)
        return self.reading

    async def search(self, scope: Scope, search: Search) -> list[Hit]:
        self.asked.append(search)
        if search.vector is None:
            return [replace(h, cosine=None) for h in self.hits if h.bm25 > 0]
        return self.hits

    async def readings(self, scope: Scope, ids: Sequence[str]) -> list[bytes | None]:
        return [None] * len(ids)

    async def stamp(self, scope: Scope) -> Stamp:
        return Stamp(0, len(self.hits))

    async def list(self, where, *, limit, after=None, total=True):
        stored = len(self.hits) if self.stored is None else self.stored
        return Page((memory("m0", "Something else."),) * min(stored, limit), None, stored > limit)


@dataclass
class Past:
    """Earlier exchanges of any session."""

    said: list[str] = field(default_factory=list)
    broken: bool = False

    async def recent(self, scope: Scope, session_id: str, limit: int) -> list[Exchange]:
        if self.broken:
            raise StoreUnavailable
        return [
            Exchange(
                seq=i, id=f"e{i}", scope=scope, session_id=session_id, model="m", said=text, answer="",
                at=NOW, whole=True,
            )
            for i, text in enumerate(self.said[-limit:])
        ]  # fmt: skip


class NoNotes:
    """Sessions without notes."""

    async def notes(self, scope: Scope, session_id: str, **asked: object) -> SessionNotes:
        return NO_NOTES


class NoPassages:
    """An empty index of documents."""

    async def holds(self, scope: Scope) -> bool:
        return False


class Words:
    """Counts words for tokens."""

    def count(self, text: str, model: str) -> int:
        return len(text.split())


def no_documents() -> documents.Shelf:
    return documents.Shelf(NoPassages(), Shelf(), None)


@pytest.fixture
def judge():
    """A judge by which everything needs memory and every memory helps."""
    return ScriptedJudge()


@pytest.fixture
def tools(judge):
    return tools_with(Shelf(), judge)


def tools_with(memories, judge, *, embedder=None, **searcher):
    """Return tools over these memories. `embedder`: one that understands Latin script by default."""
    embedder = embedder or ScriptedEmbedder()
    return RecallTools(
        searcher=Searcher(memories, embedder, lambda: NOW, judge, **searcher), sessions=Past(),
        notes=NoNotes(), shelf=no_documents(), budget=Budget(Words(), 200, 60), clock=lambda: NOW,
    )  # fmt: skip
