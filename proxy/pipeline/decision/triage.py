"""A cache of what the rules of the decision say of a message.

The rules look at the words alone, at nothing of the user's, so that their verdict on a text is the same on
any day and for anybody. Digests and verdicts are kept, no texts. The rules take some 0.15 ms, a cached
verdict some 5 µs.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b

from proxy.domain import Turn
from proxy.pipeline.decision.decide import Verdict, decide, was_asked
from proxy.pipeline.decision.expect import Expectation, expectation
from proxy.pipeline.recent import Recent

LASTS_S = 24 * 3600.0
SIZE = 512
_SEEN_CHARS = 4_000


@dataclass(frozen=True, slots=True)
class Judged:
    """What the rules say of a message: whether to search, and what its form promises."""

    verdict: Verdict
    expected: Expectation


class Triage:
    """The rules, with a memory of what they said."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._recent: Recent[Judged] = Recent(clock, lasts_s=LASTS_S, size=SIZE)

    def judge(self, turn: Turn) -> Judged:
        """Return what the rules say of the turn's last user message."""
        key = _key(turn)
        if key in self._recent:
            return self._recent.get(key)
        judged = Judged(decide(turn), expectation(turn.query.strip()))
        self._recent.put(key, judged)
        return judged


def _key(turn: Turn) -> bytes:
    """Return a digest of all that the rules look at.

    Case and blank lines are among it ("US", a paste), so that only the ends are made equal; of a long
    message, more of its beginning and of its end than any rule reads, and its length.
    """
    text = turn.query.strip()
    seen = f"{text[:_SEEN_CHARS]}\0{text[-_SEEN_CHARS:]}\0{len(text)}"
    about = f"{turn.tool_forced:d}{turn.pastes:d}{was_asked(turn.messages):d}"
    return blake2b(f"{about}{seen}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
