"""Judge which of the memories that an answer was given with it used. No LLM; in the background.

Two signs count. The relevance head says how well a memory would help with each sentence of the answer: a
sentence that restates a memory, or follows from it, scores high. And what a memory shares with the answer but
not with the user's message: names, numbers and identifiers most, other words less; words that several of the
shown memories contain do not count. A shared name needs little agreement in meaning, nothing shared much.
Without models only what is shared decides.
"""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from proxy.domain.changes import (
    AnsweredExchange,
    EvolutionPolicy,
    EvolutionStore,
    StepCounts,
    UseVerdict,
    Visit,
)
from proxy.domain.errors import EmbeddingFailed
from proxy.domain.ports import Judge, MemoryText, SortProfile
from proxy.text.words import STOP_WORDS, UNSPACED, fold, sentences, simplified, terms
from proxy.wire.authorship import without_thoughts

# ---------------------------------------------------------------- what is shared
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_SEPARATOR = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
# A capital after another word, or a word with a digit or a sign inside it: a name in most scripts with case.
_NAME = re.compile(r"(?<=[^\W\d_] )[^\W\d_]\w+|\b\w*(?:\d[^\W\d]|[^\W\d]\d|\w[-_./@]\w)[\w./@-]*")
_LEAST_WORD = 4  # letters of a word that counts; shorter ones are mostly grammar


@dataclass(frozen=True, slots=True)
class Traits:
    """What can be shared: names, numbers and identifiers (`specific`), and other words."""

    specific: frozenset[str]
    words: frozenset[str]


def traits(text: str) -> Traits:
    """Return the names and numbers of a text, and its other words, each as it is compared."""
    numbers = {_SEPARATOR.sub("", found) for found in _NUMBER.findall(fold(text))}
    names = {fold(found) for found in _NAME.findall(text) if found[0].isupper() or not found.isalpha()}
    found = set(terms(text))
    unspaced = {term for term in found if len(term) == 2 and UNSPACED.match(term)}  # pairs of characters
    words = {term for term in found if len(term) >= _LEAST_WORD and term[0].isalpha()}
    kana = {term for term in unspaced if all("\u3040" <= sign <= "\u309f" for sign in term)}  # grammar
    return Traits(frozenset(numbers | names - STOP_WORDS), frozenset(words | unspaced - kana))


@dataclass(frozen=True, slots=True)
class Shared:
    """How much of what only this memory states the answer states, too."""

    specific: int
    words: int
    missing: bool  # the memory has numbers, and the answer none of them


def shared(memories: Sequence[str], said: str, answer: str) -> list[Shared]:
    """Return for each memory what the answer has of it that the user's message has not."""
    held = [traits(content) for content in memories]
    known = traits(said)
    text, words = simplified(fold(answer)), traits(answer).words
    numbers = traits(answer).specific
    often = Counter(term for one in held for term in one.specific | one.words)
    found = []
    for one in held:
        specific = {t for t in one.specific - known.specific if often[t] == 1 or t[0].isdigit()}
        of_answer = {t for t in specific if (t in numbers if t[0].isdigit() else _holds(text, t))}
        common = {t for t in (one.words & words) - known.words - of_answer if often[t] == 1}
        digits = {t for t in specific if t[0].isdigit()}
        found.append(Shared(len(of_answer), len(common), bool(digits) and not digits & of_answer))
    return found


def _holds(text: str, name: str) -> bool:
    """True if the folded text has the name as a word."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


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
        extra = {s.memory.id for s, chance in asked if chance is not None and chance < _EXPECTED}
        return UseVerdict(frozenset(used), self._standing(exchange) | extra)

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

    def _standing(self, exchange: AnsweredExchange) -> frozenset[str]:
        vectors = [(s.memory.id, s.vector) for s in exchange.shown if s.vector is not None]
        if self.sort is None or not vectors:
            return frozenset()
        kinds = self.sort([vector for _, vector in vectors])
        return frozenset(id_ for (id_, _), kind in zip(vectors, kinds, strict=True) if kind)


@dataclass(frozen=True, slots=True)
class UseStep:
    """Judges the answers that wait for it, and changes the weights of their memories."""

    store: EvolutionStore
    judge: UseJudge
    portion: int = 5
    name: str = "use"

    def is_on(self, policy: EvolutionPolicy) -> bool:
        """See Step."""
        return policy.enabled

    async def run(self, visit: Visit) -> StepCounts:
        """See Step. Where it is switched off, the answers are settled without a judgement."""
        waiting = await self.store.answered(visit.scope, self.portion)
        judges = visit.policy.enabled and visit.policy.use
        ids: dict[str, list[str]] = {}
        for exchange in waiting:
            if not judges and visit.dry_run:
                continue
            verdict = await self.judge.verdict(exchange) if judges else None
            if visit.dry_run:
                did = _would(exchange, verdict)
            else:
                did = await self.store.record_use(exchange, verdict, visit.policy, visit.now)
            for action, changed in did.items():
                ids.setdefault(action, []).extend(changed)
        return StepCounts(ids, more=len(waiting) == self.portion)


def _would(exchange: AnsweredExchange, verdict: UseVerdict | None) -> Mapping[str, Sequence[str]]:
    """Return what would be counted, by action."""
    used = verdict.used if verdict else frozenset()
    rest = [s.memory.id for s in exchange.shown if s.memory.id not in used]
    return {"used": sorted(used), "unused": rest}
