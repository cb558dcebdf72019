"""Contradictions that are found later: current facts of one user that cannot both hold.

The gate compares a fact with what is near to it when it is stored. What comes past it (an import, a
correction, a time without the relation head, an inferred change of what the user said outright) is compared
here: each memory that is new since the last pass with the ones near to it, not all pairs. If the head is
certain, the later one supersedes the earlier. In doubt the model of role `memory_consolidation` is asked, if
there is one; without it, or if it cannot tell, both stay and are flagged for their owner.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxy.admit.decision import CLOSE, FAR, RELATED, is_inferred, last_said, memory_id, relatedness, verdict
from proxy.admit.gate import Gate
from proxy.domain.changes import (
    Change,
    Close,
    Contradiction,
    DerivationStore,
    Flag,
    Review,
    Settle,
    StepCounts,
    Visit,
)
from proxy.domain.core import Memory, Scope, Search
from proxy.domain.errors import CompletionFailed, NotFound
from proxy.domain.limits import HOUR_S
from proxy.domain.ports import Completer, CompletionRequest, Relation
from proxy.learn.consolidation import AGAIN_S, CERTAIN, ROLE, commit, undated
from proxy.learn.llm_io import numbered, objects, request_of

STEP = "contradictions"
TYPES = frozenset(("semantic", "preference"))
_DOUBTED = 0.4  # relatedness of close facts, from which they are flagged
_BELIEVED = 0.3  # `changed`, from which a model is believed that the later fact replaces the earlier
_NEAREST, _PORTION, _MOST_ASKED = 8, 8, 12
_ATTEMPTS = 8
Pair = tuple[Memory, Memory]
"""The earlier and the later of two memories."""


def is_compared(memory: Memory) -> bool:
    """True for a fact or preference that was stated: not what was made of others, or of a whole session."""
    return memory.type in TYPES and memory.source not in ("summary", "reflection")


def may_conflict(one: Memory, other: Memory) -> bool:
    """True for two memories of one project and not of one exchange: what is said together holds together."""
    exchanges = {e.exchange_id for e in one.evidence}
    apart = exchanges.isdisjoint(e.exchange_id for e in other.evidence)
    return is_compared(other) and one.scope == other.scope and one.id != other.id and apart


def may_replace(older: Memory, newer: Memory) -> bool:
    """True if the later memory was said later, and the earlier one is not pinned, nor what the user said
    outright while the later one was only inferred."""
    outright = not is_inferred(older) and is_inferred(newer)
    return not older.pinned and last_said(newer) > last_said(older) and not outright


def change_of(pair: Pair, relation: Relation, cosine: float, now: float) -> Close | Flag | None:
    """Return what the relation of a pair leads to; None if both may hold."""
    older, newer = pair
    found = verdict(relation, cosine)
    if found == "same" or relation.changed < relation.same:
        return None
    if found == "changed" and relation.changed >= CERTAIN and may_replace(older, newer):
        return Close(older.id, newer.id, now)
    if found == "changed" or (cosine >= CLOSE and _DOUBTED <= relatedness(relation, cosine) < RELATED):
        return Flag(older.id, newer.id, relation.changed, now)
    return None


# ---------------------------------------------------------------- verdicts of a model on doubtful pairs
def asked(pairs: Sequence[Pair], scope: Scope, gate: Gate) -> CompletionRequest:
    """Return the LLM call that judges the pairs."""
    shown = "\n".join(f"Pair {n}:\n{numbered(pair, gate.policy)}" for n, pair in enumerate(pairs, 1))
    return request_of(ROLE, "contradictions", scope, pairs=shown)


def read_verdicts(answer: str, pairs: Sequence[Pair]) -> dict[tuple[str, str], str]:
    """Return the verdicts of the answer by the ids of the pairs; "unsure" ones are left out."""
    found: list[Any] = next((o["pairs"] for o in objects(answer) if isinstance(o.get("pairs"), list)), [])
    verdicts: dict[tuple[str, str], str] = {}
    for item in found:
        number, said = (item.get("pair"), item.get("verdict")) if isinstance(item, dict) else (None, None)
        if isinstance(number, int) and 0 < number <= len(pairs) and said in ("both", "replaces"):
            older, newer = pairs[number - 1]
            verdicts[older.id, newer.id] = str(said)
    return verdicts


# ---------------------------------------------------------------- the step
@dataclass(frozen=True, slots=True)
class Contradictions:
    """The step of the background pass, and what owners decide."""

    gate: Gate
    derivation: DerivationStore
    completer: Completer | None = None
    name: str = STEP
    switch: str = "contradictions"

    async def run(self, visit: Visit) -> StepCounts:
        """Compare the memories that are new with those near to them."""
        scope, now, judge = visit.scope, visit.now, self.gate.judge
        began = await self.gate.memories.stamp(scope)
        due = await self.derivation.due(scope, STEP, limit=_PORTION, now=now)
        if not due.memories or judge is None:
            return StepCounts()
        pairs: dict[tuple[str, str], tuple[Pair, float]] = {}
        for new in due.memories:
            vector = due.vectors[new.id]
            if vector is None or not is_compared(new):
                continue
            search = Search(vector, (), limit=_NEAREST, now=now)
            for hit in await self.gate.memories.search(new.scope, search):
                if hit.cosine is not None and hit.cosine >= FAR and may_conflict(new, hit.memory):
                    both = (new, hit.memory)
                    first, then = sorted(both, key=lambda m: (last_said(m), m.created_at, m.id))
                    pairs[first.id, then.id] = (first, then), hit.cosine
        texts = [undated(older.content, newer.content) for (older, newer), _ in pairs.values()]
        relations = await judge.relations(texts) if texts else []
        changes, ended = list[Close | Flag](), set[str]()
        for (pair, cosine), relation in zip(pairs.values(), relations, strict=True):
            change = change_of(pair, relation, cosine, now)
            if change is not None and ended.isdisjoint(m.id for m in pair):
                changes.append(change)
                ended |= {change.id} if isinstance(change, Close) else set()
        batch = ""
        if not visit.dry_run and any(isinstance(change, Flag) for change in changes):
            ordered = {ids: pair for ids, (pair, _) in pairs.items()}
            changes, batch = await self._decided(visit, changes, ordered)
        closed = [change.id for change in changes if isinstance(change, Close)]
        flagged = [change.older_id for change in changes if isinstance(change, Flag)]
        if not visit.dry_run:
            reviewed = Review(STEP, tuple(m.id for m in due.memories), now, due.upto, batch)
            read = [memory for pair, _ in pairs.values() for memory in pair]
            if await commit(self.gate, scope, began, read, [*changes, reviewed]) is None:
                return StepCounts(due_at=now + AGAIN_S)
        counts = {"superseded": closed, "contradicted": flagged}
        return StepCounts(counts, more=len(due.memories) == _PORTION)

    async def _decided(
        self, visit: Visit, changes: Sequence[Close | Flag], pairs: Mapping[tuple[str, str], Pair]
    ) -> tuple[list[Close | Flag], str]:
        """Return the changes with the model's verdicts on the flagged pairs, and the batch of its call; the
        same changes without a model, if its calls of the hour are made, or if it does not answer."""
        scope, now = visit.scope, visit.now
        calls = await self.derivation.batches(scope, STEP, now - HOUR_S)
        if self.completer is None or calls >= visit.policy.calls_per_user_hour:
            return list(changes), ""
        doubtful = [pairs[c.older_id, c.newer_id] for c in changes if isinstance(c, Flag)][:_MOST_ASKED]
        try:
            answer = await self.completer.complete(await asyncio.to_thread(asked, doubtful, scope, self.gate))
        except CompletionFailed:
            return list(changes), ""
        verdicts = read_verdicts(answer, doubtful)
        decided: list[Close | Flag] = []
        for change in changes:
            if isinstance(change, Flag):
                ids = change.older_id, change.newer_id
                if verdicts.get(ids) == "both":
                    continue
                is_believed = verdicts.get(ids) == "replaces" and change.score >= _BELIEVED
                if is_believed and may_replace(*pairs[ids]):
                    change = Close(*ids, now)
            decided.append(change)
        return decided, memory_id(STEP, "\0".join(sorted(m.id for pair in doubtful for m in pair)))

    # ------------------------------------------------------------ decisions of the owner
    async def decide(self, scope: Scope, id: str, keep: str, now: float) -> Contradiction:
        """Settle a contradiction: keep the "newer", the "older" or "both"; return it as it was. Raises
        NotFound."""
        for _ in range(_ATTEMPTS):
            began = await self.gate.memories.stamp(scope)
            found = await self.derivation.contradiction(scope, id)
            if found is None:
                break
            older, newer = found.older.id, found.newer.id
            changes: list[Change] = [Settle(id)]
            if keep != "both":
                changes.append(Close(older, newer, now) if keep == "newer" else Close(newer, older, now))
            if await commit(self.gate, scope, began, (found.older, found.newer), changes) is not None:
                return found
        raise NotFound("No contradiction has this id.", param="id", code="contradiction_not_found")
