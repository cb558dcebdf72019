"""When pending exchanges become an extraction job: an explicit ask, a full batch, silence, a new topic.

Triggers are pure functions, called by the session store. What a message asks for is read by the heads of the
encoder.

Topic drift. A text's distance alone says little: people wander, some more than others. So a text is compared
with how near to their past the session's earlier texts came: its own running spread. Looked for in the
background, for sessions that wait for more exchanges; a request never waits for it. Measured with MiniLM on
eight personas (690 turns behind another persona's session, 82 in their own): finds .35 of the changes, sees
.04 where there are none; at -0.08 it would be .40 and .10. What is missed is extracted later, by the number
of turns or when the session rests.
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
from proxy.telemetry import Seldom
from proxy.text.sentences import is_question, sentences
from proxy.text.terms import terms

# ---------------------------------------------------------------- what a message asks for
YES = 0.5
NOTHING = Asks(remember=0.0, forget=0.0, off_record=0.0, rule=0.0)
_SELDOM = Seldom()


@dataclass(frozen=True, slots=True)
class Heard:
    """What decides how soon a message is extracted. `personal`: it may state something that other
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


async def asks_of(judge: Judge | None, text: str) -> Asks:
    """Return what the message asks for; nothing if there is no judge, or if it fails."""
    return (await heard(judge, text)).asks


async def heard(judge: Judge | None, text: str) -> Heard:
    """Return how the message is meant. The read path has mostly read it already, and the judge keeps its last
    readings. Without a judge, whatever is more than questions may be personal."""
    states = any(not is_question(s) for s in sentences(text[:2_000]))
    if judge is None or not text.strip():
        return Heard(NOTHING, states)
    try:
        reading = await judge.read(text, closely=True)
    except EmbeddingFailed:
        _SELDOM.warning("asks.unread")
        return Heard(NOTHING, states)
    return Heard(reading.asks, states and reading.needs.memory >= YES)


# ---------------------------------------------------------------- triggers
TOOLS_S = 120.0  # that tools may take, from the question on, before the exchange is read without its end


@dataclass(frozen=True, slots=True)
class Policy:
    """How long exchanges may wait. One LLM call a batch: larger batches cost less and come later."""

    batch_size: int = 5
    idle_seconds: float = 600
    personal_idle_seconds: float = 15


def on_completion(policy: Policy) -> Trigger:
    """Return the trigger for a completed exchange: an explicit ask, or a full batch."""

    def trigger(state: SessionState) -> NewJob | None:
        if state.pending and state.explicit:
            return _job(state, EXPLICIT)
        if state.pending >= policy.batch_size * (2 if state.at_work else 1):
            return _job(state, ORDINARY)
        return None

    return trigger


def on_sweep(policy: Policy, now: float) -> Trigger:
    """Return the trigger for idle sessions. One that says something about the user is due sooner, so
    that a user who opens a new conversation right away is known in it."""
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


def unless_due(trigger: Trigger, others: list[SessionState]) -> Trigger:
    """Return the trigger, which also notes the sessions that have something pending and not due."""

    def noting(state: SessionState) -> NewJob | None:
        wanted = trigger(state)
        if wanted is None and state.pending:
            others.append(state)
        return wanted

    return noting


def up_to(left: Mapping[tuple[Scope, str], int]) -> Trigger:
    """Return the trigger for these sessions: (scope, session id) to the last exchange that is due."""

    def trigger(state: SessionState) -> NewJob | None:
        seq = left.get((state.scope, state.session_id))
        return None if seq is None else NewJob(session_id=state.session_id, upto=seq, lane=ORDINARY)

    return trigger


def _job(state: SessionState, lane: int) -> NewJob:
    return NewJob(session_id=state.session_id, upto=state.last_seq, lane=lane)


# ---------------------------------------------------------------- topic drift
SHIFT = -0.12  # below what the session itself lets expect
MIN_TERMS = 5  # of the new words: "thanks, and the other one?" has no topic
_AT_FIRST, _WORTH = (
    0.4,
    3,
)  # the nearness expected of a session's texts before it has shown any, and its weight
_OF_TOPIC, _OF_WORDS = 0.5, 0.6  # weights beside the nearest text: the topic's mean, the shared words
_TEXT = 600  # characters; what matters stands at the end
_LOOK_BACK = 8  # exchanges
_SESSIONS_A_SWEEP = 20

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Said:
    """One exchange as far as its topic goes: the user's own words, and the vectors of both sides."""

    words: frozenset[str]  # of both sides
    own: frozenset[str]  # of the user's
    vector: Vector | None  # of the user's words; None: not understood
    vectors: tuple[Vector, ...]  # of both sides


def shifts(said: Sequence[Said]) -> list[int]:
    """Return the places at which the topic changes: the first exchange of each new one. At least two
    exchanges tell what a session is about."""
    found, start = [], 0
    for place in range(2, len(said)):
        if place - start >= 2 and _leaves(said[start:place], said[place]):
            found.append(place)
            start = place
    return found


def _leaves(before: Sequence[Said], new: Said) -> bool:
    if new.vector is None or len(new.own) < MIN_TERMS or not any(s.vectors for s in before):
        return False
    shown = [_nearest(before[:i], v) for i, s in enumerate(before) if i and (v := s.vector) is not None]
    expected = (_AT_FIRST * _WORTH + sum(shown)) / (_WORTH + len(shown))
    words = frozenset[str]().union(*(s.words for s in before))
    score = (
        _nearest(before, new.vector)
        + _OF_TOPIC * float(new.vector @ _topic(before))
        + _OF_WORDS * len(new.own & words) / len(new.own)
    )
    return score - expected < SHIFT


def _nearest(before: Sequence[Said], vector: Vector) -> float:
    return max((float(vector @ v) for s in before for v in s.vectors), default=1.0)


def _topic(before: Sequence[Said]) -> Vector:
    """Return the direction of what was said, every exchange counting alike."""
    return _unit(np.sum([_unit(np.sum(s.vectors, axis=0)) for s in before if s.vectors], axis=0))


def _unit(vector: Vector) -> Vector:
    length = float(np.linalg.norm(vector))
    return vector / length if length else vector


class Drift:
    """Looks at the sessions that wait, each once for every exchange that came."""

    def __init__(self, sessions: SessionStore, embedder: Embedder) -> None:
        self._sessions, self._embedder = sessions, embedder
        self._looked_at: dict[tuple[Scope, str], int] = {}  # of what waits: the last exchange

    async def left_behind(self, waiting: Sequence[SessionState]) -> Mapping[tuple[Scope, str], int]:
        """Return the sessions whose topic changed, with the last exchange that waits from before.

        `waiting`: all that wait, or none where another replica swept. What waits no longer has another last
        exchange when it waits again, so that there is nothing to remember of it.
        """
        if waiting:
            keys = (_key(s) for s in waiting)
            self._looked_at = {key: self._looked_at[key] for key in keys if key in self._looked_at}
        fresh = [s for s in waiting if s.pending >= 2 and self._looked_at.get(_key(s)) != s.last_seq]
        found: dict[tuple[Scope, str], int] = {}
        for state in fresh[:_SESSIONS_A_SWEEP]:
            try:
                upto = await self._upto(state)
            except EmbeddingFailed:
                return found  # the others at the next sweep
            self._looked_at[_key(state)] = state.last_seq
            if upto is not None:
                found[_key(state)] = upto
        return found

    async def _upto(self, state: SessionState) -> int | None:
        exchanges = await self._sessions.recent(state.scope, state.session_id, _LOOK_BACK)
        waiting_from = len(exchanges) - state.pending
        places = shifts([await self._said(e) for e in exchanges])
        if not places or places[-1] <= max(0, waiting_from):
            return None  # nothing waits from before the change
        return exchanges[places[-1] - 1].seq

    async def _said(self, exchange: Exchange) -> Said:
        own, answer = exchange.said[-_TEXT:].strip(), exchange.answer[-_TEXT:].strip()
        texts = [t for t in (own, answer) if t and self._embedder.understands(t)]
        vectors = [np.frombuffer(v, np.float32) for v in await self._embedder.embed(texts)]
        words = frozenset(terms(own))
        vector = vectors[0] if texts and texts[0] == own else None
        return Said(words | frozenset(terms(answer)), words, vector, tuple(vectors))


def _key(state: SessionState) -> tuple[Scope, str]:
    return state.scope, state.session_id
