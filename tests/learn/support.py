"""What the write path's tests share: a clock that is set by hand, a scripted extraction model, a house."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from proxy.admit import safety
from proxy.admit.gate import Gate
from proxy.domain.core import Memory, MemoryFilter, MemoryOptions, Message, Scope, Stamp, Turn
from proxy.domain.limits import TurnPriority
from proxy.domain.ports import Asks, CompletionRequest, Embedder, Judge, Statement
from proxy.domain.session import Batch, Exchange, NewExchange, Outcome
from proxy.learn.recorder import TriggerPolicy, intent_of
from proxy.learn.worker import JobReport, Mode, Worker, WorkerConfig, WorkerPace, WorkerTools
from proxy.storage.sqlite import SqliteStores
from tests.support.judge import ASKS_NOTHING, ScriptedJudge, stated

ANA = Scope("t", "ana")
NOON = 1_780_000_000.0  # 2026-05-28


def exchange(said, answer="Noted.", *, seq=1, at=NOON, scope=ANA):
    """Return a committed exchange of session s-1."""
    return Exchange(
        seq=seq, id=f"ex_{seq}", scope=scope, session_id="s-1", model="m", said=said, answer=answer, at=at,
        whole=True,
    )  # fmt: skip


def turn(said: str, session: str = "s-1") -> Turn:
    """Return a request of Ana's with one message."""
    options = MemoryOptions(True, True, None, 10, None)
    return Turn(
        request_id="r", scope=ANA, session_id=session, model="m", messages=(Message("user", said),),
        options=options, at=NOON,
    )  # fmt: skip


def batch(*pending: Exchange, context: Sequence[Exchange] = ()) -> Batch:
    """Return a batch of the exchanges."""
    return Batch(tuple(pending), tuple(context), Stamp(0, 0))


def memory(content: str, **changes: Any) -> Memory:
    """Return a current memory of Ana's."""
    made = Memory(
        id=f"mem_{abs(hash(content)):024x}"[:28], scope=ANA, type="semantic", content=content,
        source="extracted", created_at=NOON - 1000, updated_at=NOON - 1000, valid_from=NOON - 1000,
    )  # fmt: skip
    return replace(made, **changes)


def facts(*contents: str, **fields: Any) -> str:
    """Return an extraction answer with semantic facts of these contents."""
    return json.dumps(
        {"facts": [{"type": "semantic", "content": c, "confidence": 0.9, **fields} for c in contents]}
    )


Answer = str | Exception | Callable[[CompletionRequest], str]


class ScriptedCompleter:
    """An extraction model that gives the scripted answers in order, then nothing to remember."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[CompletionRequest] = []
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()
        self.go_on.set()

    async def complete(self, request: CompletionRequest) -> str:
        self.requests.append(request)
        self.reached.set()
        await self.go_on.wait()
        answer = self.answers.pop(0) if self.answers else '{"facts": []}'
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if callable(answer) else answer


def asked(text: str) -> Asks:
    """Return that the text asks to remember something, if it says "remember"."""
    return replace(ASKS_NOTHING, remember=0.9) if "remember" in text.lower() else ASKS_NOTHING


def stated_or_asked(message: str, candidate: str) -> Statement:
    """Judge every candidate as stated, one that says "remember" as asked for."""
    return stated(sense="remember" if "remember" in candidate.lower() else "stated")


@dataclass
class House:
    """The write path over a real store."""

    stores: SqliteStores
    completer: ScriptedCompleter
    embedder: Embedder | None = None
    mode: Mode = "llm"
    now: float = NOON
    policy: TriggerPolicy = field(default_factory=lambda: TriggerPolicy(batch_size=1))
    pace: WorkerPace = field(default_factory=WorkerPace)
    reports: list[JobReport] = field(default_factory=list)
    count: int = 0
    shared: bool = False
    judge: Judge | None = field(default_factory=lambda: ScriptedJudge(asks=asked, statement=stated_or_asked))

    def worker(self, *, turns: TurnPriority | None = None) -> Worker:
        """Return a new worker, as after a restart."""
        tools = WorkerTools(
            self.stores.jobs,
            self.stores.sessions,
            Gate(self.stores.memories, self.embedder, judge=self.judge),
            self.completer,
            shared=self.shared,
            turns=turns or TurnPriority(),
        )
        return Worker(
            tools,
            WorkerConfig(self.mode, self.policy, self.pace),
            clock=lambda: self.now,
            report=self.reports.append,
            jitter=lambda: 1.0,
        )

    async def say(self, said, answer="Noted.", *, scope=ANA, session="s-1"):
        """Commit an exchange as the proxy does."""
        self.count += 1
        meant = await intent_of(self.judge, said)
        begun = await self.stores.sessions.begin(
            NewExchange(
                id=f"ex_{self.count}", key=f"k{self.count}", scope=scope, session_id=session, model="m",
                said=safety.redact(said), at=self.now, explicit=meant.is_explicit, personal=meant.personal,
            )
        )  # fmt: skip
        outcome = Outcome(safety.redact(answer), True)
        assert await self.stores.sessions.complete(begun, outcome, self.policy.on_completion)
        return begun

    async def memories(self, scope: Scope = ANA, *, all: bool = False) -> list[Memory]:
        """Return what is stored for the user, oldest first; with `all` also what was superseded."""
        where = MemoryFilter(tenant=scope.tenant, user=scope.user, include_inactive=all, now=self.now)
        return list((await self.stores.memories.list(where, limit=100)).items)[::-1]

    async def contents(self, scope: Scope = ANA) -> list[str]:
        """Return the texts of the current memories."""
        return [m.content for m in await self.memories(scope)]
