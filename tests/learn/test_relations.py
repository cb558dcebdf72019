"""The gate asks the judge how facts relate, over a real store: what it asks, and what it does without it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proxy.admit import gate as module
from proxy.admit.decision import Decision
from proxy.admit.gate import Basis, Gate, admit
from proxy.domain.core import Candidate, Confirm, Create, Supersede
from proxy.domain.errors import Conflict, EmbeddingFailed
from proxy.domain.judging import Relation
from proxy.models.embedder import OnnxEmbedder
from proxy.models.judge import load_judge
from proxy.storage.sql.memories import SqlMemories
from proxy.telemetry import ThrottledLog
from tests.learn.support import ANA, NOON, AllAlike, House
from tests.storage.recording import recorded
from tests.support.judge import CHANGED, ScriptedJudge, one_value

GHENT, LEEDS, TEA = "User lives in Ghent", "User lives in Leeds", "User drinks tea"


@dataclass
class Asked(ScriptedJudge):
    """Notes the pairs of each call; fails if it is `broken`."""

    calls: list[list[tuple[str, str]]] = field(default_factory=list)
    broken: bool = False

    async def relations(self, pairs: Sequence[tuple[str, str]]) -> list[Relation]:
        self.calls.append(list(pairs))
        if self.broken:
            raise EmbeddingFailed("broken")
        return await super().relations(pairs)


@pytest.fixture
async def judge(house: House) -> Asked:
    await house.stores.memories.stamp_model(AllAlike.model)
    return Asked(relation=one_value)


class TeaApart(AllAlike):
    """Puts what names tea at a right angle to everything else."""

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        return [np.array([0, 1, 0] if "tea" in t else [1, 0, 0], np.float32).tobytes() for t in texts]


async def store(
    house: House,
    judge: Asked | None,
    *contents: str,
    at: float = NOON,
    embedder: type[AllAlike] = AllAlike,
) -> Decision:
    gate = Gate(house.stores.memories, embedder(), judge=judge)
    candidates = [Candidate(type="semantic", content=c, observed_at=at) for c in contents]
    began = await house.stores.memories.stamp(ANA)
    return await admit(gate, ANA, candidates, Basis(began, NOON + 900, seed=f"job {at}"))


async def test_all_relations_of_a_batch_are_asked_for_in_one_call(house: House, judge: Asked) -> None:
    await store(house, judge, TEA)
    await store(house, judge, LEEDS, at=NOON + 60)
    judge.calls.clear()
    decision = await store(house, judge, GHENT, "User has a canoe", at=NOON + 120)
    (pairs,) = judge.calls
    assert (decision.count(Supersede), decision.count(Create)) == (1, 1)
    assert set(pairs) == {
        (LEEDS, GHENT),
        (TEA, GHENT),
        (LEEDS, "User has a canoe"),
        (TEA, "User has a canoe"),
        (GHENT, "User has a canoe"),
    }
    assert sorted(await house.contents()) == sorted([GHENT, "User has a canoe", TEA])


async def test_the_judge_reads_first_what_was_said_first(house: House, judge: Asked) -> None:
    await store(house, judge, GHENT, at=NOON + 60)
    await store(house, judge, LEEDS, at=NOON)  # read later
    assert judge.calls == [[(LEEDS, GHENT)]]
    assert await house.contents() == [GHENT]


async def test_after_a_conflict_only_new_pairs_are_asked_for(
    house: House, judge: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store(house, judge, TEA)
    apply, others = SqlMemories.apply, [LEEDS]

    async def overtaken(self: SqlMemories, *args: Any, **more: Any) -> Any:
        if others:
            await store(house, None, others.pop(), at=NOON + 30)
            raise Conflict("another write")
        return await apply(self, *args, **more)

    monkeypatch.setattr(SqlMemories, "apply", overtaken)
    await store(house, judge, GHENT, at=NOON + 60)
    assert judge.calls == [[(TEA, GHENT)], [(LEEDS, GHENT)]]
    assert sorted(await house.contents()) == sorted([GHENT, TEA])


async def test_what_is_far_from_a_candidate_is_not_asked_about(house: House, judge: Asked) -> None:
    await store(house, judge, TEA, embedder=TeaApart)
    await store(house, judge, LEEDS, "User drinks tea at home", at=NOON + 60, embedder=TeaApart)
    assert judge.calls == [[(TEA, "User drinks tea at home")]]


async def test_equal_texts_are_not_asked_about(house: House, judge: Asked) -> None:
    await store(house, judge, GHENT)
    decision = await store(house, judge, "user lives in  ghent.", at=NOON + 60)
    assert (decision.count(Confirm), judge.calls) == (1, [])


@pytest.mark.parametrize("missing", [True, False], ids=["no judge", "a judge that fails"])
async def test_without_relations_facts_are_stored_and_the_log_says_so_once(
    house: House, judge: Asked, missing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = recorded(monkeypatch, lambda facts: facts["reason"])
    monkeypatch.setattr(module, "_SELDOM", ThrottledLog())
    judge.relation, judge.broken = (lambda old, new: CHANGED), True
    for at, content in enumerate((GHENT, LEEDS, TEA, "User lives in Leeds.")):
        await store(house, None if missing else judge, content, at=NOON + at)
    assert sorted(await house.contents()) == sorted([GHENT, LEEDS, TEA])
    reason = "not_loaded" if missing else "EmbeddingFailed"
    assert lines == [("memory.gate_without_judge", reason)]


async def test_texts_that_the_judge_would_not_read_whole_are_stored_side_by_side(
    house: House, judge: Asked
) -> None:
    story = "User's allotment has " + ", ".join(f"a bed of {n} leeks" for n in range(2, 40))
    for at, end in enumerate((" and a shed.", " and no shed.")):
        await store(house, judge, story + end, at=NOON + at)
    assert (judge.calls, len(await house.contents())) == ([], 2)


# ---------------------------------------------------------------- the real head
@pytest.mark.parametrize(
    ("old", "new", "left"),
    [
        ("User's rent is $1,800 a month.", "User's rent is now $1,950 a month.", 1),
        ("Der Nutzer wohnt in Köln.", "Der Nutzer ist nach Hamburg gezogen.", 1),
        ("Le budget du projet est de 5000 euros.", "Le budget du projet est passé à 7000 euros.", 1),
        ("User has a cat called Miso.", "User has a cat called Tofu.", 2),
        ("用户的儿子五岁。", "用户的女儿三岁。", 2),
        ("User plays the cello on Thursdays.", "User is allergic to peanuts.", 2),
    ],
)
async def test_the_relation_head_finds_plain_changes_and_leaves_the_rest(
    house: House, embedder: OnnxEmbedder, tmp_path: Path, old: str, new: str, left: int
) -> None:
    loaded = load_judge(tmp_path, embedder)
    if loaded.judge is None:
        pytest.skip(loaded.note)
    await house.stores.memories.stamp_model(embedder.model)
    gate = Gate(house.stores.memories, embedder, judge=loaded.judge)
    for at, content in enumerate((old, new)):
        began = await house.stores.memories.stamp(ANA)
        candidate = Candidate(type="semantic", content=content, observed_at=NOON + at)
        await admit(gate, ANA, [candidate], Basis(began, NOON + 9, seed=str(at)))
    loaded.judge.close()
    assert await house.contents() == [old, new][-left:]
