"""The background pass in which memories change over time, one due user after the other.

A user is due some time after memories changed, or when a step asked for it. The user is leased, so that of
several processes one does the work, and the steps run in their order. Each does a portion at a time and lets
turns go first. A step that fails is logged and tried again later; the others run. After a crash the user is
due again once the lease has ended.

Which of the memories that an answer was given with it used is judged without an LLM, by two signs. The
relevance head says how well a memory would help with each sentence of the answer: a sentence that restates a
memory, or follows from it, scores high. And what a memory shares with the answer but not with the user's
message: names, numbers and identifiers most, other words less; words that several of the shown memories
contain do not count. A shared name needs little agreement in meaning, nothing shared much. Without models
only what is shared decides.
"""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from proxy.domain.changes import (
    NEVER,
    AnsweredExchange,
    EvolutionPolicy,
    EvolutionStore,
    Step,
    StepCounts,
    UseVerdict,
    Visit,
    VisitLease,
)
from proxy.domain.core import Scope
from proxy.domain.errors import CompletionFailed, Conflict, EmbeddingFailed, StoreError, StoreUnavailable
from proxy.domain.limits import TurnPriority
from proxy.domain.ports import Clock, Judge, MemoryText, SortProfile
from proxy.telemetry import ThrottledLog, log
from proxy.text.words import STOP_WORDS, UNSPACED, fold, sentences, simplified, terms
from proxy.wire.authorship import without_thoughts

POLL_S = 5.0
LEASE_S = 300.0
RETRY_S = 600.0  # after a step has failed
USE = "use"  # the step that judges answers
_ATTEMPTS, _AGAIN_S = 100, 0.1  # to lease a user who is visited
_MOST_PORTIONS = 100  # of a step in one visit; then other users come first


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step's outcome for one user; `outcome`: "done" or "failed"."""

    step: str
    outcome: str
    seconds: float
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Evolution:
    """The pass. `report` is called after each step, except in a dry run."""

    store: EvolutionStore
    steps: Sequence[Step]
    policy: EvolutionPolicy  # of the server
    clock: Clock
    turns: TurnPriority = field(default_factory=TurnPriority)
    report: Callable[[StepReport], None] = lambda report: None
    _seldom: ThrottledLog = field(default_factory=ThrottledLog)

    async def run(self) -> None:
        """Visit due users until cancelled."""
        while self.policy.enabled:
            try:
                if await self.visit_next():
                    continue
            except StoreUnavailable:  # logged by the store
                pass
            except Exception as e:  # noqa: BLE001 a failed visit must not end the loop
                self._seldom.error("evolution.visit_failed", error=type(e).__name__)
            await asyncio.sleep(POLL_S)

    async def visit_next(self) -> bool:
        """Visit the next user that is due; False if none is. Raises StoreError."""
        now = self.clock()
        lease = await self.store.claim(now, LEASE_S)
        if lease is None:
            return False
        visit = Visit(lease.scope, now, self.policy.with_own(lease.own), lease.last_at)
        if lease.only_use:
            # It settles what waits for it even if it is switched off. If it fails, the lease is the pause.
            steps = [step for step in self.steps if step.name == USE]
            if await self._visit(visit, steps) <= now + RETRY_S:
                return True
            await self.store.release(lease, lease.last_at, NEVER)
            return True
        due_at = now
        try:
            due_at = await self._visit(visit, self._steps(visit.policy))
        finally:
            with suppress(StoreError):  # if it cannot be released, the lease ends by itself
                await self.store.release(lease, now, due_at)
        return True

    async def policy_of(self, scope: Scope) -> EvolutionPolicy:
        """Return the policy for a user. Raises StoreUnavailable."""
        return self.policy.with_own(await self.store.own(scope))

    async def evolve(self, scope: Scope, *, dry_run: bool) -> Mapping[str, StepCounts | None]:
        """Run every step for one user now; return by step what it did, or would do, a portion in a dry run;
        None if a model failed. Raises StoreError, Conflict if another visit does not end soon."""
        user = Scope(scope.tenant, scope.user)
        lease = None if dry_run else await self._lease(user)
        try:
            policy = await self.policy_of(user)
            visit = Visit(user, self.clock(), policy, dry_run=dry_run)
            done: dict[str, StepCounts | None] = {}
            for step in self._steps(policy):
                try:
                    done[step.name] = await self._completed(step, visit)
                except (EmbeddingFailed, CompletionFailed):
                    done[step.name] = None
            return done
        finally:
            if lease is not None:
                with suppress(StoreError):
                    await self.store.release(lease, lease.last_at, NEVER)

    async def _lease(self, user: Scope) -> VisitLease:
        """Wait until no other visit has the user: two at once would ask the models twice."""
        for _ in range(_ATTEMPTS):
            if (lease := await self.store.lease(user, self.clock(), LEASE_S)) is not None:
                return lease
            await asyncio.sleep(_AGAIN_S)
        raise Conflict("another visit has the user")

    def _steps(self, policy: EvolutionPolicy) -> Sequence[Step]:
        return [step for step in self.steps if policy.enabled and getattr(policy, step.switch)]

    async def _visit(self, visit: Visit, steps: Sequence[Step]) -> float:
        """Run the steps; return when the user is due again."""
        due_at = NEVER
        for step in steps:
            began, outcome, counts = time.perf_counter(), "done", StepCounts(due_at=visit.now + RETRY_S)
            try:
                counts = await self._completed(step, visit)
            except Exception as e:  # noqa: BLE001 a failed step must not keep the others from running
                outcome = "failed"
                self._seldom.warning("evolution.step_failed", step=step.name, error=type(e).__name__)
            due_at = min(due_at, counts.due_at, visit.now if counts.more else NEVER)
            did = {action: len(ids) for action, ids in counts.ids.items() if ids}
            if did:
                log.info("memory.evolved", step=step.name, **did)
            self.report(StepReport(step.name, outcome, time.perf_counter() - began, did))
        return due_at

    async def _completed(self, step: Step, visit: Visit) -> StepCounts:
        """Run the step until nothing is left, or for a number of portions."""
        total: dict[str, list[str]] = {}
        for _ in range(_MOST_PORTIONS):
            await self.turns.pause()
            counts = await step.run(visit)
            for action, ids in counts.ids.items():
                total.setdefault(action, []).extend(ids)
            if visit.dry_run or not counts.more:
                break
        return StepCounts(total, counts.due_at, counts.more)


@dataclass(frozen=True, slots=True)
class DecayStep:
    """Archives what has decayed. It runs without decay, too: then it computes that nothing does."""

    store: EvolutionStore
    portion: int = 200  # memories in one transaction, about 10 ms
    name: str = "decay"
    switch: str = "enabled"

    async def run(self, visit: Visit) -> StepCounts:
        return await self.store.fade(visit, self.portion)


# ---------------------------------------------------------------- what is shared
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_SEPARATOR = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
# A capital after another word, or a word with a digit or a sign inside it: a name in most scripts with case.
_NAME = re.compile(r"(?<=[^\W\d_] )[^\W\d_]\w+|\b\w*(?:\d[^\W\d]|[^\W\d]\d|\w[-_./@]\w)[\w./@-]*")
_LEAST_WORD = 4  # letters of a word that counts; shorter ones are mostly grammar


def traits(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return what can be shared: the names, numbers and identifiers of a text (what is specific), and its
    other words, each as it is compared."""
    numbers = {_SEPARATOR.sub("", found) for found in _NUMBER.findall(fold(text))}
    names = {fold(found) for found in _NAME.findall(text) if found[0].isupper() or not found.isalpha()}
    found = set(terms(text))
    unspaced = {term for term in found if len(term) == 2 and UNSPACED.match(term)}  # pairs of characters
    words = {term for term in found if len(term) >= _LEAST_WORD and term[0].isalpha()}
    kana = {term for term in unspaced if all("\u3040" <= sign <= "\u309f" for sign in term)}  # grammar
    return frozenset(numbers | names - STOP_WORDS), frozenset(words | unspaced - kana)


@dataclass(frozen=True, slots=True)
class Shared:
    """How much of what only this memory states the answer states, too."""

    specific: int
    words: int
    missing: bool  # the memory has numbers, and the answer none of them


def shared(memories: Sequence[str], said: str, answer: str) -> list[Shared]:
    """Return for each memory what the answer has of it that the user's message has not."""
    held = [traits(content) for content in memories]
    known, known_words = traits(said)
    text, (numbers, words) = simplified(fold(answer)), traits(answer)
    often = Counter(term for specific, others in held for term in specific | others)

    def is_answered(term: str) -> bool:
        if term[0].isdigit():
            return term in numbers
        return re.search(rf"(?<!\w){re.escape(term)}(?!\w)", text) is not None

    found = []
    for specific, others in held:
        own = {t for t in specific - known if often[t] == 1 or t[0].isdigit()}
        of_answer = set(filter(is_answered, own))
        common = {t for t in (others & words) - known_words - of_answer if often[t] == 1}
        digits = {t for t in own if t[0].isdigit()}
        found.append(Shared(len(of_answer), len(common), bool(digits) and not digits & of_answer))
    return found


# ---------------------------------------------------------------- the judgement
# Chosen on a few exchanges of our own, not on evals/use.
_BY_NAME, _BY_WORD, _BY_MEANING, _WITHOUT_ITS_NUMBERS = 0.15, 0.45, 0.75, 0.9
_EXPECTED = 0.5  # help with the message from which an answer is expected to use a memory
_MOST_SENTENCES = 40
_MOST_CHARS = 400  # of a sentence; the encoder reads about that much


def is_used(helps: float | None, found: Shared) -> bool:
    """Return whether a memory was used. `helps`: the most that it helps with a sentence of the answer, as a
    probability; None without models."""
    if helps is None:
        return found.specific > 0 or found.words > 1
    if found.specific:
        return helps >= _BY_NAME
    if found.missing:
        return helps >= _WITHOUT_ITS_NUMBERS
    return helps >= (_BY_WORD if found.words else _BY_MEANING)


def parts(answer: str) -> list[str]:
    """Return the sentences of an answer that are judged: of a long one the first and the last."""
    found = [one[:_MOST_CHARS] for one in sentences(without_thoughts(answer)) if any(map(str.isalnum, one))]
    half = _MOST_SENTENCES // 2
    return found if len(found) <= _MOST_SENTENCES else found[:half] + found[-half:]


@dataclass(frozen=True, slots=True)
class UseJudge:
    """Judges answers. `pause`: awaited between two sentences, so that turns go first."""

    judge: Judge | None
    sort: SortProfile | None = None  # finds standing rules and traits: they apply without being mentioned
    pause: Callable[[], Awaitable[None]] | None = None

    async def verdict(self, exchange: AnsweredExchange) -> UseVerdict:
        """Return which of the shown memories the answer used, and which lose nothing: those that apply
        without being mentioned, and those that help little with the message. They were shown because another
        one helps, so an answer without them says nothing about them."""
        shown, texts = exchange.shown, [MemoryText(s.memory.content, s.vector) for s in exchange.shown]
        helps = await self.helps(exchange.answer, texts)
        common = shared([s.memory.content for s in shown], exchange.said, exchange.answer)
        found = zip(shown, helps, common, strict=True)
        used = [s.memory.id for s, chance, one in found if is_used(chance, one)]
        asked = zip(shown, await self.helps(exchange.said, texts), strict=True)
        spared = {s.memory.id for s, chance in asked if chance is not None and chance < _EXPECTED}
        vectors = [(s.memory.id, s.vector) for s in shown if s.vector is not None]
        if self.sort is not None and vectors:
            kinds = self.sort([vector for _, vector in vectors])
            spared |= {id_ for (id_, _), kind in zip(vectors, kinds, strict=True) if kind}
        return UseVerdict(frozenset(used), frozenset(spared))

    async def helps(self, text: str, memories: Sequence[MemoryText]) -> Sequence[float | None]:
        """Return for each memory the most that it helps with a sentence of the text."""
        if self.judge is None or not memories:
            return [None] * len(memories)
        best = [0.0] * len(memories)
        for sentence in parts(text):
            if self.pause is not None:
                await self.pause()
            try:
                chances = await self.judge.helps(await self.judge.read(sentence), memories)
            except EmbeddingFailed:
                return [None] * len(memories)
            best = [max(pair) for pair in zip(best, chances, strict=True)]
        return best


@dataclass(frozen=True, slots=True)
class UseStep:
    """Judges the answers that wait for it, and changes the weights of their memories."""

    store: EvolutionStore
    judge: UseJudge
    portion: int = 5
    name: str = "use"
    switch: str = "enabled"

    async def run(self, visit: Visit) -> StepCounts:
        """See Step. Where it is switched off, the answers are settled without a judgement."""
        waiting = await self.store.answered(visit.scope, self.portion)
        judges = visit.policy.enabled and visit.policy.use
        ids: dict[str, list[str]] = {}
        for exchange in waiting:
            if not judges and visit.dry_run:
                continue
            verdict = await self.judge.verdict(exchange) if judges else None
            did: Mapping[str, Sequence[str]]
            if visit.dry_run:
                used = verdict.used if verdict else frozenset[str]()
                rest = [s.memory.id for s in exchange.shown if s.memory.id not in used]
                did = {"used": sorted(used), "unused": rest}
            else:
                did = await self.store.record_use(exchange, verdict, visit.policy, visit.now)
            for action, changed in did.items():
                ids.setdefault(action, []).extend(changed)
        return StepCounts(ids, more=len(waiting) == self.portion)
