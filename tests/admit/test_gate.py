"""The gate over a real store: candidates are stored, held or dropped, redacted, embedded and compared."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from proxy.admit import gate as module
from proxy.admit.decision import Decision
from proxy.admit.gate import Basis, Gate, admit, sort
from proxy.admit.safety import DEFAULT_PII, SafetyPolicy
from proxy.domain.changes import Create, Hold, Supersede
from proxy.domain.core import Candidate, Evidence
from proxy.domain.errors import EmbeddingFailed
from proxy.domain.ports import Relation
from proxy.telemetry import ThrottledLog
from tests.learn.support import ANA, NOON, House
from tests.storage.recording import recorded
from tests.support.embedder import MODEL, ScriptedEmbedder
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
        said = [Candidate(type="semantic", content=GHENT)]
        decision = await admit(gate(house), ANA, said, basis, doubtful=[(ACME, "doubtful")])
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
# ---------------------------------------------------------------- vectors and readings
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
    await house.stores.memories.stamp_model(MODEL)
    return Recording(relation=one_value)


def judged_by(house: House, judge: Recording | None) -> Gate:
    return Gate(house.stores.memories, ScriptedEmbedder(), judge=judge)


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
