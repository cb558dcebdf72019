"""Decide what to do with each candidate, given the memories near to it and how they relate. Pure.

Nothing is deleted: a changed fact supersedes, the same fact confirms, every doubt creates. What counts is
when a fact was said, not when it was read: one that is read late is added to the history. So the same
candidates end as the same current memories, in whatever order they arrive.

Confidence. Evidence for a memory counts by Bayes' rule: users repeat a preference that they have with
probability P_IF_TRUE, and state one that they do not have with P_IF_FALSE; no number of statements makes it
certain. Evidence against a memory that was only inferred lowers its confidence by a constant share.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Literal

import numpy as np

from proxy.domain.changes import Change, Confirm, Create, Edit, Hold, Supersede
from proxy.domain.core import Candidate, Hit, Memory, Scope, Source
from proxy.domain.ports import Relation
from proxy.text.words import normalise, terms

# ---------------------------------------------------------------- confidence
P_IF_TRUE, P_IF_FALSE = 0.8, 0.3
DECAY = 0.7  # for each time that something the user said outright speaks against it
ARCHIVED_BELOW = 0.1
_CERTAIN = 0.99
_OUTRIGHT: frozenset[Source] = frozenset(("api", "explicit", "verbatim"))


def confirmed(confidence: float) -> float:
    """Return the confidence after one more statement of the same; one above _CERTAIN stays as it is."""
    if confidence >= _CERTAIN:
        return confidence
    held = P_IF_TRUE * confidence
    return min(_CERTAIN, held / (held + P_IF_FALSE * (1 - confidence)))


def decayed(memory: Memory, at: float) -> Memory:
    """Return the memory after something said outright spoke against it; below 0.1 it is archived."""
    confidence = memory.confidence * DECAY
    archived = confidence < ARCHIVED_BELOW
    by = "doubt" if archived else None
    return replace(memory, confidence=confidence, archived=archived, archived_by=by, updated_at=at)


def is_inferred(one: Memory | Candidate) -> bool:
    """True for what a model made of a conversation without words of the user's to show for it."""
    if one.source in _OUTRIGHT:
        return False
    if one.source == "assistant":
        return True  # its evidence is the assistant's words
    spans = [one.evidence] if isinstance(one, Candidate) else [e.span for e in one.evidence]
    return not any(spans)


# ---------------------------------------------------------------- the decision
# Measured on held-out users by scripts/dev/measure_relations.py. Superseding a fact that still holds is the
# costly error, so unsure pairs are apart, especially those whose vectors are not close.
RELATED = 0.75  # probability from which a fact restates or changes another
CLOSE, FAR = 0.7, 0.42  # cosines: of facts that may well be about one thing; below it none are
# That probability: a logistic regression of the head's log-odds (of 1 - apart) and the cosine, fitted on
# pairs of training/data/dev and on facts of one language at random. The head was trained on near pairs; alone
# it takes one in seven of those at random for related, fitted like this one in forty.
_BIAS, _BY_HEAD, _BY_COSINE, _BY_BOTH = -4.45, 0.28, 6.0, 0.64
SAME_SHARE = 0.8  # of that: below it the newer text supersedes, which loses nothing if it says the same
BELIEVED_BELOW = 0.6  # `apart` up to which an extraction model's `replaces` is believed
LONGEST = 280  # letters that the judge reads of a text; of scripts without spaces a third

_DATE = re.compile(r"\d{4}-\d\d(?:-\d\d)?")

Pair = tuple[str, str]
"""Two contents, the one that was said first in front."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """A candidate with its vector (None: there is no embedder) and the current memories near to it."""

    candidate: Candidate
    vector: bytes | None
    similar: tuple[Hit, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """What to apply, and why the rest was left out: counts by reason. `refused`: ids of new
    memories that the quota refused."""

    changes: tuple[Change, ...] = ()
    dropped: Counter[str] = field(default_factory=Counter)
    refused: tuple[str, ...] = ()

    def count(self, kind: type[Change]) -> int:
        """Return the number of changes of one kind."""
        return sum(isinstance(c, kind) for c in self.changes)


def memory_id(seed: str, content: str) -> str:
    """Return the id of what was stated: equal for a replay, so that it is stored once."""
    digest = blake2b(f"{seed}\0{normalise(content)}".encode(), digest_size=12)
    return f"mem_{digest.hexdigest()}"


def hold(candidate: Candidate, reason: str, *, now: float, seed: str) -> Hold:
    """Return the change that puts the candidate into quarantine; its id is equal for a replay."""
    origin = candidate.origin
    id_ = memory_id(origin.exchange_id if origin else seed, candidate.content)
    return Hold(f"held_{id_.removeprefix('mem_')}", candidate, reason, now)


def pairs_to_judge(weighed: Sequence[Weighed], now: float, *, near: float) -> list[Pair]:
    """Return the pairs whose relation `decide_changes` may ask for: each candidate with what is near to it,
    and with those before it from the cosine `near` on. Equal texts need no judge, and of long ones it would
    not read the difference."""
    before: list[tuple[str, float, bytes | None]] = []
    pairs: dict[Pair, None] = {}
    for one in weighed:
        content, said = one.candidate.content.strip(), one.candidate.observed_at or now
        others = [(hit.memory.content, last_said(hit.memory)) for hit in one.similar]
        others += [
            (text, at)
            for text, at, vector in before
            if vector is None or one.vector is None or cosine_of(vector, one.vector) >= near
        ]
        for other, other_said in others:
            if normalise(other) != normalise(content) and _is_read_whole(other) and _is_read_whole(content):
                pairs[(content, other) if said < other_said else (other, content)] = None
        before.append((content, said, one.vector))
    return list(pairs)


def _is_read_whole(text: str) -> bool:
    return len(text) + 2 * sum(c > "\u2e7f" for c in text[:LONGEST]) <= LONGEST


def cosine_of(one: bytes, other: bytes) -> float:
    """Return the cosine of two vectors of unit length."""
    return float(np.frombuffer(one, np.float32) @ np.frombuffer(other, np.float32))


@dataclass(frozen=True, slots=True)
class Relations:
    """How contents relate. Without a judgement only equal texts are the same, and all others apart."""

    judged: Mapping[Pair, Relation] = field(default_factory=dict)

    def of(self, first: str, then: str) -> Relation:
        """Return how `then` relates to `first`, which was said before it."""
        if normalise(first) == normalise(then):
            return Relation(same=1.0, changed=0.0, apart=0.0)
        return self._judged(first, then) or Relation(same=0.0, changed=0.0, apart=1.0)

    def may_replace(self, old: str, new: str) -> bool:
        """True if the extraction model's word is believed that `new` replaces `old`."""
        relation = self._judged(old, new)
        if relation is None:
            return not set(terms(old)).isdisjoint(terms(new))
        return relation.apart < BELIEVED_BELOW

    def _judged(self, one: str, other: str) -> Relation | None:
        return self.judged.get((one, other)) or self.judged.get((other, one))


def verdict(relation: Relation, cosine: float | None) -> Literal["same", "changed", "apart"]:
    """Return what the gate takes the newer of two facts for, given the cosine of their vectors."""
    if relatedness(relation, cosine) < RELATED:
        return "apart"
    return "same" if relation.same >= SAME_SHARE * (1 - relation.apart) else "changed"


def relatedness(relation: Relation, cosine: float | None) -> float:
    """Return the probability that two facts are about one thing; without vectors the head's alone."""
    related = 1 - relation.apart
    if cosine is None or cosine < FAR:
        return related if cosine is None else 0.0
    odds = math.log(max(related, 1e-4) / max(relation.apart, 1e-4))
    score = _BIAS + _BY_HEAD * odds + _BY_COSINE * cosine + _BY_BOTH * odds * cosine
    return 1 / (1 + math.exp(-score))


def decide_changes(
    weighed: Sequence[Weighed], relations: Relations, *, scope: Scope, now: float, seed: str
) -> Decision:
    """Return the changes that the candidates make, in order; candidates of one batch see each other."""
    decider = _Decider(relations, scope, now, seed)
    for one in weighed:
        decider.admit(one)
    return Decision(tuple(decider.changes), decider.dropped)


@dataclass(frozen=True, slots=True)
class _Match:
    """A memory that the candidate is about."""

    memory: Memory
    is_same: bool  # else the later of the two replaces the earlier
    score: float
    late: bool  # the candidate was said before the memory
    named: bool = False  # by the extraction model, which was believed


@dataclass(slots=True)
class _Decider:
    """The state of one decision: what was changed so far."""

    relations: Relations
    scope: Scope
    now: float
    seed: str
    changes: list[Change] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    closed: set[str] = field(default_factory=set)
    created: list[tuple[Memory, bytes | None]] = field(default_factory=list)

    def admit(self, one: Weighed) -> None:
        memory = self._memory(one.candidate)
        matches = self._matches(one, memory)
        if not matches:
            self.changes.append(Create(memory, one.vector))
            self.created.append((memory, one.vector))
            return
        match = matches[0]
        if match.is_same:
            self._confirm_or_reword(matches, one, memory)
        elif match.late:
            self._add_to_history(match.memory, memory, one.vector)
        elif is_inferred(memory) and any(
            m.memory.type == "preference" and not is_inferred(m.memory) for m in matches
        ):
            self.dropped["explicit_preference"] += 1
        else:
            # All others of its project that it changes; if the first was named, also those that say the same.
            changed = [m.memory for m in matches[1:] if not m.late and (match.named or not m.is_same)]
            project = match.memory.scope.project
            olds = [match.memory, *(old for old in changed if old.scope.project == project)]
            self._supersede(olds, _in_place_of(match.memory, memory), one.vector)

    # ------------------------------------------------------------ matching memories
    def _matches(self, one: Weighed, memory: Memory) -> list[_Match]:
        """Return the current memories that the candidate says again or changes: first the one that the
        extraction model named, then what says the same, then the surest."""
        near = {hit.memory.id: (hit.memory, hit.cosine) for hit in one.similar}
        near |= {
            m.id: (m, cosine_of(vector, one.vector) if vector and one.vector else None)
            for m, vector in self.created
        }
        found = [
            match
            for old, cosine in near.values()
            if old.id not in self.closed
            and (match := self._match(old, memory, one.candidate, cosine)) is not None
        ]
        return sorted(found, key=lambda m: (m.named, m.is_same, m.score), reverse=True)

    def _match(
        self, old: Memory, memory: Memory, candidate: Candidate, cosine: float | None
    ) -> _Match | None:
        late = memory.valid_from < last_said(old)
        first, then = (memory, old) if late else (old, memory)
        relation = self.relations.of(first.content, then.content)
        if self._is_named(old, memory, candidate):
            return _Match(old, False, relation.changed, late, named=True)
        if "summary" in (old.source, candidate.source):
            return None  # a summary holds facts again, and ends none of them
        found = verdict(relation, cosine)
        if found == "same" and not late and _has_other_numbers(memory.content, old.content):
            found = "changed"  # to confirm the older one would lose them
        projects = {old.scope.project, memory.scope.project}
        are_equal = normalise(old.content) == normalise(memory.content)
        if found == "same" and (len(projects) == 1 or (None in projects and are_equal)):
            return _Match(old, True, relation.same, late)  # one of them is enough
        if found != "changed" or len(projects) > 1:
            return None
        exchanges = {e.exchange_id for e in old.evidence}
        if not exchanges.isdisjoint(e.exchange_id for e in memory.evidence):
            return None  # two facts of one message hold side by side
        return _Match(old, False, relation.changed, late)

    def _is_named(self, old: Memory, memory: Memory, candidate: Candidate) -> bool:
        """True if the extraction model says that the candidate replaces the memory, and is believed; of a
        session's summary the proxy says so itself."""
        if candidate.replaces != old.id:
            return False
        if candidate.source != "summary" and not self.relations.may_replace(old.content, memory.content):
            return False
        # A preference in a project overrides the general one, it does not end it.
        narrower = old.scope.project is None and self.scope.project is not None
        if narrower and "preference" in (old.type, candidate.type):
            return False
        before, after = old.content, memory.content
        return normalise(before) != normalise(after) and not set(terms(after)) < set(terms(before))

    # ------------------------------------------------------------ changes
    def _supersede(self, olds: Sequence[Memory], memory: Memory, vector: bytes | None) -> None:
        for old in olds:
            self.closed.add(old.id)
            self.changes.append(Supersede(old.id, memory, vector))
        self.created.append((memory, vector))

    def _confirm_or_reword(self, matches: Sequence[_Match], one: Weighed, memory: Memory) -> None:
        """Confirm what says the same. Of two wordings the one with more detail stays, else the one that was
        said first; of a general statement and one in a project the general one."""
        match, old = matches[0], matches[0].memory
        before, after = old.content, memory.content
        better = normalise(before) != normalise(after) and (
            _has_more(after, before) or (match.late and not _has_more(before, after))
        )
        broader = old.scope.project is not None and memory.scope.project is None
        if broader or (better and old.scope.project == memory.scope.project):
            sure = max(confirmed(old.confidence), memory.confidence)
            said = max(memory.updated_at, old.updated_at)
            self._supersede([old], replace(memory, updated_at=said, confidence=sure), one.vector)
            return
        candidate = one.candidate
        origin = (candidate.origin,) if candidate.origin else ()
        if any(old.id == m.id for m, _ in self.created) or set(origin) & set(old.evidence):
            self.dropped["duplicate"] += 1  # said twice in one batch, or read twice
        else:
            sure = max(confirmed(old.confidence), candidate.confidence)
            said = candidate.observed_at or self.now
            self.changes.append(Confirm(old.id, said, sure, origin, candidate.expires_at))
        if old.type == "preference" and not is_inferred(one.candidate):
            contrary = [m.memory for m in matches if not m.is_same and is_inferred(m.memory)]
            self.changes += [Edit(decayed(each, memory.updated_at), None) for each in contrary]

    def _add_to_history(self, current: Memory, memory: Memory, vector: bytes | None) -> None:
        """Store what was said before the current memory and read after it as what it superseded."""
        ended = current.valid_from
        if memory.valid_from >= ended:  # the current one was said before it, and again after it
            if memory.source != "api":
                self.dropped["outdated"] += 1
                return
            ended = last_said(current)
        past = replace(_in_place_of(current, memory), valid_to=ended, superseded_by=current.id)
        self.changes.append(Create(past, vector))

    def _memory(self, candidate: Candidate) -> Memory:
        origin = candidate.origin
        said = candidate.observed_at or self.now
        return Memory(
            id=memory_id(origin.exchange_id if origin else self.seed, candidate.content),
            scope=self.scope,
            type=candidate.type,
            content=candidate.content.strip(),
            source=candidate.source,
            created_at=said if candidate.source == "api" else self.now,  # a person says when it was
            updated_at=said,  # when it was said last: see last_said
            valid_from=said,
            expires_at=candidate.expires_at,
            importance=candidate.importance,
            confidence=candidate.confidence,
            tags=candidate.tags,
            evidence=(origin,) if origin else (),
        )


def last_said(memory: Memory) -> float:
    """Return when the memory was said or confirmed last."""
    return max(memory.valid_from, memory.updated_at)


def _in_place_of(old: Memory, new: Memory) -> Memory:
    """Return the new memory, visible wherever the old one was."""
    return replace(new, scope=replace(new.scope, project=old.scope.project))


def _has_more(one: str, other: str) -> bool:
    """True if the text says all that the other does and more, by its terms; or the same with more numbers."""
    more, less = set(terms(one)), set(terms(other))
    if more > less:
        return True
    numbers, fewer = ({t for t in found if t[0].isdigit()} for found in (more, less))
    return numbers > fewer and len(more) >= len(less)


def _has_other_numbers(new: str, old: str) -> bool:
    """True if the new text has a number that the old one lacks, dates aside."""
    numbers = ({t for t in terms(_DATE.sub(" ", text)) if t[0].isdigit()} for text in (new, old))
    return bool(next(numbers) - next(numbers))
