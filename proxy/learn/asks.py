"""What a user's message asks the assistant to do with its memory, by the heads of the encoder."""

from dataclasses import dataclass

from proxy.domain.errors import EmbeddingFailed
from proxy.domain.judging import Asks, Judge
from proxy.telemetry import Seldom
from proxy.text.sentences import is_question, sentences

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
