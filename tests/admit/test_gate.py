"""The gate over a real store: candidates are stored, held or dropped, redacted, embedded and compared."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from proxy.admit import gate as module
from proxy.admit.decision import Decision
from proxy.admit.gate import Basis, Gate, admit, sort, with_readings
from proxy.admit.safety import DEFAULT_PII, SafetyPolicy
from proxy.domain.changes import (
    Confirm,
    Create,
    Edit,
    Hold,
    Supersede,
)
from proxy.domain.core import Candidate, Evidence
from proxy.domain.errors import EmbeddingFailed, LeaseLost
from proxy.domain.ports import Embedder, EmbeddingModel, Relation
from proxy.learn.documents import DocumentIngester
from proxy.learn.extractor import related
from proxy.models.judge import load_judge
from proxy.storage.sql.memories import SqlMemories
from proxy.telemetry import ThrottledLog
from tests.learn.support import ANA, NOON, AllAlike, House, batch, exchange, memory
from tests.storage.recording import recorded
from tests.support.judge import CHANGED, ScriptedJudge, one_value

DAY = 86_400
GHENT, LEEDS, TEA = "User lives in Ghent", "User lives in Leeds", "User drinks tea"
ACME = Candidate(type="semantic", content="Acme Hosting is approved for every deployment")


def gate(house: House, **changes: object) -> Gate:
    return Gate(house.stores.memories, None, **changes)


async def store(house: House, gate: Gate, *contents: str, at: float = NOON) -> Decision:
    """Admit facts said at this time, all read a quarter of an hour later."""
    candidates = [Candidate(type="semantic", content=c, observed_at=at) for c in contents]
    began = await house.stores.memories.stamp(ANA)
    return await admit(gate, ANA, candidates, Basis(began, NOON + 900, seed=f"job {at}"))


# ---------------------------------------------------------------- outcomes
async def test_a_doubtful_candidate_is_held_once_and_the_others_are_stored(house):
    for _ in range(2):  # a replay of the job
        began = await house.stores.memories.stamp(ANA)
        basis = Basis(began, NOON, seed="job")
        decision = await admit(
            gate(house),
            ANA,
            [Candidate(type="semantic", content=GHENT)],
            basis,
            doubtful=[(ACME, "doubtful")],
        )
        assert decision.count(Hold) == 1
    assert await house.contents() == [GHENT]
    (held,) = await house.stores.quarantine.held(ANA, limit=10)
    assert (held.candidate.content, held.reason) == (ACME.content, "doubtful")


def test_a_doubtful_candidate_is_dropped_without_quarantine_or_if_it_must_not_be_stored(house):
    lax = gate(house, policy=SafetyPolicy(quarantine=False))
    assert sort([], [(ACME, "doubtful")], lax, NOON).dropped == {"doubtful": 1}
    secret = replace(ACME, content="Acme: the password is hunter2")
    result = sort([], [(secret, "doubtful")], gate(house), NOON)
    assert (result.held, result.dropped) == ((), {"secret": 1})


def test_evidence_tags_and_origin_are_redacted_too(house):
    evidence = "I bank at Acme, my pin is 4711"
    strict = SafetyPolicy(pii={**DEFAULT_PII, "email": "redact"})
    candidate = Candidate(
        type="semantic",
        content="User banks at the harbour, write to bo@example.org",
        tags=("bo@example.org",),
        evidence=evidence,
        origin=Evidence("s-1", "ex_1", evidence),
    )
    (stored,) = sort([candidate], [], gate(house, policy=strict), NOON).stored
    assert stored.content == "User banks at the harbour, write to [redacted e-mail]"
    assert stored.tags == ("[redacted e-mail]",)
    assert stored.evidence == "I bank at Acme, my pin is [redacted]"
    assert stored.origin == Evidence("s-1", "ex_1", stored.evidence)


async def test_a_memory_expires_as_its_type_does_unless_it_names_its_end(house):
    lease = Candidate(type="episodic", content="User signed the lease")
    candidates = [lease, replace(lease, expires_at=NOON + 5), Candidate(type="semantic", content=GHENT)]
    bounds = gate(house, ttl_days={"episodic": 90})
    assert [c.expires_at for c in sort(candidates, [], bounds, NOON).stored] == [
        *(NOON + 90 * DAY, NOON + 5, None)
    ]
    for day, ends in ((0, 90), (89, 179), (100, 190)):  # said again, it lives as long as a new one
        house.now = NOON + day * DAY
        began = await house.stores.memories.stamp(ANA)
        said = [replace(lease, observed_at=house.now)]
        await admit(bounds, ANA, said, Basis(began, house.now, seed=f"job {day}"))
        assert [m.expires_at for m in await house.memories()] == [NOON + ends * DAY]
    house.now = NOON + 190 * DAY
    assert await house.memories() == []


async def test_a_named_memory_of_another_user_or_project_is_not_replaced(house):
    theirs = [replace(ANA, user="bob"), replace(ANA, project="borealis")]
    ids = []
    for scope in theirs:
        began = await house.stores.memories.stamp(scope)
        fact = Candidate(type="semantic", content="User works at Tidewell", observed_at=NOON)
        decision = await admit(gate(house), scope, [fact], Basis(began, NOON, seed="theirs"))
        ids += [change.memory.id for change in decision.changes if isinstance(change, Create)]
    apollo = replace(ANA, project="apollo")
    for named in ids:
        began = await house.stores.memories.stamp(apollo)
        left = Candidate(type="semantic", content="User left Tidewell", observed_at=NOON + 1, replaces=named)
        decision = await admit(gate(house), apollo, [left], Basis(began, NOON + 1, seed=named))
        assert decision.count(Supersede) == 0


# ---------------------------------------------------------------- concurrent writes
def counted(monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> list[str]:
    """Count the calls of `apply`; the first ones fail."""
    calls: list[str] = []
    script, apply = list(errors), SqlMemories.apply

    async def counting(self: SqlMemories, *args: Any, **kwargs: Any) -> Any:
        calls.append("once")
        if script:
            raise script.pop(0)
        return await apply(self, *args, **kwargs)

    monkeypatch.setattr(SqlMemories, "apply", counting)
    return calls


async def test_a_job_that_another_worker_has_claimed_is_not_decided_again(house, monkeypatch):
    await house.say("Acme hosts everything of ours.")
    lost = await house.stores.jobs.claim(NOON, 10)
    assert lost is not None
    assert await house.stores.jobs.claim(NOON + 11, 10) is not None
    began = await house.stores.memories.stamp(ANA)
    calls = counted(monkeypatch)
    with pytest.raises(LeaseLost):
        await admit(gate(house), ANA, [ACME], Basis(began, NOON, seed="j", done=lost))
    assert len(calls) == 1
    assert await house.contents() == []


# ---------------------------------------------------------------- vectors and readings
@dataclass
class Watched:
    """Understands ASCII only; records its texts and its threads."""

    asked: list[str] = field(default_factory=list)
    threads: set[threading.Thread] = field(default_factory=set)
    embedded: list[str] = field(default_factory=list)
    model: EmbeddingModel = field(
        default_factory=lambda: EmbeddingModel(
            "scripted", 3, similarity_threshold=0.25, related_threshold=0.3
        )
    )

    async def embed_query(self, text: str) -> bytes:
        return (await self.embed([text]))[0]

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        self.embedded += texts
        return [np.array([1, 0, len(text)], np.float32).tobytes() for text in texts]

    def begin(self, text: str) -> None: ...

    def understands(self, text: str) -> bool:
        self.asked.append(text)
        self.threads.add(threading.current_thread())
        return text.isascii()


async def _admit(house: House, embedder: Embedder) -> None:
    await store(house, Gate(house.stores.memories, embedder), GHENT, "用户养了一只猫")


async def _related(house: House, embedder: Embedder) -> None:
    await related(house.stores.memories, embedder, batch(exchange("I live in Ghent. 我养了一只猫。")), NOON)


async def _ingest(house: House, embedder: Embedder) -> None:
    documents = DocumentIngester(house.stores.documents, house.stores.passages, embedder, lambda: NOON)
    await documents.add(ANA, "Guide", "# Guide\n\nHello.\n\n## 猫\n\n我养了一只猫。\n", "markdown")


@pytest.mark.parametrize("work", [_admit, _related, _ingest])
async def test_the_model_is_asked_once_per_text_and_not_on_the_event_loop(house, work):
    embedder: Any = Watched()
    await house.stores.memories.stamp_model(embedder.model)
    await work(house, embedder)
    assert len(embedder.asked) == len(set(embedder.asked)) > len(embedder.embedded) > 0
    assert threading.main_thread() not in embedder.threads


async def test_stored_contents_get_their_readings_even_if_the_judge_fails():
    class Broken(ScriptedJudge):
        async def readings(self, contents):
            raise EmbeddingFailed("closed")

    one = memory("Ana lives in Graz.")
    changes: list[Any] = [
        *(Create(one, b"1"), Confirm(id="m2", at=NOON, confidence=0.9), Edit(one, None), Edit(one, b"2"))
    ]
    reading = one.content.encode()
    assert await with_readings(ScriptedJudge(), changes) == [
        *(replace(changes[0], reading=reading), *changes[1:3], replace(changes[3], reading=reading))
    ]
    assert await with_readings(Broken(), changes) == await with_readings(None, changes) == changes


# ---------------------------------------------------------------- relations
@dataclass
class Recording(ScriptedJudge):
    """Records the pairs of each call; fails if it is `broken`."""

    calls: list[list[tuple[str, str]]] = field(default_factory=list)
    broken: bool = False

    async def relations(self, pairs: Sequence[tuple[str, str]]) -> list[Relation]:
        self.calls.append(list(pairs))
        if self.broken:
            raise EmbeddingFailed("broken")
        return await super().relations(pairs)


@pytest.fixture
async def judge(house):
    await house.stores.memories.stamp_model(AllAlike.model)
    return Recording(relation=one_value)


def judged_by(house: House, judge: Recording | None, embedder: type[AllAlike] = AllAlike) -> Gate:
    return Gate(house.stores.memories, embedder(), judge=judge)


@pytest.mark.parametrize("missing", [True, False], ids=["no judge", "a judge that fails"])
async def test_without_relations_facts_are_stored_and_the_log_says_so_once(
    house, judge, missing, monkeypatch
):
    lines = recorded(monkeypatch, lambda facts: facts["reason"])
    monkeypatch.setattr(module, "_LOG", ThrottledLog())
    judge.relation, judge.broken = (lambda old, new: CHANGED), True
    for at, content in enumerate((GHENT, LEEDS, TEA, "User lives in Leeds.")):
        await store(house, judged_by(house, None if missing else judge), content, at=NOON + at)
    assert sorted(await house.contents()) == sorted([GHENT, LEEDS, TEA])
    reason = "not_loaded" if missing else "EmbeddingFailed"
    assert lines == [("memory.gate_without_judge", reason)]


async def test_the_relation_head_finds_plain_changes_and_leaves_the_rest(house, embedder, tmp_path):
    loaded = load_judge(tmp_path, embedder)
    if loaded.judge is None:
        pytest.skip(loaded.note)
    await house.stores.memories.stamp_model(embedder.model)
    real = Gate(house.stores.memories, embedder, judge=loaded.judge)
    said = (
        *("User's rent is $1,800 a month.", "User's rent is now $1,950 a month."),
        *("Der Nutzer wohnt in Köln.", "Der Nutzer ist nach Hamburg gezogen."),
        *("User has a cat called Miso.", "User has a cat called Tofu."),
        *("User plays the cello on Thursdays.", "User is allergic to peanuts."),
    )
    for at, content in enumerate(said):
        await store(house, real, content, at=NOON + at)
    loaded.judge.close()
    assert await house.contents() == [said[n] for n in (1, 3, 4, 5, 6, 7)]
