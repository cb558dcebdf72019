"""Consolidation: several current memories of one thing become one, which names them as its sources.

A group is a memory that is new since the last pass, with those of its project and type that are near to it by
their vectors, related by the relation head and not about another name. With what they
have superseded, which may explain them, these are at least `consolidate_from`: then the model of role
`memory_consolidation` writes one fact that replaces those that belong together. What it writes is
compared with the sources (see `faulty`); in doubt nothing changes. Without such a model nothing is written:
of two memories that say the same the one that says less is closed.

The sources are superseded, not deleted, and one call undoes it. The result and the note that the group was
considered are stored in one transaction, so after a crash a group is consolidated once.

A model's text is data. Whatever has a form (numbers, dates, names) must come from the sources, with the same
unit; what belongs to one name must not be moved to another. Texts are compared as `text.terms` folds them.
"""

import asyncio
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from proxy.admit.decision import CLOSE, FAR, cosine_of, memory_id, verdict
from proxy.admit.gate import Gate, sort, vector_of, with_readings
from proxy.domain.changes import (
    Applied,
    Change,
    Close,
    Consolidate,
    DerivationStore,
    Review,
    StepCounts,
    Visit,
)
from proxy.domain.core import (
    DEFAULT_TIMEZONE,
    Candidate,
    Evidence,
    Memory,
    MemoryFilter,
    Scope,
    Search,
    Stamp,
)
from proxy.domain.errors import Conflict
from proxy.domain.limits import HOUR_S
from proxy.domain.ports import Completer, Judge, Relation
from proxy.learn.extractor import FOLLOWS, RESOLVED
from proxy.learn.llm_io import chosen, numbered, objects, request_of
from proxy.telemetry import log
from proxy.text.dates import local_time
from proxy.text.words import fold, is_question, sentences, terms, without_inner_stops

ROLE = "memory_consolidation"
STEP = "consolidation"
TYPES = frozenset(("semantic",))  # rules and steps are followed to the letter, and events happened once each
CERTAIN = 0.8  # of `changed`: .035 of the pairs that hold side by side, .70 of the changes (held out)
_RELATED = 0.5  # 1 - apart, from which two facts may be about one thing
_ALIKE = CLOSE  # cosine from which they may be, whatever the head says: the model decides
# Share of a source's terms that the result holds, unless a later source changes it; of the last one, and of
# one that only says by how much a value changed.
_COVERED, _COVERED_OF_LAST = 0.6, 0.5
_NEAREST, _MOST = 12, 8
_MAX_CHARS = 500
AGAIN_S = 600.0
_PORTION = 8  # memories; each costs up to twelve judgements of a pair
_MOST_EVIDENCE = 20


_SUPPORT = 0.7  # share of a made text's terms that its sources hold: the rest is narration
_ATTEMPTS = 8
_NUMBER = re.compile(r"\d+(?:[.:/-]\d+)*")
_NAME = re.compile(r"[^\W\d_][\w'’-]*")
_AROUND = re.compile(r"[^\W\d_]+|[^\w\s.,;:()\"'-]")  # a word, or a sign such as a currency's


# ---------------------------------------------------------------- what a made text may hold
def numbers(text: str) -> set[str]:
    """Return the numbers, dates among them, without thousands separators."""
    return set(_NUMBER.findall(fold(text).replace(",", "")))


def names(text: str) -> set[str]:
    """Return the capitalised words within sentences, folded: names, in most languages that have capitals."""
    found = set[str]()
    for sentence in sentences(without_inner_stops(text)):
        first = True
        for match in _NAME.finditer(sentence):
            word = match.group()
            if word[0].isupper() and not first:
                found |= set(terms(word))
            first = False
    return found


def capitalised(text: str) -> set[str]:
    """Return the terms of all capitalised words, also of those that begin a sentence."""
    return {term for word in _NAME.findall(text) if word[0].isupper() for term in terms(word)}


def fits(names_of: Iterable[set[str]]) -> bool:
    """True if no two of the texts name different things only."""
    known = [found for found in names_of if found]
    return all(not one.isdisjoint(other) for n, one in enumerate(known) for other in known[:n])


def unsupported(text: str, sources: Sequence[Memory], of_others: Collection[str] = ()) -> str:
    """Return why the text cannot have been made of the sources alone, in a word; "" if it can. `of_others`:
    ids of the sources that are about another person than the user."""
    said = " ".join(m.content for m in sources)
    dates = {local_time(m.valid_from, DEFAULT_TIMEZONE).date().isoformat() for m in sources}
    known, held = set(terms(said)), set(terms(text))
    if not held or len(held & known) < _SUPPORT * len(held):
        return "unsupported"
    if not numbers(text) <= numbers(said) | dates:
        return "number"
    if not capitalised(text) <= known:
        return "name"
    for number in numbers(text) - dates:
        around = _neighbours(number, text)
        if not any(around & _neighbours(number, m.content) for m in sources):
            return "unit"
    return "mixed" if any(_mixes(one, sources, of_others) for one in sentences(text)) else ""


def _neighbours(number: str, text: str) -> set[str]:
    """Return the words or signs next to the number, a currency's for instance."""
    flat, found = fold(text).replace(",", ""), set[str]()
    for match in _NUMBER.finditer(flat):
        if match.group() == number:
            before = _AROUND.findall(flat[max(0, match.start() - 24) : match.start()])
            after = _AROUND.findall(flat[match.end() : match.end() + 24])
            found |= {*before[-1:], *after[:1], *(word[:1] for word in after[:1] if word > "\u2e7f")}
    return found


def _mixes(sentence: str, sources: Sequence[Memory], of_others: Collection[str]) -> bool:
    """True if the sentence moves a statement from one name to another: it holds words that only one of
    the sources has, without all of that source's names."""
    held, named = set(terms(sentence)), capitalised(sentence)
    everyones = [set(terms(m.content)) for m in sources]
    for n, (memory, own) in enumerate(zip(sources, everyones, strict=True)):
        others = set().union(*(words for k, words in enumerate(everyones) if k != n))
        about = capitalised(memory.content) if memory.id in of_others else names(memory.content)
        if named and held & (own - others - about) and not about <= named:
            return True
    return False


def undated(first: str, then: str) -> tuple[str, str]:
    """Return two contents as the relation head compares them: without the days on which they were stated,
    which it was not trained on, unless that is all they differ in."""
    bare = RESOLVED.sub("", first), RESOLVED.sub("", then)
    return (first, then) if bare[0] == bare[1] else bare


# ---------------------------------------------------------------- checking what a model wrote
def faulty(
    content: str, sources: Sequence[Memory], replaced: Collection[str], of_others: Collection[str] = ()
) -> str:
    """Return why the content cannot take the place of the sources (oldest first), in a word; "" if it can.
    `replaced`: ids of the sources that a later one changes; `of_others`: see `unsupported`."""
    if not content or len(content) > min(_MAX_CHARS, sum(len(m.content) for m in sources)):
        return "length"
    if is_question(content):
        return "question"
    if why := unsupported(content, sources, of_others):
        return why
    held, there, last = set(terms(content)), numbers(content), current(sources)[-1]
    for memory in sources:
        if memory.superseded_by or (memory.id in replaced and memory is not last):
            continue
        left_out = numbers(memory.content) - there
        if any(not _is_derivable(number, there) for number in left_out):
            return "number_dropped"
        if not names(memory.content) <= held:
            return "name_dropped"
        words = {term for term in terms(memory.content) if not term[0].isdigit()}
        is_step = memory is last or left_out  # "added $2,000", between two values that are there
        if len(words & held) < (_COVERED_OF_LAST if is_step else _COVERED) * len(words):
            return "fact_dropped"
    return "" if numbers(last.content) <= there else "not_current"


def _is_derivable(number: str, there: set[str]) -> bool:
    """True if a number that was left out is the difference of two that are there."""
    try:
        wanted, values = float(number), [float(each) for each in there]
    except ValueError:  # a date, a time, a range
        return False
    return any(abs(one - other) == wanted for one in values for other in values)


def read(answer: str, group: Sequence[Memory]) -> tuple[str, list[Memory]]:
    """Return what the model wrote, and the memories that it replaces, oldest first; "" for nothing."""
    for found in objects(answer):
        content = found.get("content")
        if isinstance(content, str):
            sources = chosen(found.get("sources"), group)
            usable = len(sources) > 1 and current(sources)
            return (" ".join(content.split()), sources) if usable else ("", [])
    return "", []


def current(memories: Sequence[Memory]) -> list[Memory]:
    """Return those that nothing has superseded."""
    return [m for m in memories if m.superseded_by is None]


# ---------------------------------------------------------------- groups
@dataclass(frozen=True, slots=True)
class Group:
    """Memories that may be about one thing, oldest first, with their vectors, what they have superseded, and
    how the one that was new relates to each other one: (earlier, later), with their cosine."""

    members: tuple[Memory, ...]
    past: tuple[Memory, ...]
    relations: Mapping[tuple[str, str], tuple[Relation, float]]
    vectors: Mapping[str, bytes]

    @property
    def shown(self) -> list[Memory]:
        """Return all of it, oldest first."""
        return sorted((*self.members, *self.past), key=_said)

    def is_worth(self, fewest: int) -> bool:
        """True if it is enough to write one fact of it."""
        return len(self.shown) >= fewest and (len(self.members) > 1 or len(self.past) > 1)

    def repeated(self) -> tuple[Memory, Memory] | None:
        """Return a memory that another one says completely, and that one."""
        by_id = {m.id: m for m in self.members}
        for (old, new), (relation, cosine) in self.relations.items():
            if verdict(relation, cosine) != "same" or cosine < CLOSE or not {old, new} <= by_id.keys():
                continue
            for less, more in ((by_id[old], by_id[new]), (by_id[new], by_id[old])):
                if set(terms(less.content)) <= set(terms(more.content)):
                    return less, more
        return None


def is_eligible(memory: Memory) -> bool:
    """True for a memory that may be merged: a plain fact without an end, not pinned by its owner."""
    plain = memory.source not in ("summary", "reflection") and memory.expires_at is None
    return memory.type in TYPES and plain and not memory.pinned


def _said(memory: Memory) -> tuple[float, str]:
    """Return when it was said last: of a superseded memory `updated_at` is when that happened."""
    said = memory.valid_from if memory.superseded_by else max(memory.valid_from, memory.updated_at)
    return said, memory.id


Relations = Mapping[tuple[str, str], tuple[Relation, float]]


async def _related(
    judge: Judge, pairs: Sequence[Sequence[Memory]], vectors: Mapping[str, bytes]
) -> Relations:
    """Return how the later of each pair relates to the earlier, and their cosine, by their ids."""
    judged = await judge.relations([undated(a.content, b.content) for a, b in pairs]) if pairs else []
    return {
        (a.id, b.id): (relation, cosine_of(vectors[a.id], vectors[b.id]))
        for (a, b), relation in zip(pairs, judged, strict=True)
    }


def _counts(now: float, done: Applied | None, **ids: Sequence[str]) -> StepCounts:
    """Return the ids; if it was not stored, since something changed in the meantime, when to try again."""
    return StepCounts(due_at=now + AGAIN_S) if done is None else StepCounts(ids, more=True)


# ---------------------------------------------------------------- storing
async def commit(
    gate: Gate, scope: Scope, began: Stamp, read: Sequence[Memory], changes: Sequence[Change]
) -> Applied | None:
    """Apply the changes; None, with nothing applied, if the user forgot something since `began` or one of the
    memories that were `read` has changed. Raises StoreUnavailable."""
    where = MemoryFilter(tenant=scope.tenant, user=scope.user, include_inactive=True)
    for _ in range(_ATTEMPTS):
        stamp = await gate.memories.stamp(scope)
        if stamp.generation != began.generation:
            return None
        for old in read if stamp != began else ():
            now = await gate.memories.get(where, old.id)
            if now is None or _state(now) != _state(old):
                return None
        try:
            return await gate.memories.apply(scope, changes, expect=stamp)
        except Conflict:
            continue
    return None


def _state(memory: Memory) -> tuple[object, ...]:
    return memory.content, memory.type, memory.scope, memory.superseded_by, memory.archived


# ---------------------------------------------------------------- the step
@dataclass(frozen=True, slots=True)
class Consolidation:
    """The step of the background pass. Without a completer it only closes repetitions."""

    gate: Gate
    derivation: DerivationStore
    completer: Completer | None = None
    name: str = STEP
    switch: str = "consolidate"

    async def run(self, visit: Visit) -> StepCounts:
        """Consider the memories that are new; stop after one LLM call, so that turns go first."""
        scope, now, judge = visit.scope, visit.now, self.gate.judge
        began = await self.gate.memories.stamp(scope)
        due = await self.derivation.due(scope, STEP, limit=_PORTION, now=now)
        if not due.memories or judge is None:
            return StepCounts()
        calls = await self.derivation.batches(scope, STEP, now - HOUR_S)
        if self.completer is not None and calls >= visit.policy.calls_per_user_hour:
            return StepCounts(due_at=now + HOUR_S / visit.policy.calls_per_user_hour)
        undone = await self.derivation.undone(scope, [m.id for m in due.memories])
        done, groups = list[str](), list[str]()
        for seed in due.memories:
            vector = due.vectors[seed.id]
            if vector is not None and is_eligible(seed) and seed.id not in undone:
                group = await self._group(judge, seed, vector, now)
                if visit.dry_run:
                    is_worth = group.is_worth(visit.policy.consolidate_from)
                    groups += [m.id for m in group.members] if is_worth else []
                elif (counts := await self._merged(judge, visit, began, group)) is not None:
                    if counts.more:
                        reviewed = Review(STEP, (*done, seed.id), now)
                        await commit(self.gate, scope, began, (), [reviewed])
                    return counts
            done.append(seed.id)
        if visit.dry_run:
            return StepCounts({"may_be_consolidated": [*dict.fromkeys(groups)]})
        await commit(self.gate, scope, began, (), [Review(STEP, tuple(done), now, due.upto)])
        return StepCounts(more=len(due.memories) == _PORTION)

    async def _group(self, judge: Judge, seed: Memory, vector: bytes, now: float) -> Group:
        """Return the seed with what may be about the same thing."""
        search = Search(vector, (), limit=_NEAREST, now=now, vectors=_NEAREST)
        found = await self.gate.memories.search(seed.scope, search)
        undone = await self.derivation.undone(seed.scope, [hit.memory.id for hit in found])
        vectors = {
            hit.memory.id: hit.vector
            for hit in found
            if hit.vector is not None and hit.memory.id not in undone and is_eligible(hit.memory)
            and (hit.cosine or 0.0) >= FAR
            and hit.memory.scope == seed.scope and hit.memory.type == seed.type
        } | {seed.id: vector}  # fmt: skip
        near = [hit.memory for hit in found if hit.memory.id in vectors and hit.memory.id != seed.id]
        relations = await _related(judge, [sorted((seed, other), key=_said) for other in near], vectors)
        members = [seed]
        for other in sorted(near, key=lambda m: -cosine_of(vectors[m.id], vector)):
            relation, cosine = relations.get((seed.id, other.id)) or relations[(other.id, seed.id)]
            is_near = cosine >= _ALIKE or 1 - relation.apart >= _RELATED
            if is_near and len(members) < _MOST and fits(names(m.content) for m in (*members, other)):
                members.append(other)
        plain = [m.id for m in members if not m.sources]  # what the others superseded is in them
        past = await self.derivation.superseded(seed.scope, plain, limit=_MOST)
        return Group(tuple(sorted(members, key=_said)), tuple(past), relations, vectors)

    async def _merged(self, judge: Judge, visit: Visit, began: Stamp, group: Group) -> StepCounts | None:
        """Merge the group; None if there is nothing to merge. Raises CompletionFailed."""
        scope, now = visit.scope, visit.now
        if (pair := group.repeated()) is not None:
            less, more = pair
            done = await commit(self.gate, scope, began, pair, [Close(less.id, more.id, now)])
            return _counts(now, done, superseded=[less.id])
        if self.completer is None or not group.is_worth(visit.policy.consolidate_from):
            return None
        ids = tuple(m.id for m in group.members)
        batch = memory_id(STEP, "\0".join(sorted(ids)))
        content, sources = await self._written(judge, scope, group)
        new = await self._candidate(content, sources, now) if content else None
        if new is None:
            await commit(self.gate, scope, began, (), [Review(STEP, ids, now, batch=batch)])
            return StepCounts(more=True)
        replaced = tuple(m.id for m in current(sources))
        made = Consolidate(replaced, new, await vector_of(self.gate.embedder, content))
        reviewed = Review(STEP, (*ids, new.id), now, batch=batch)
        changes = [*await with_readings(judge, [made]), reviewed]
        done = await commit(self.gate, scope, began, sources, changes)
        if done is not None and new.id in (*done.dropped, *done.refused):
            return StepCounts(more=True)
        return _counts(now, done, consolidated=[new.id], superseded=replaced)

    async def _written(self, judge: Judge, scope: Scope, group: Group) -> tuple[str, list[Memory]]:
        """Return what the model wrote and passes, and its sources; "" otherwise. Raises CompletionFailed."""
        assert self.completer is not None
        text = await asyncio.to_thread(numbered, group.shown, self.gate.policy)
        request = request_of(ROLE, "consolidation", scope, memories=text)
        content, sources = read(await self.completer.complete(request), group.shown)
        if not content:
            return "", []
        said = " ".join(m.content for m in sources)
        pairs = [(said, content), *((m.content, m.content) for m in sources)]
        made, *own = await judge.statements(pairs)
        of_others = {m.id for m, one in zip(sources, own, strict=True) if one.other >= 0.5}
        olds = current(sources)
        related = await _related(judge, [(a, b) for n, b in enumerate(olds) for a in olds[:n]], group.vectors)
        replaced = {
            old
            for (old, _), (relation, cosine) in related.items()
            if verdict(relation, cosine) == "changed" and relation.changed >= CERTAIN
        }
        why = faulty(content, sources, replaced, of_others) or ("not_said" if made.follows < FOLLOWS else "")
        if why:
            log.info("memory.poor_consolidation", reason=why)
            return "", []
        return content, sources

    async def _candidate(self, content: str, sources: Sequence[Memory], now: float) -> Memory | None:
        """Return the memory to store; None if the write gate refuses or redacts it."""
        olds = current(sources)
        newest = olds[-1]
        candidate = Candidate(
            type=newest.type, content=content, confidence=min(m.confidence for m in olds),
            tags=tuple(dict.fromkeys(tag for m in sources for tag in m.tags))[:20], source="consolidated",
        )  # fmt: skip
        passed = (await asyncio.to_thread(sort, [candidate], [], self.gate, now)).stored
        if not passed or passed[0].content != content:
            return None
        evidence = dict.fromkeys(Evidence(e.session_id, e.exchange_id) for m in sources for e in m.evidence)
        return Memory(
            id=memory_id("\0".join(sorted(m.id for m in sources)), content), scope=newest.scope,
            type=newest.type, content=content, source="consolidated", created_at=now,
            updated_at=max(m.updated_at for m in olds), valid_from=newest.valid_from,
            importance=max(m.importance for m in olds), weight=max(m.weight for m in olds),
            uses=sum(m.uses for m in olds), used_at=max(m.used_at or 0 for m in olds) or None,
            last_accessed=max(m.last_accessed or 0 for m in olds) or None,
            core=any(m.core for m in olds),
            confidence=candidate.confidence, tags=candidate.tags,
            evidence=tuple(evidence)[-_MOST_EVIDENCE:], sources=tuple(m.id for m in sources),
        )  # fmt: skip
