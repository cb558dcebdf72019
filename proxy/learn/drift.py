"""Topic drift: detect that a user has changed the subject, so that what was said before is due for
extraction.

A text's distance alone says little: people wander, some more than others. So a text is compared with how
near to their past the session's earlier texts came: its own running spread. Looked for in the background,
for sessions that wait for more exchanges; a request is never held up by it.

Measured with MiniLM on eight personas (690 turns set behind somebody else's session, against 82 turns in
their own): finds .35 of the changes, sees .04 where there are none; at -0.08 it would be .40 and .10. Two
sessions of one persona are not told apart: people come back to their subjects. What is missed is extracted
all the same, later: by the number of turns, or when the session rests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proxy.domain.core import Exchange, Scope, SessionState
from proxy.domain.errors import EmbeddingFailed
from proxy.domain.ports import Embedder, SessionStore
from proxy.text.terms import terms

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
