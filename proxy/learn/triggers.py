"""When pending exchanges become an extraction job: an explicit ask, a full batch, silence, a new topic.

Triggers are pure functions, called by the session store. What a message asks for is read by the heads of the
encoder.

Topic drift. A text's distance alone says little: people wander, some more than others. So a text is compared
with how near to their past the session's earlier texts came: its own running spread. Measured in the
background, for sessions that wait for more exchanges; a request never waits for it. With MiniLM on eight
personas (690 turns after another persona's session, 82 in their own) it finds .35 of the changes, and .04
without one; at -0.08 it would be .40 and .10. What is missed is extracted later, by the number of
turns or when the session rests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proxy.domain.core import Scope
from proxy.domain.errors import EmbeddingFailed
from proxy.domain.judging import Asks, Judge
from proxy.domain.ports import Embedder, SessionStore, Trigger
from proxy.domain.session import BATCH, EXPLICIT, ORDINARY, Exchange, NewJob, SessionState, rest_of
from proxy.telemetry import ThrottledLog
from proxy.text.words import is_question, sentences, terms

YES = 0.5
NOTHING = Asks(remember=0.0, forget=0.0, off_record=0.0, rule=0.0)
_LOG = ThrottledLog()


# ---------------------------------------------------------------- what a message asks for
@dataclass(frozen=True, slots=True)
class MessageIntent:
    """Decides whether and how soon a message is extracted. `personal`: it may state something that other
    conversations need."""

    asks: Asks
    personal: bool

    @property
    def is_rule(self) -> bool:
        """True for a standing instruction."""
        return self.asks.rule >= YES

    @property
    def is_unrecorded(self) -> bool:
        """True if nothing of it may be stored: it is off the record, or says what to forget."""
        return self.asks.off_record >= YES or self.asks.forget >= YES

    @property
    def is_explicit(self) -> bool:
        """True if it is extracted at once: the user asks to remember something, or sets a rule."""
        return self.is_rule or self.asks.remember >= YES


async def intent_of(judge: Judge | None, text: str) -> MessageIntent:
    """Return the message's intent; the judge has mostly read it already for the read path, and caches its
    readings. Without a judge, or if it fails, nothing is asked, and all but questions may be personal."""
    states = any(not is_question(s) for s in sentences(text[:2_000]))
    if judge is None or not text.strip():
        return MessageIntent(NOTHING, states)
    try:
        reading = await judge.read(text, closely=True)
    except EmbeddingFailed:
        _LOG.warning("asks.unread")
        return MessageIntent(NOTHING, states)
    return MessageIntent(reading.asks, states and reading.needs.memory >= YES)


# ---------------------------------------------------------------- triggers
TOOLS_S = 120.0  # for tools to run, from the question on; then the exchange is read without its end


@dataclass(frozen=True, slots=True)
class TriggerPolicy:
    """How long exchanges may wait. One LLM call a batch: larger batches cost less and come later."""

    batch_size: int = 5
    idle_seconds: float = 600
    personal_idle_seconds: float = 15


def on_completion(policy: TriggerPolicy) -> Trigger:
    """Return the trigger for a completed exchange: an explicit ask, or a full batch."""

    def trigger(state: SessionState) -> NewJob | None:
        if state.pending and state.explicit:
            return _job(state, EXPLICIT)
        if state.pending >= policy.batch_size * (2 if state.at_work else 1):
            return _job(state, ORDINARY)
        return None

    return trigger


def on_sweep(policy: TriggerPolicy, now: float) -> Trigger:
    """Return the trigger for idle sessions. One that says something about the user is due sooner, so that a
    user who opens a new conversation right away is known in it."""
    completed = on_completion(policy)

    def trigger(state: SessionState) -> NewJob | None:
        if due := completed(state):  # left over by a crash, or by a larger batch size
            return due
        idle = now - state.last_at
        is_personal = state.pending and state.personal and idle >= policy.personal_idle_seconds
        if (is_personal or state.pending >= policy.batch_size) and (not state.at_work or idle >= TOOLS_S):
            return _job(state, ORDINARY)
        if state.pending and idle >= policy.idle_seconds:
            return _job(state, BATCH)
        return None

    return trigger


def on_end(state: SessionState) -> NewJob | None:
    """Trigger for the end of a session and for shutdown: everything that is pending."""
    return rest_of(state) if state.pending else None


def noting_undue(trigger: Trigger, undue: list[SessionState]) -> Trigger:
    """Return the trigger, which also adds the sessions that are pending and not due to `undue`."""

    def noting(state: SessionState) -> NewJob | None:
        job = trigger(state)
        if job is None and state.pending:
            undue.append(state)
        return job

    return noting


def up_to(last_due: Mapping[tuple[Scope, str], int]) -> Trigger:
    """Return the trigger for these sessions: (scope, session id) to the last exchange that is due."""

    def trigger(state: SessionState) -> NewJob | None:
        seq = last_due.get(_key(state))
        return None if seq is None else NewJob(session_id=state.session_id, upto=seq, lane=ORDINARY)

    return trigger


def _job(state: SessionState, lane: int) -> NewJob:
    return NewJob(session_id=state.session_id, upto=state.last_seq, lane=lane)


def _key(state: SessionState) -> tuple[Scope, str]:
    return state.scope, state.session_id


# ---------------------------------------------------------------- topic drift
SHIFT = -0.12  # relative to the session's own expectation
MIN_TERMS = 5  # new words: "thanks, and the other one?" has no topic
_PRIOR, _PRIOR_WEIGHT = 0.4, 3  # nearness expected of texts before the session has shown any
_TOPIC_WEIGHT, _WORDS_WEIGHT = 0.5, 0.6  # of the topic's mean and of shared words; the nearest text weighs 1
_TEXT = 600  # characters; the end of a text matters most
_LOOK_BACK = 8  # exchanges
_SESSIONS_A_SWEEP = 20

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TopicSample:
    """One exchange: the words and vectors of both sides, and the user's own."""

    words: frozenset[str]
    own: frozenset[str]
    vector: Vector | None  # of the user's words; None: not understood
    vectors: tuple[Vector, ...]


def shifts(samples: Sequence[TopicSample]) -> list[int]:
    """Return the index of the first exchange of each new topic. A topic needs at least two exchanges."""
    found, start = [], 0
    for index in range(2, len(samples)):
        if index - start >= 2 and _leaves(samples[start:index], samples[index]):
            found.append(index)
            start = index
    return found


def _leaves(before: Sequence[TopicSample], new: TopicSample) -> bool:
    if new.vector is None or len(new.own) < MIN_TERMS or not any(s.vectors for s in before):
        return False
    shown = [_nearest(before[:i], v) for i, s in enumerate(before) if i and (v := s.vector) is not None]
    expected = (_PRIOR * _PRIOR_WEIGHT + sum(shown)) / (_PRIOR_WEIGHT + len(shown))
    words = frozenset[str]().union(*(s.words for s in before))
    score = (
        _nearest(before, new.vector)
        + _TOPIC_WEIGHT * float(new.vector @ _topic(before))
        + _WORDS_WEIGHT * len(new.own & words) / len(new.own)
    )
    return score - expected < SHIFT


def _nearest(before: Sequence[TopicSample], vector: Vector) -> float:
    return max((float(vector @ v) for s in before for v in s.vectors), default=1.0)


def _topic(before: Sequence[TopicSample]) -> Vector:
    """Return the mean direction, every exchange counting alike."""
    return _unit(np.sum([_unit(np.sum(s.vectors, axis=0)) for s in before if s.vectors], axis=0))


def _unit(vector: Vector) -> Vector:
    length = float(np.linalg.norm(vector))
    return vector / length if length else vector


class TopicDrift:
    """Finds topic changes in waiting sessions; measures each once per new exchange."""

    def __init__(self, sessions: SessionStore, embedder: Embedder) -> None:
        self._sessions, self._embedder = sessions, embedder
        self._measured_at: dict[tuple[Scope, str], int] = {}  # waiting sessions: their last exchange then

    async def left_behind(self, waiting: Sequence[SessionState]) -> Mapping[tuple[Scope, str], int]:
        """Return the sessions whose topic changed, each with the last exchange before the change.

        `waiting`: all waiting sessions, or none if another replica swept. A session that waits again has
        another last exchange, so the others may be dropped from memory.
        """
        if waiting:
            keys = (_key(s) for s in waiting)
            self._measured_at = {key: self._measured_at[key] for key in keys if key in self._measured_at}
        fresh = [s for s in waiting if s.pending >= 2 and self._measured_at.get(_key(s)) != s.last_seq]
        found: dict[tuple[Scope, str], int] = {}
        for state in fresh[:_SESSIONS_A_SWEEP]:
            try:
                upto = await self._last_before_change(state)
            except EmbeddingFailed:
                return found  # the others at the next sweep
            self._measured_at[_key(state)] = state.last_seq
            if upto is not None:
                found[_key(state)] = upto
        return found

    async def _last_before_change(self, state: SessionState) -> int | None:
        exchanges = await self._sessions.recent(state.scope, state.session_id, _LOOK_BACK)
        waiting_from = len(exchanges) - state.pending
        changes = shifts([await self._sample(e) for e in exchanges])
        if not changes or changes[-1] <= max(0, waiting_from):
            return None  # nothing waits from before the change
        return exchanges[changes[-1] - 1].seq

    async def _sample(self, exchange: Exchange) -> TopicSample:
        own, answer = exchange.said[-_TEXT:].strip(), exchange.answer[-_TEXT:].strip()
        texts = [t for t in (own, answer) if t and self._embedder.understands(t)]
        vectors = [np.frombuffer(v, np.float32) for v in await self._embedder.embed(texts)]
        words = frozenset(terms(own))
        vector = vectors[0] if texts and texts[0] == own else None
        return TopicSample(words | frozenset(terms(answer)), words, vector, tuple(vectors))
