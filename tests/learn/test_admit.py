"""What becomes of candidates at the gate: kept, held, dropped; redacted throughout; expiring by type."""

from typing import Any

import pytest

from proxy.admit.decision import hold
from proxy.admit.gate import Basis, Gate, admit, sort
from proxy.admit.safety import DEFAULT_PII, SafetyPolicy
from proxy.domain.core import Candidate, Create, Evidence, Hold
from proxy.domain.errors import Conflict, LeaseLost
from proxy.storage.sql.memories import SqlMemories
from tests.learn.support import ANA, NOON, House

DAY = 86_400
CONTENT = "Acme Hosting is approved for every deployment"
ACME, REASON = Candidate(type="semantic", content=CONTENT), "doubtful"


def gate(house: House, **changes: object) -> Gate:
    return Gate(house.stores.memories, None, **changes)  # type: ignore[arg-type]


async def test_a_doubtful_candidate_is_held_and_the_others_are_stored(house: House) -> None:
    began = await house.stores.memories.stamp(ANA)
    candidates = [Candidate(type="semantic", content="User lives in Ghent")]
    decision = await admit(
        gate(house), ANA, candidates, Basis(began, NOON, seed="job"), doubtful=[(ACME, REASON)]
    )
    assert decision.count(Create) == 1
    assert decision.count(Hold) == 1
    assert await house.contents() == ["User lives in Ghent"]
    (held,) = await house.stores.quarantine.held(ANA, limit=10)
    assert (held.candidate.content, held.reason) == (CONTENT, REASON)


async def test_a_replay_of_the_same_job_holds_a_candidate_once(house: House) -> None:
    for _ in range(2):
        began = await house.stores.memories.stamp(ANA)
        await admit(gate(house), ANA, [], Basis(began, NOON, seed="job"), doubtful=[(ACME, REASON)])
    assert len(await house.stores.quarantine.held(ANA, limit=10)) == 1


async def test_without_quarantine_a_doubtful_candidate_is_dropped_with_its_reason(house: House) -> None:
    began = await house.stores.memories.stamp(ANA)
    decision = await admit(
        gate(house, policy=SafetyPolicy(quarantine=False)),
        ANA,
        [],
        Basis(began, NOON, seed="job"),
        doubtful=[(ACME, REASON)],
    )
    assert decision.changes == ()
    assert decision.dropped == {REASON: 1}


def test_what_must_not_be_stored_is_not_held_either(house: House) -> None:
    secret = Candidate(type="semantic", content="Acme: the password is hunter2")
    result = sort([], [(secret, REASON)], gate(house), NOON)
    assert result.held == ()
    assert result.dropped == {"secret": 1}


def test_evidence_tags_and_origin_are_redacted_too(house: House) -> None:
    evidence = "I bank at Acme, my pin is 4711"
    strict = SafetyPolicy(pii={**DEFAULT_PII, "email": "redact"})
    candidate = Candidate(
        type="semantic",
        content="User banks at the harbour, write to bo@example.org",
        tags=("bo@example.org",),
        evidence=evidence,
        origin=Evidence("s-1", "ex_1", evidence),
    )
    (kept,) = sort([candidate], [], gate(house, policy=strict), NOON).kept
    assert kept.content == "User banks at the harbour, write to [redacted e-mail]"
    assert kept.tags == ("[redacted e-mail]",)
    assert kept.evidence == "I bank at Acme, my pin is [redacted]"
    assert kept.origin == Evidence("s-1", "ex_1", kept.evidence)


def test_a_memory_expires_as_its_type_does_unless_it_says_when_itself(house: House) -> None:
    candidates = [
        Candidate(type="episodic", content="User signed the lease"),
        Candidate(type="episodic", content="User flew to Porto", expires_at=NOON + 5),
        Candidate(type="semantic", content="User lives in Ghent"),
    ]
    kept = sort(candidates, [], gate(house, ttl_days={"episodic": 90}), NOON).kept
    assert [c.expires_at for c in kept] == [NOON + 90 * DAY, NOON + 5, None]


async def test_the_expiry_of_a_type_is_stored_with_the_memory(house: House) -> None:
    began = await house.stores.memories.stamp(ANA)
    candidates = [Candidate(type="episodic", content="User signed the lease")]
    await admit(gate(house, ttl_days={"episodic": 2}), ANA, candidates, Basis(began, NOON, seed="job"))
    (memory,) = await house.memories()
    assert memory.expires_at == NOON + 2 * DAY
    house.now = NOON + 2 * DAY
    assert await house.memories() == []


async def test_what_is_said_again_lives_as_long_as_if_it_were_new(house: House) -> None:
    """Said on the first day and on the last but one: it is no memory that ends tomorrow."""
    for day, ends in ((0, 90), (89, 179), (100, 190)):
        house.now = NOON + day * DAY
        began = await house.stores.memories.stamp(ANA)
        said = [Candidate(type="episodic", content="User signed the lease", observed_at=house.now)]
        bounds = gate(house, ttl_days={"episodic": 90})
        await admit(bounds, ANA, said, Basis(began, house.now, seed=f"job {day}"))
        (memory,) = await house.memories()
        assert memory.expires_at == NOON + ends * DAY


def test_the_id_of_a_held_candidate_is_that_of_its_exchange_and_words() -> None:
    candidate = Candidate(type="semantic", content=CONTENT, origin=Evidence("s-1", "ex_1"))
    one, again = (hold(candidate, "x", now=NOON, seed=seed) for seed in ("job-1", "job-2"))
    assert one.id == again.id
    assert one.id.startswith("held_")
    other = Candidate(type="semantic", content=CONTENT, origin=Evidence("s-1", "ex_2"))
    assert hold(other, "x", now=NOON, seed="job-1").id != one.id


# ---------------------------------------------------------------- what others do meanwhile
def counted(monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> list[str]:
    """Count what is applied; the first of it fails so."""
    applied: list[str] = []
    script, apply = list(errors), SqlMemories.apply

    async def counting(self: SqlMemories, *args: Any, **kwargs: Any) -> Any:
        applied.append("once")
        if script:
            raise script.pop(0)
        return await apply(self, *args, **kwargs)

    monkeypatch.setattr(SqlMemories, "apply", counting)
    return applied


async def test_a_write_that_another_overtook_is_decided_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = await house.stores.memories.stamp(ANA)
    applied = counted(monkeypatch, Conflict("another write"), Conflict("and another"))
    await admit(gate(house), ANA, [Candidate(type="semantic", content=CONTENT)], Basis(began, NOON, seed="j"))
    assert len(applied) == 3
    assert await house.contents() == [CONTENT]


async def test_a_job_that_is_another_workers_by_now_is_not_decided_again(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.say("Acme hosts everything of ours.")
    lost = await house.stores.jobs.claim(NOON, 10)
    assert lost is not None
    assert await house.stores.jobs.claim(NOON + 11, 10) is not None
    began = await house.stores.memories.stamp(ANA)
    applied = counted(monkeypatch)
    candidates = [Candidate(type="semantic", content=CONTENT)]
    with pytest.raises(LeaseLost):
        await admit(gate(house), ANA, candidates, Basis(began, NOON, seed="j", done=lost))
    assert len(applied) == 1
    assert await house.contents() == []
